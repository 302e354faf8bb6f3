// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import android.content.Context
import android.graphics.Color
import android.view.View
import android.view.ViewGroup.LayoutParams.MATCH_PARENT
import android.view.ViewGroup.LayoutParams.WRAP_CONTENT
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView

val INK: Int = Color.rgb(28, 30, 33)
val FAINT: Int = Color.rgb(140, 146, 152)
val ACCENT: Int = Color.rgb(76, 120, 40)

fun Context.column(vararg views: View): LinearLayout = LinearLayout(this).apply {
    orientation = LinearLayout.VERTICAL
    views.forEach(::addView)
}

fun Context.label(value: String, size: Float, color: Int): TextView = TextView(this).apply {
    val padding = (12 * resources.displayMetrics.density).toInt()
    setPadding(padding, padding, padding, 0)
    setTextColor(color)
    textSize = size
    text = value
}

fun Context.field(hint: String): EditText = EditText(this).apply {
    setHint(hint)
    setSingleLine()
}

fun Context.button(title: String, onTap: () -> Unit): Button = Button(this).apply {
    text = title
    setOnClickListener { onTap() }
}

/** Lets the view take the remaining height of a column. */
fun <T : View> T.fillColumn(): T = apply { layoutParams = LinearLayout.LayoutParams(MATCH_PARENT, 0, 1f) }

/** Lets the view share the width of a row equally. */
fun <T : View> T.fillRow(): T = apply { layoutParams = LinearLayout.LayoutParams(0, WRAP_CONTENT, 1f) }

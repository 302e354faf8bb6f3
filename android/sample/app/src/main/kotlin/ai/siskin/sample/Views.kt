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

fun Context.label(words: String, size: Float, color: Int): TextView = TextView(this).apply {
    val space = (12 * resources.displayMetrics.density).toInt()
    setPadding(space, space, space, 0)
    setTextColor(color)
    textSize = size
    text = words
}

fun Context.field(hint: String): EditText = EditText(this).apply {
    setHint(hint)
    setSingleLine()
}

fun Context.button(words: String, tapped: () -> Unit): Button = Button(this).apply {
    text = words
    setOnClickListener { tapped() }
}

/** Takes what is left of a column. */
fun <T : View> T.filling(): T = apply { layoutParams = LinearLayout.LayoutParams(MATCH_PARENT, 0, 1f) }

/** Takes a fair part of a row. */
fun <T : View> T.sharing(): T = apply { layoutParams = LinearLayout.LayoutParams(0, WRAP_CONTENT, 1f) }

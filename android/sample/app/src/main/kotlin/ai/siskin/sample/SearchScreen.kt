// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.SiskinException
import android.app.Activity
import android.view.View
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch

/** Notes in the order of how near they are to what is looked for. */
class SearchScreen(private val activity: Activity, private val scope: CoroutineScope) {
    private val lines = activity.column()
    private val wanted = activity.field("Look for a meaning")
    private var searching: Job? = null

    var notes: Notes? = null
    val view: View = activity.column(wanted, activity.button("Search", ::onTap), lines)

    /** Shows a line of the app's own. */
    fun say(text: String) {
        lines.addView(activity.label(text, 14f, FAINT))
    }

    private fun onTap() {
        val notes = notes ?: return say("The model is not open yet.")
        searching?.cancel()
        searching = scope.launch {
            try {
                show(notes.find(wanted.text.toString()))
            } catch (error: SiskinException) {
                say(error.message)
            }
        }
    }

    private fun show(found: List<Pair<String, Float>>) {
        lines.removeAllViews()
        for ((text, nearness) in found) {
            lines.addView(activity.label("%s  %.2f".format(text, nearness), 16f, if (nearness > 0.3) INK else FAINT))
        }
    }
}

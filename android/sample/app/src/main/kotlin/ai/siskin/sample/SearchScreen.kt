// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.SiskinException
import android.app.Activity
import android.view.View
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch

/** A semantic search over notes. */
class SearchScreen(private val activity: Activity, private val scope: CoroutineScope) {
    private val lines = activity.column()
    private val query = activity.field("Search by meaning")
    private var job: Job? = null

    var notes: Notes? = null
    val view: View = activity.column(query, activity.button("Search", ::onTap), lines)

    /** Shows a message that is not a result. */
    fun showStatus(text: String) {
        lines.addView(activity.label(text, 14f, FAINT))
    }

    private fun onTap() {
        val notes = notes ?: return showStatus("The model is still loading.")
        job?.cancel()
        job = scope.launch {
            try {
                show(notes.search(query.text.toString()))
            } catch (error: SiskinException) {
                showStatus(error.message)
            }
        }
    }

    private fun show(matches: List<Pair<String, Float>>) {
        lines.removeAllViews()
        for ((text, score) in matches) {
            lines.addView(activity.label("%s  %.2f".format(text, score), 16f, if (score > 0.3) INK else FAINT))
        }
    }
}

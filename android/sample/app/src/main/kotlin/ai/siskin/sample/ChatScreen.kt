// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.Session
import ai.siskin.SiskinException
import android.app.Activity
import android.view.View
import android.widget.LinearLayout
import android.widget.ScrollView
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch

/** A chat. While an answer is generated, the button stops it. */
class ChatScreen(private val activity: Activity, private val scope: CoroutineScope) {
    private val lines = activity.column()
    private val page = ScrollView(activity).apply { addView(lines) }
    private val question = activity.field("Ask something")
    private val button = activity.button("Ask", ::onTap)
    private var job: Job? = null

    var session: Session? = null
    val view: View = activity.column(page.fillColumn(), LinearLayout(activity).apply {
        addView(question.fillRow())
        addView(button)
    })

    /** Shows a message that is not part of the conversation. */
    fun showStatus(text: String) {
        lines.addView(activity.label(text, 14f, FAINT))
    }

    private fun onTap() {
        val running = job
        if (running?.isActive == true) return running.cancel()
        val session = session ?: return showStatus("The model is still loading.")
        val text = question.text.toString().trim().ifEmpty { return }
        question.setText("")
        lines.addView(activity.label(text, 16f, ACCENT))
        job = scope.launch { answer(session, text) }
    }

    private suspend fun answer(session: Session, text: String) {
        val line = activity.label("", 16f, INK)
        lines.addView(line)
        button.text = "Stop"
        try {
            session.chat(text).collect { chunk ->
                line.append(chunk)
                page.fullScroll(View.FOCUS_DOWN)
            }
        } catch (error: SiskinException.TooLong) {
            session.reset()
            showStatus("The context was full. The conversation starts over.")
        } catch (error: SiskinException) {
            showStatus(error.message)
        } finally {
            button.text = "Ask"
        }
    }
}

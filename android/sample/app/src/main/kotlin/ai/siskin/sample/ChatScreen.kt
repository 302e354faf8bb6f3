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

/** Questions and answers. A tap on the button while an answer is being written stops it. */
class ChatScreen(private val activity: Activity, private val scope: CoroutineScope) {
    private val lines = activity.column()
    private val page = ScrollView(activity).apply { addView(lines) }
    private val question = activity.field("Ask something")
    private val button = activity.button("Ask", ::onTap)
    private var answering: Job? = null

    var session: Session? = null
    val view: View = activity.column(page.filling(), LinearLayout(activity).apply {
        addView(question.sharing())
        addView(button)
    })

    /** Shows a line of the app's own. */
    fun say(text: String) {
        lines.addView(activity.label(text, 14f, FAINT))
    }

    private fun onTap() {
        val running = answering
        if (running?.isActive == true) return running.cancel()
        val session = session ?: return say("The model is not open yet.")
        val text = question.text.toString().trim().ifEmpty { return }
        question.setText("")
        lines.addView(activity.label(text, 16f, ACCENT))
        answering = scope.launch { answer(session, text) }
    }

    private suspend fun answer(session: Session, text: String) {
        val line = activity.label("", 16f, INK)
        lines.addView(line)
        button.text = "Stop"
        try {
            session.chat(text).collect { piece ->
                line.append(piece)
                page.fullScroll(View.FOCUS_DOWN)
            }
        } catch (error: SiskinException.TooLong) {
            session.forget()
            say("The conversation was full, and begins anew.")
        } catch (error: SiskinException) {
            say(error.message)
        } finally {
            button.text = "Ask"
        }
    }
}

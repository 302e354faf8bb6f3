// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.Model
import ai.siskin.SiskinException
import ai.siskin.Throttle
import ai.siskin.android.DeviceStateObserver
import ai.siskin.android.MemoryCallbacks
import ai.siskin.android.open
import android.app.Activity
import android.os.Bundle
import android.view.View
import android.widget.FrameLayout
import android.widget.LinearLayout
import kotlinx.coroutines.MainScope
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch

/** Two screens: a chat, and a semantic search. Their models are the assets `chat.siskin` and `search.siskin`. */
class MainActivity : Activity() {
    private val scope = MainScope()
    private val open = mutableListOf<AutoCloseable>()
    private lateinit var content: FrameLayout

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        content = FrameLayout(this)
        setContentView(column(row(tab("Chat", ::showChat), tab("Search", ::showSearch)), content.fillColumn()))
        showChat()
    }

    override fun onDestroy() {
        scope.cancel()
        open.asReversed().forEach(AutoCloseable::close)
        super.onDestroy()
    }

    private val chat by lazy {
        ChatScreen(this, scope).also { screen ->
            openModel("chat.siskin", screen::showStatus) { model ->
                val session = model.session { context = 2048 }.also(open::add)
                val memory = MemoryCallbacks(scope).apply { add(session) }
                registerComponentCallbacks(memory)
                open += AutoCloseable { unregisterComponentCallbacks(memory) }
                screen.session = session
            }
        }
    }

    private val search by lazy {
        SearchScreen(this, scope).also { screen ->
            openModel("search.siskin", screen::showStatus) { model ->
                screen.notes = Notes.embed(model.encoder().also(open::add))
            }
        }
    }

    /** Opens a model from an asset, and throttles it when the device is hot or its battery is low. */
    private fun openModel(asset: String, showStatus: (String) -> Unit, use: suspend (Model) -> Unit) = scope.launch {
        try {
            val model = Model.open(assets, asset).also(open::add)
            open += DeviceStateObserver(this@MainActivity, model)
            model.throttle = Throttle.Adaptive
            use(model)
        } catch (error: SiskinException) {
            showStatus("${error.location}: ${error.message}")
        }
    }

    private fun showChat() = show(chat.view)

    private fun showSearch() = show(search.view)

    private fun show(view: View) {
        content.removeAllViews()
        content.addView(view)
    }

    private fun tab(title: String, show: () -> Unit): View =
        label(title, 16f, INK).apply { setOnClickListener { show() } }.fillRow()

    private fun row(vararg views: View) = LinearLayout(this).apply { views.forEach(::addView) }
}

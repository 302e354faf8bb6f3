// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Session
import ai.siskin.SiskinException
import ai.siskin.Trim
import android.content.ComponentCallbacks2
import android.content.res.Configuration
import java.util.Collections
import java.util.WeakHashMap
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.launch

/**
 * Trims sessions on Android's memory callbacks: unused memory when memory is low or the app is no longer visible, and
 * from [forgetFrom] on also messages and tokens, after [beforeForgetting], which may save them; if that fails, nothing
 * is forgotten. Android passes the level; by default nothing is forgotten.
 *
 * ```
 * val memory = MemoryCallbacks(scope)
 * context.registerComponentCallbacks(memory)
 * memory.add(session)
 * ```
 */
public class MemoryCallbacks(
    private val scope: CoroutineScope,
    private val forgetFrom: Int = Int.MAX_VALUE,
    private val beforeForgetting: suspend (Session) -> Unit = {},
) : ComponentCallbacks2 {
    private val sessions = Collections.synchronizedMap(WeakHashMap<Session, Unit>())

    /** Adds a session, which is trimmed until it is closed, poisoned or unreachable. */
    public fun add(session: Session) {
        sessions[session] = Unit
    }

    /** Removes a session. */
    public fun remove(session: Session) {
        sessions.remove(session)
    }

    override fun onTrimMemory(level: Int) {
        val trim = trimFor(level, forgetFrom) ?: return
        for (session in synchronized(sessions) { sessions.keys.toList() }) {
            scope.launch { trim(session, trim) }
        }
    }

    @Deprecated("Android calls onTrimMemory instead")
    override fun onLowMemory() {
        onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
    }

    override fun onConfigurationChanged(configuration: Configuration) {}

    private suspend fun trim(session: Session, trim: Trim) {
        try {
            val forgets = trim == Trim.ALL && isReady(session)
            session.trim(if (forgets) Trim.ALL else Trim.UNUSED)
        } catch (error: SiskinException) {
            // Others keep their memory until Android's next callback.
            if (error is SiskinException.Closed || error is SiskinException.Poisoned) remove(session)
        }
    }

    /** Whether a session may be cleared. */
    private suspend fun isReady(session: Session): Boolean = try {
        beforeForgetting(session)
        true
    } catch (_: Exception) {
        currentCoroutineContext().ensureActive()
        false
    }
}

/** What is trimmed at a level of `ComponentCallbacks2`; `null`: nothing. */
internal fun trimFor(level: Int, forgetFrom: Int): Trim? = when {
    level >= forgetFrom && level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND -> Trim.ALL
    level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW -> Trim.UNUSED
    else -> null
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Session
import ai.siskin.SiskinException
import ai.siskin.TrimLevel
import android.content.ComponentCallbacks2
import android.content.res.Configuration
import java.util.Collections
import java.util.WeakHashMap
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.launch

/**
 * Trims sessions on Android's memory callbacks. When memory is low or the app is no longer visible, unused memory is
 * returned to the system.
 *
 * From the trim level [resetFrom] on, sessions are also reset, which removes all messages and tokens. [beforeReset]
 * runs first and can save them; if it throws, the session is not reset. By default sessions are never reset.
 *
 * ```
 * val memory = MemoryCallbacks(scope)
 * context.registerComponentCallbacks(memory)
 * memory.add(session)
 * ```
 */
public class MemoryCallbacks(
    private val scope: CoroutineScope,
    private val resetFrom: Int? = null,
    private val beforeReset: suspend (Session) -> Unit = {},
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
        val trimLevel = trimLevel(level, resetFrom) ?: return
        for (session in synchronized(sessions) { sessions.keys.toList() }) {
            scope.launch { trim(session, trimLevel) }
        }
    }

    @Deprecated("Android calls onTrimMemory instead")
    override fun onLowMemory() {
        onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
    }

    override fun onConfigurationChanged(configuration: Configuration) {}

    private suspend fun trim(session: Session, level: TrimLevel) {
        try {
            val resets = level == TrimLevel.ALL && runBeforeReset(session)
            session.trimMemory(if (resets) TrimLevel.ALL else TrimLevel.UNUSED)
        } catch (error: SiskinException) {
            // After any other error, the session is trimmed again on Android's next callback.
            if (error is SiskinException.Closed || error is SiskinException.Poisoned) remove(session)
        }
    }

    /** Returns whether the session may be reset. */
    private suspend fun runBeforeReset(session: Session): Boolean = try {
        beforeReset(session)
        true
    } catch (_: Exception) {
        currentCoroutineContext().ensureActive()
        false
    }
}

/** Maps a trim level of `ComponentCallbacks2`; `null` means that nothing is trimmed. */
internal fun trimLevel(level: Int, resetFrom: Int?): TrimLevel? = when {
    resetFrom != null && level >= resetFrom && level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND -> TrimLevel.ALL
    level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW -> TrimLevel.UNUSED
    else -> null
}

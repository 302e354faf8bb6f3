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
 * Gives memory of sessions back when Android asks for it: what holds nothing where memory is short or the app is not
 * seen any more, and from [forgetFrom] on also what was said and read, after [beforeForgetting], which may save it: where
 * that fails, nothing is forgotten. Android names the level; by default nothing is forgotten.
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

    /** Looks after a session, until it is closed, failed inside, or nobody has it any more. */
    public fun add(session: Session) {
        sessions[session] = Unit
    }

    /** Looks after it no more. */
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
            // Others keep what they hold until Android asks again.
            if (error is SiskinException.Closed || error is SiskinException.Poisoned) remove(session)
        }
    }

    /** Whether a session may be forgotten. */
    private suspend fun isReady(session: Session): Boolean = try {
        beforeForgetting(session)
        true
    } catch (_: Exception) {
        currentCoroutineContext().ensureActive()
        false
    }
}

/** What is given back at a level of `ComponentCallbacks2`; `null`: nothing. */
internal fun trimFor(level: Int, forgetFrom: Int): Trim? = when {
    level >= forgetFrom && level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND -> Trim.ALL
    level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW -> Trim.UNUSED
    else -> null
}

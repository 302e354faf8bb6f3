// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.lang.ref.PhantomReference
import java.lang.ref.ReferenceQueue
import java.util.Collections
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock

/** A native object that uses memory until it is closed. Any thread may use it. */
public sealed class Handle(internal val owner: Owner) : AutoCloseable {
    private val trace = Reaper.watch(this, owner)

    /** Whether [close] was called. */
    public val isClosed: Boolean
        get() = owner.isClosed

    /**
     * Stops the running call, waits until it has ended, which takes milliseconds, and frees the memory. Further calls
     * have no effect. Running and later uses throw [SiskinException.Closed]. Calls on a [Model] cannot be stopped and
     * are not waited for: the last one frees the memory when it ends.
     */
    override fun close() {
        Reaper.forget(trace)
        owner.close()
    }
}

/**
 * Owns a native pointer, lends it to calls, and frees it when it is closed and the last call has returned. [stop] is
 * its native stop handle, or 0.
 */
internal class Owner(
    val name: String,
    private val pointer: Long,
    private val stop: Long,
    private val free: (Long) -> Unit,
) {
    private val lock = ReentrantLock()
    private val over = lock.newCondition()
    private var users = 0
    private var closed = false
    private var freed = false

    val isClosed: Boolean
        get() = lock.withLock { closed }

    /** Returns the pointer, which stays valid until [leave]. */
    fun enter(): Long = lock.withLock {
        if (closed) throw SiskinException.Closed(name)
        users++
        pointer
    }

    fun leave(): Unit = lock.withLock {
        users--
        if (closed && users == 0) release()
    }

    inline fun <T> lend(use: (Long) -> T): T {
        val lent = enter()
        try {
            return use(lent)
        } finally {
            leave()
        }
    }

    /** Stops the running call, or the next one. */
    fun stop(): Unit = lock.withLock {
        if (!freed && stop != 0L) NativeStop.now(stop)
    }

    /** Clears a stop that has not affected a call. */
    fun withdraw(): Unit = lock.withLock {
        if (!freed && stop != 0L) NativeStop.withdraw(stop)
    }

    fun close(): Unit = lock.withLock {
        if (!closed) {
            closed = true
            if (users == 0) release() else stop()
        }
        // A listener runs inside a call, which cannot end before the listener returns.
        if (stop != 0L && !Callbacks.areRunning) {
            while (!freed) over.awaitUninterruptibly()
        }
    }

    private fun release() {
        if (freed) return
        freed = true
        if (stop != 0L) NativeStop.free(stop)
        free(pointer)
        over.signalAll()
    }
}

/** Tracks which threads are inside a listener that the library called. */
internal object Callbacks {
    private val depth = ThreadLocal<Int>()

    val areRunning: Boolean
        get() = (depth.get() ?: 0) > 0

    inline fun <T> inside(callback: () -> T): T {
        val before = depth.get() ?: 0
        depth.set(before + 1)
        try {
            return callback()
        } finally {
            if (before == 0) depth.remove() else depth.set(before)
        }
    }
}

/**
 * Frees unreachable handles that were never closed, whenever a new one is created: a safety net, not a replacement for
 * `close`.
 */
internal object Reaper {
    class Trace(handle: Handle, val owner: Owner) : PhantomReference<Handle>(handle, queue)

    private val queue = ReferenceQueue<Handle>()
    private val traces = Collections.newSetFromMap(ConcurrentHashMap<Trace, Boolean>())

    fun watch(handle: Handle, owner: Owner): Trace {
        while (true) {
            val lost = queue.poll() as Trace? ?: break
            forget(lost)
            lost.owner.close()
        }
        return Trace(handle, owner).also(traces::add)
    }

    fun forget(trace: Trace) {
        traces.remove(trace)
        trace.clear()
    }
}

internal object NativeStop {
    @JvmStatic external fun now(stop: Long)

    @JvmStatic external fun withdraw(stop: Long)

    @JvmStatic external fun free(stop: Long)
}

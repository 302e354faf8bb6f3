// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.lang.ref.PhantomReference
import java.lang.ref.ReferenceQueue
import java.util.Collections
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock

/** A native object that uses memory until it is closed. Thread-safe. */
public sealed class Handle(internal val native: NativePointer) : AutoCloseable {
    private val reference = Reaper.register(this, native)

    /** Whether [close] was called. */
    public val isClosed: Boolean
        get() = native.isClosed

    /**
     * Cancels the running call, waits until it has ended, which takes milliseconds, and frees the memory. Running and
     * later calls throw [SiskinException.Closed]. Closing again has no effect.
     *
     * Calls on a [Model] cannot be canceled, and closing a model does not wait for them: the memory is freed when the
     * last of them ends.
     */
    override fun close() {
        Reaper.unregister(reference)
        native.close()
    }
}

/**
 * Owns a native object. [withPointer] keeps the object valid during a call; the object is freed once it is closed and
 * the last call has returned. [cancelHandle] is its native cancel handle, or 0 if its calls cannot be canceled.
 */
internal class NativePointer(
    val name: String,
    private val pointer: Long,
    private val cancelHandle: Long,
    private val free: (Long) -> Unit,
) {
    private val lock = ReentrantLock()
    private val released = lock.newCondition()
    private var users = 0
    private var closed = false
    private var freed = false

    val isClosed: Boolean
        get() = lock.withLock { closed }

    /** Returns the pointer, which stays valid until [release]. */
    fun acquire(): Long = lock.withLock {
        if (closed) throw SiskinException.Closed(name)
        users++
        pointer
    }

    fun release(): Unit = lock.withLock {
        users--
        if (closed && users == 0) freeOnce()
    }

    inline fun <T> withPointer(block: (Long) -> T): T {
        val acquired = acquire()
        try {
            return block(acquired)
        } finally {
            release()
        }
    }

    /** Cancels the running native call, or the next one. */
    fun cancel(): Unit = lock.withLock {
        if (!freed && cancelHandle != 0L) NativeCancelHandle.cancel(cancelHandle)
    }

    /** Clears a pending cancellation. */
    fun resetCancellation(): Unit = lock.withLock {
        if (!freed && cancelHandle != 0L) NativeCancelHandle.reset(cancelHandle)
    }

    fun close(): Unit = lock.withLock {
        if (!closed) {
            closed = true
            if (users == 0) freeOnce() else cancel()
        }
        // A listener runs inside a native call, which cannot end before the listener returns.
        if (cancelHandle != 0L && !Callbacks.isInside) {
            while (!freed) released.awaitUninterruptibly()
        }
    }

    private fun freeOnce() {
        if (freed) return
        freed = true
        if (cancelHandle != 0L) NativeCancelHandle.free(cancelHandle)
        free(pointer)
        released.signalAll()
    }
}

/** Tracks which threads are inside a listener that the library called. */
internal object Callbacks {
    private val depth = ThreadLocal<Int>()

    val isInside: Boolean
        get() = (depth.get() ?: 0) > 0

    inline fun <T> enter(callback: () -> T): T {
        val outer = depth.get() ?: 0
        depth.set(outer + 1)
        try {
            return callback()
        } finally {
            if (outer == 0) depth.remove() else depth.set(outer)
        }
    }
}

/**
 * Frees unreachable handles that were never closed, each time a handle is created. This is a safety net, not a
 * replacement for `close`.
 */
internal object Reaper {
    class Reference(handle: Handle, val native: NativePointer) : PhantomReference<Handle>(handle, queue)

    private val queue = ReferenceQueue<Handle>()
    private val references = Collections.newSetFromMap(ConcurrentHashMap<Reference, Boolean>())

    fun register(handle: Handle, native: NativePointer): Reference {
        while (true) {
            val unreachable = queue.poll() as Reference? ?: break
            unregister(unreachable)
            unreachable.native.close()
        }
        return Reference(handle, native).also(references::add)
    }

    fun unregister(reference: Reference) {
        references.remove(reference)
        reference.clear()
    }
}

internal object NativeCancelHandle {
    @JvmStatic external fun cancel(handle: Long)

    @JvmStatic external fun reset(handle: Long)

    @JvmStatic external fun free(handle: Long)
}

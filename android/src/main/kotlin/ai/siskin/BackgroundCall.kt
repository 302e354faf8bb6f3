// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.util.concurrent.Executor
import java.util.concurrent.SynchronousQueue
import java.util.concurrent.ThreadPoolExecutor
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import kotlin.coroutines.cancellation.CancellationException
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.updateAndGet
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * A handle with long-running calls: [Session], [Encoder], [Seq2Seq] or [Transcriber]. Its suspending functions run on
 * the library's background threads, one at a time, and can be called from any dispatcher.
 *
 * Canceling the calling coroutine cancels the native call within milliseconds. The coroutine resumes with a
 * `CancellationException` once the native call has ended; the handle is restored to its state before the call. There is
 * one exception: if a sliding window of a [Session] has moved or a recurrent state has changed, a canceled prompt
 * appended to existing tokens is left partially processed; [Session.stats] reports how many tokens the session holds
 * afterward.
 */
public sealed class CancellableHandle(native: NativePointer) : Handle(native) {
    private val mutex = Mutex()

    /** The number of calls to [cancel] so far. */
    internal val cancelCount = MutableStateFlow(0)

    @Volatile
    private var running: BackgroundCall? = null

    /**
     * Cancels the running call within milliseconds, from any thread.
     *
     * The response of a [Session] ends: its flow completes normally, [Session.next] returns `null`, and
     * [Session.finishReason] is [FinishReason.CANCELED]. No token is lost: [Session.generateText] continues the
     * response. Between two tokens, the cancellation ends the response before the next one, unless a new response is
     * started. Prompts that wait for their turn or for a paused session are canceled too.
     *
     * All other calls throw [SiskinException.Canceled], and can be retried. A cancellation without a running call or
     * answer has no effect. To cancel with structured concurrency, cancel the coroutine instead.
     */
    public fun cancel() {
        // Incremented first: a call that begins concurrently either is not canceled, or observes the new count.
        val number = cancelCount.updateAndGet { it + 1 }
        running?.cancel(number)
    }

    /**
     * Called while the handle is locked, when a call was canceled and [cancel] has been called more than [since] times.
     */
    internal open fun onCallCanceled(since: Int) {}

    /** Repeats a pending cancellation after the library has cleared all cancellations. */
    internal fun repeatCancellation() {
        running?.repeatCancellation()
        if (native.isClosed) native.cancel()
    }

    /**
     * Runs [block] on a background thread while the handle is locked. If the coroutine is canceled after the result
     * was computed, the result goes to [undelivered]; if that is `null`, the caller still receives the result, and its
     * next suspending call throws. [canceled] is called while the handle is locked, if [cancel] canceled the call.
     */
    internal suspend fun <T> call(
        undelivered: ((T) -> Unit)? = null,
        canceled: () -> Unit = {},
        block: (Long) -> T,
    ): T = mutex.withLock {
        val call = BackgroundCall(native, cancelCount.value)
        running = call
        try {
            runInBackground(call::cancel, undelivered) { call.run(block) }
        } finally {
            if (call.isCancelled && cancelCount.value != call.since) {
                onCallCanceled(call.since)
                canceled()
            }
            running = null
        }
    }

    /** Runs a call that is too short to need a background thread. */
    internal suspend fun <T> shortCall(block: (Long) -> T): T = mutex.withLock { native.withPointer(block) }
}

/**
 * One native call. Canceling it before it begins or while it runs takes effect; afterwards it has no effect. The first
 * [since] calls to [CancellableHandle.cancel] preceded it and do not affect it.
 */
internal class BackgroundCall(private val native: NativePointer, val since: Int) {
    private enum class Progress { WAITING, RUNNING, DONE }

    private var progress = Progress.WAITING
    private var isRequested = false

    /** Whether the call ended with [SiskinException.Canceled]. */
    var isCancelled = false
        private set

    /** Applies cancellation [number], unless it preceded the call. */
    fun cancel(number: Int) {
        if (number > since) cancel()
    }

    fun cancel(): Unit = synchronized(this) {
        if (progress == Progress.DONE || isRequested) return
        isRequested = true
        if (progress == Progress.RUNNING) native.cancel()
    }

    fun repeatCancellation(): Unit = synchronized(this) {
        if (isRequested && progress == Progress.RUNNING) native.cancel()
    }

    fun <T> run(block: (Long) -> T): T = try {
        native.withPointer { pointer ->
            begin()
            try {
                block(pointer)
            } catch (error: SiskinException) {
                throw translate(error)
            } finally {
                end()
            }
        }
    } catch (error: SiskinException.Canceled) {
        isCancelled = true
        throw error
    }

    private fun begin(): Unit = synchronized(this) {
        if (isRequested) throw canceledError()
        progress = Progress.RUNNING
    }

    /** The library reports `Canceled` for a call that was canceled, closed or paused; callers see which it was. */
    private fun translate(error: SiskinException): SiskinException = when {
        error !is SiskinException.Canceled && error !is SiskinException.Paused -> error
        native.isClosed -> SiskinException.Closed(native.name)
        synchronized(this) { isRequested } -> canceledError()
        error is SiskinException.Canceled && !error.isByCaller ->
            SiskinException.Paused(native.name, "was paused; resume it first")
        else -> error
    }

    private fun canceledError() =
        SiskinException.Canceled(native.name, "the call was canceled; it can be retried", isByCaller = true)

    /** Clears a cancellation that came too late for this call, so that it does not cancel the next one. */
    private fun end(): Unit = synchronized(this) {
        progress = Progress.DONE
        if (isRequested) native.resetCancellation()
    }
}

/**
 * Runs [block] on a background thread. If the coroutine is canceled, [cancel] is called immediately, and the coroutine
 * does not resume until the block finishes. A result that was computed by then goes to [undelivered], or, if that is
 * `null`, to the caller.
 */
internal suspend fun <T> runInBackground(cancel: () -> Unit, undelivered: ((T) -> Unit)?, block: () -> T): T {
    val ended = Job()
    var outcome: Result<T>? = null
    try {
        return suspendCancellableCoroutine { continuation ->
            continuation.invokeOnCancellation { cancel() }
            BackgroundThreads.execute {
                val result = runCatching(block)
                outcome = result
                ended.complete()
                continuation.resumeWith(result)
            }
        }
    } catch (canceled: CancellationException) {
        withContext(NonCancellable) { ended.join() }
        outcome?.onSuccess { result ->
            if (undelivered == null) return result
            undelivered(result)
        }
        throw canceled
    }
}

/** Threads that block in native calls: one per concurrent call, none when idle. */
private object BackgroundThreads : Executor {
    private const val STACK_BYTES = 2L shl 20
    private val count = AtomicInteger()
    private val pool = ThreadPoolExecutor(0, Int.MAX_VALUE, 5, TimeUnit.SECONDS, SynchronousQueue()) { task ->
        Thread(null, task, "siskin-${count.incrementAndGet()}", STACK_BYTES).apply { isDaemon = true }
    }

    override fun execute(task: Runnable) = pool.execute(task)
}

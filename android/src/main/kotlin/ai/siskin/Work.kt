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
 * A handle with long-running calls: a session, an encoder, a writer or a transcriber. Its suspending functions run on
 * threads of the library, one after the other, from any caller. Canceling the waiting coroutine stops the call within
 * milliseconds, waits until it has ended, and leaves the handle in the state before the call.
 */
public sealed class WorkingHandle(owner: Owner) : Handle(owner) {
    private val turn = Mutex()

    /** The number of stops so far. */
    internal val stops = MutableStateFlow(0)

    @Volatile
    private var running: Call? = null

    /**
     * Stops the running call within milliseconds: it throws [SiskinException.Cancelled] and can be made again. Between
     * two pieces of an answer, the next piece is stopped, unless a new answer is begun. Prompts and answers of a
     * session that wait for their turn, or for a suspended session, are stopped as well. Otherwise, without a running
     * call, this has no effect. To stop from the coroutine's side, cancel it.
     */
    public fun stop() {
        // Counted first: a call that begins concurrently is either not stopped, or observes the new count.
        val number = stops.updateAndGet { it + 1 }
        running?.stop(number)
    }

    /** Called within the turn after a call was cancelled by a stop that came after the first [since] ones. */
    internal open fun stopsEnded(since: Int) {}

    /** Repeats a pending stop after the library cleared all stops. */
    internal fun stopAgain() {
        running?.stopAgain()
        if (owner.isClosed) owner.stop()
    }

    /**
     * Runs [block] when it is its turn. A result that was computed before a cancellation goes to [lost], or, if that is
     * `null`, to the caller, whose next suspending call throws the cancellation.
     */
    internal suspend fun <T> work(lost: ((T) -> Unit)? = null, block: (Long) -> T): T = turn.withLock {
        val call = Call(owner, stops.value)
        running = call
        try {
            aside(call::cancel, lost) { call.run(block) }
        } finally {
            if (call.isCancelled && stops.value != call.since) stopsEnded(call.since)
            running = null
        }
    }

    /** The same for calls that are too short to need a thread. */
    internal suspend fun <T> briefly(block: (Long) -> T): T = turn.withLock { owner.lend(block) }
}

/**
 * One call, which may be stopped before it begins, while it runs, and without effect afterwards. The first [since]
 * stops came before it.
 */
internal class Call(private val owner: Owner, val since: Int) {
    private enum class State { WAITING, RUNNING, DONE }

    private var state = State.WAITING
    private var stopped = false

    /** Whether it ended with [SiskinException.Cancelled]. */
    var isCancelled = false
        private set

    /** Applies a stop by its number, unless that came before the call. */
    fun stop(number: Int) {
        if (number > since) cancel()
    }

    /** Cancels the call; no effect after its end. */
    fun cancel(): Unit = synchronized(this) {
        if (state == State.DONE || stopped) return
        stopped = true
        if (state == State.RUNNING) owner.stop()
    }

    fun stopAgain(): Unit = synchronized(this) {
        if (stopped && state == State.RUNNING) owner.stop()
    }

    fun <T> run(block: (Long) -> T): T = try {
        owner.lend { pointer ->
            begin()
            try {
                block(pointer)
            } catch (error: SiskinException) {
                throw why(error)
            } finally {
                end()
            }
        }
    } catch (error: SiskinException.Cancelled) {
        isCancelled = true
        throw error
    }

    private fun begin(): Unit = synchronized(this) {
        if (stopped) throw stoppedEarly()
        state = State.RUNNING
    }

    /** Maps a native error to the one that the caller gets. A call that was stopped does not report a suspension. */
    private fun why(error: SiskinException): SiskinException {
        if (error !is SiskinException.Cancelled && error !is SiskinException.Suspended) return error
        if (owner.isClosed) return SiskinException.Closed(owner.name)
        if (!synchronized(this) { stopped }) return error
        return (error as? SiskinException.Cancelled)?.apply { isFinal = true } ?: stoppedEarly()
    }

    private fun stoppedEarly() =
        SiskinException.Cancelled(owner.name, "was stopped before it began; call it again", isFinal = true)

    /** A stop that came too late must not stop the next call. */
    private fun end(): Unit = synchronized(this) {
        state = State.DONE
        if (stopped) owner.withdraw()
    }
}

/**
 * Runs [block] on a thread of the library. If the coroutine is cancelled, [cancel] is called immediately, and the
 * coroutine resumes when the block has ended; the result of the block goes to [lost], or, if that is `null`, to the
 * caller.
 */
internal suspend fun <T> aside(cancel: () -> Unit, lost: ((T) -> Unit)?, block: () -> T): T {
    val ended = Job()
    var outcome: Result<T>? = null
    try {
        return suspendCancellableCoroutine { continuation ->
            continuation.invokeOnCancellation { cancel() }
            Threads.execute {
                val result = runCatching(block)
                outcome = result
                ended.complete()
                continuation.resumeWith(result)
            }
        }
    } catch (cancelled: CancellationException) {
        withContext(NonCancellable) { ended.join() }
        outcome?.onSuccess { given ->
            if (lost == null) return given
            lost(given)
        }
        throw cancelled
    }
}

/** Threads that block in native calls: as many as there are concurrent calls, none when idle. */
private object Threads : Executor {
    private const val STACK = 2L shl 20
    private val count = AtomicInteger()
    private val pool = ThreadPoolExecutor(0, Int.MAX_VALUE, 5, TimeUnit.SECONDS, SynchronousQueue()) { task ->
        Thread(null, task, "siskin-${count.incrementAndGet()}", STACK).apply { isDaemon = true }
    }

    override fun execute(task: Runnable) = pool.execute(task)
}

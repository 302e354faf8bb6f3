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
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * A handle that works for long: a session, an encoder, a writer or a transcriber. Its suspending functions run on
 * threads of the library's own, one after the other, whoever calls them. Cancelling the coroutine that waits for one
 * stops the work within milliseconds, waits for its end, and leaves the handle as it was before the call.
 */
public sealed class WorkingHandle(owner: Owner) : Handle(owner) {
    private val turn = Mutex()

    @Volatile
    private var running: Call? = null

    /**
     * Stops the running call within milliseconds: it throws [SiskinException.Cancelled] and can be made again. Where
     * none is running, nothing happens. To stop from the coroutine's side, cancel it.
     */
    public fun stop() {
        running?.stop()
    }

    /** Runs [block] when it is its turn. What it gave and nobody got, because of a cancellation, goes to [lost]. */
    internal suspend fun <T> work(lost: (T) -> Unit = {}, block: (Long) -> T): T = turn.withLock {
        val call = Call(owner)
        running = call
        try {
            aside(call::stop, lost) { call.run(block) }
        } finally {
            running = null
        }
    }

    /** The same for what takes no time worth a thread. */
    internal suspend fun <T> briefly(block: (Long) -> T): T = turn.withLock { owner.lend(block) }
}

/** One call, which may be stopped before it begins, while it runs, and in vain afterwards. */
internal class Call(private val owner: Owner) {
    private enum class State { WAITING, RUNNING, DONE }

    private var state = State.WAITING
    private var stopped = false

    fun stop(): Unit = synchronized(this) {
        if (state == State.DONE || stopped) return
        stopped = true
        if (state == State.RUNNING) owner.stop()
    }

    fun <T> run(block: (Long) -> T): T = owner.lend { pointer ->
        begin()
        try {
            block(pointer)
        } catch (cancelled: SiskinException.Cancelled) {
            throw if (owner.isClosed) SiskinException.Closed(owner.name) else cancelled
        } finally {
            end()
        }
    }

    private fun begin(): Unit = synchronized(this) {
        if (stopped) throw SiskinException.Cancelled(owner.name, "was stopped before it began; call it again")
        state = State.RUNNING
    }

    /** A stop that came too late must not stop the next call. */
    private fun end(): Unit = synchronized(this) {
        state = State.DONE
        if (stopped) owner.withdraw()
    }
}

/**
 * Runs [block] on a thread of the library's. Where the coroutine is cancelled, [cancel] is called at once, and the
 * coroutine goes on when the block has ended; what that gave goes to [lost].
 */
internal suspend fun <T> aside(cancel: () -> Unit, lost: (T) -> Unit, block: () -> T): T {
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
        outcome?.onSuccess(lost)
        throw cancelled
    }
}

/** Threads that wait inside the library: as many as there are calls at the same time, and none when there are none. */
private object Threads : Executor {
    private const val STACK = 2L shl 20
    private val count = AtomicInteger()
    private val pool = ThreadPoolExecutor(0, Int.MAX_VALUE, 5, TimeUnit.SECONDS, SynchronousQueue()) { task ->
        Thread(null, task, "siskin-${count.incrementAndGet()}", STACK).apply { isDaemon = true }
    }

    override fun execute(task: Runnable) = pool.execute(task)
}

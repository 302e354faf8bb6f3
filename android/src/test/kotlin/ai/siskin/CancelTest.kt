// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.util.concurrent.CopyOnWriteArrayList
import kotlin.coroutines.cancellation.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.isActive
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.yield
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class CancelTest {
    /** Runs [body] at least [times] times, and on until [isEnough]: how often threads meet depends on the machine. */
    private inline fun repeatUntil(times: Int, isEnough: () -> Boolean, body: (Int) -> Unit) {
        var rounds = 0
        while (rounds < times || !isEnough() && rounds < 100 * times) {
            body(rounds)
            rounds++
        }
    }

    /** Cancels [call] after delays that grow by [step] ms, and checks the median time that cancellation takes. */
    private suspend fun measure(
        rounds: Int,
        name: String,
        step: Long,
        call: suspend () -> Unit,
        check: suspend () -> Unit,
    ) {
        val times = List(rounds) { round ->
            coroutineScope {
                val job = launch { call() }
                delay(30L + step * round)
                assertTrue("$name ended before it was canceled", job.isActive)
                val start = System.nanoTime()
                job.cancelAndJoin()
                check()
                (System.nanoTime() - start) / 1e6
            }
        }.sorted()
        val median = times[rounds / 2]
        println("cancel: $name: median of $rounds %.1f ms, maximum %.1f ms".format(median, times.last()))
        // Other processes can delay single measurements, so the median is checked.
        assertFast(median)
    }

    @Test
    fun `canceling a coroutine takes milliseconds`() = runTest {
        assumeNotNull(resource("siskin.smollm2"))
        Model.open(resource("siskin.smollm2")!!.path).use { model ->
            model.session { context = 4096 + 64; sampler = Sampler.greedy() }.use { session ->
                val ids = IntArray(4096) { 1000 + it * 7919 % 20000 }
                measure(16, "a prompt of 4096 tokens", 17, { session.promptTokens(ids) }) {
                    assertEquals(0, session.stats().position)
                }
                // Not so long that a fast machine finishes the answer.
                measure(16, "an answer", 4, { session.chat("Tell me a long story.").toList(); error("ended") }) {
                    session.reset()
                }
                session.setMaxTokens(8)
                assertTrue(session.chat("Why is the sky blue?").toList().joinToString("").length > 10)
            }
        }
    }

    @Test
    fun `a canceled coroutine throws CancellationException`() = runTest {
        withModel("chat") { model ->
            model.greedySession(null).use { session ->
                var thrown: Throwable? = null
                val job = launch(Dispatchers.IO) {
                    try {
                        while (true) {
                            session.reset()
                            session.complete("abc").collect()
                        }
                    } catch (error: Throwable) {
                        thrown = error
                        throw error
                    }
                }
                delay(20)
                job.cancelAndJoin()
                assertTrue("$thrown", thrown is CancellationException && job.isCancelled)
            }
        }
    }

    @Test
    fun `a canceled next loses no token`() = runTest {
        withModel("chat") { model ->
            model.greedySession(96).use { session ->
                val expected = session.apply { promptRaw("abc") }.generateChunks().toList().mapNotNull { it.token }
                var canceled = 0
                repeatUntil(40, { canceled > 5 }) {
                    session.reset()
                    session.promptRaw("abc")
                    val tokens = CopyOnWriteArrayList<Int>()
                    do {
                        val job = launch(Dispatchers.IO) {
                            while (true) tokens += (session.next() ?: break).token ?: continue
                        }
                        val target = tokens.size + (1..9).random()
                        while (tokens.size < target && job.isActive) Thread.onSpinWait()
                        canceled += if (job.isActive) 1 else 0
                        job.cancelAndJoin()
                    } while (session.finishReason == null)
                    assertEquals(expected, tokens)
                }
                println("cancel: $canceled cancellations in forty answers of ${expected.size} tokens")
                assertTrue(canceled > 5)
            }
        }
    }

    @Test
    fun `a canceled collector loses no token`() = runTest {
        withModel("chat") { model ->
            model.greedySession(96).use { session ->
                val expected = session.apply { promptRaw("abc") }.generateChunks().toList().mapNotNull { it.token }
                val expectedText = session.run { reset(); complete("abc").toList() }.joinToString("")
                var canceled = 0
                repeatUntil(60, { canceled > 5 }) { round ->
                    session.reset()
                    val tokens = CopyOnWriteArrayList<Int>()
                    val texts = CopyOnWriteArrayList<String>()
                    session.promptRaw("abc")
                    do {
                        val job = launch(Dispatchers.IO) {
                            if (round % 2 == 0) session.generateChunks().collect { it.token?.let(tokens::add) }
                            else session.generateText().collect { texts += it }
                        }
                        val target = tokens.size + texts.size + (1..5).random()
                        while (tokens.size + texts.size < target && job.isActive) Thread.onSpinWait()
                        repeat((0..200).random()) { Thread.onSpinWait() }
                        canceled += if (job.isActive) 1 else 0
                        job.cancelAndJoin()
                    } while (session.finishReason == null)
                    if (round % 2 == 0) assertEquals(expected, tokens) else assertEquals(expectedText, texts.joinToString(""))
                }
                println("cancel: $canceled cancellations of the flows of sixty answers")
                assertTrue(canceled > 5)
            }
        }
    }

    @Test
    fun `a result that was computed before the cancellation is delivered`() = runTest {
        withModel("chat") { model ->
            model.greedySession(4).use { session ->
                var result: Int? = null
                val job = launch(Dispatchers.IO) {
                    result = session.call { pointer -> hold(session, pointer).let { 7 } }
                    yield()
                    result = null
                }
                delay(30)
                job.cancelAndJoin()
                assertEquals(7, result)
            }
        }
    }

    @Test
    fun `a canceled answer completes its flow and can be continued`() = runTest {
        withModel("chat") { model ->
            model.greedySession(12).use { session ->
                val expected = session.apply { promptRaw("abc") }.generateChunks().toList().map { it.token }
                assertEquals(FinishReason.LENGTH, session.finishReason)
                session.cancel()
                assertEquals(FinishReason.LENGTH, session.finishReason)
                session.reset()
                session.promptRaw("abc")
                val tokens = mutableListOf<Int?>()
                session.generateChunks().collect {
                    tokens += it.token
                    if (tokens.size == 3) session.cancel()
                }
                assertEquals(3, tokens.size)
                assertEquals(FinishReason.CANCELED, session.finishReason)
                session.cancel()
                session.cancel()
                assertNull(session.next())
                tokens += session.next()!!.token
                assertNull(session.finishReason)
                session.generateChunks().collect { tokens += it.token }
                assertEquals(expected, tokens)
                assertEquals(FinishReason.LENGTH, session.finishReason)
            }
        }
    }

    @Test
    fun `canceling during a token loses none`() = runTest {
        withModel("chat") { model ->
            model.greedySession(96).use { session ->
                val expected = session.complete("abc").toList().joinToString("")
                var canceled = 0
                repeatUntil(40, { canceled > 5 }) {
                    session.reset()
                    session.promptRaw("abc")
                    val text = StringBuffer()
                    do {
                        val flow = async(Dispatchers.IO) { session.generateText().collect { text.append(it) } }
                        val target = text.length + (1..9).random()
                        while (text.length < target && flow.isActive) Thread.onSpinWait()
                        repeat((0..20_000).random()) { Thread.onSpinWait() }
                        session.cancel()
                        flow.await()
                        if (session.finishReason == FinishReason.CANCELED) canceled++
                    } while (session.finishReason == FinishReason.CANCELED)
                    assertEquals(expected, "$text")
                }
                println("cancel: $canceled of the flows of forty answers completed early")
                assertTrue(canceled > 5)
            }
        }
    }

    @Test
    fun `a canceled prompt completes its flow without text`() = runTest {
        withModel("chat") { model ->
            model.greedySession(4).use { session ->
                val expected = session.complete("abc").toList()
                session.reset()
                // Both prompts wait for their turn while another call runs.
                val running = launch(Dispatchers.IO, CoroutineStart.UNDISPATCHED) { session.call { hold(session, it) } }
                delay(30)
                val flow = async(start = CoroutineStart.UNDISPATCHED) { session.complete("abc").toList() }
                val prompt = async(start = CoroutineStart.UNDISPATCHED) { runCatching { session.promptRaw("abc") } }
                session.cancel()
                assertEquals(emptyList<String>(), flow.await())
                assertTrue("$prompt", prompt.await().exceptionOrNull() is SiskinException.Canceled)
                assertEquals(FinishReason.CANCELED, session.finishReason)
                assertEquals(0, session.stats().position)
                running.join()
                assertEquals(expected, session.complete("abc").toList())
            }
        }
    }

    @Test
    fun `a cancellation belongs to the current answer`() = runTest {
        withModel("chat") { model ->
            model.greedySession(12).use { session ->
                session.promptRaw("abc")
                val first = session.next()!!.token
                session.reset()
                session.promptRaw("abc")
                session.cancel()
                session.reset()
                session.promptRaw("abc")
                assertEquals(first, session.next()!!.token)
            }
        }
    }

    @Test
    fun `a late cancellation does not affect later calls`() = runTest {
        withModel("chat") { model ->
            model.greedySession(1).use { session ->
                repeat(300) {
                    session.reset()
                    val job = launch(Dispatchers.IO) { runCatching { session.promptRaw("abcdefgh") } }
                    if (it % 3 == 0) yield()
                    session.cancel()
                    job.cancelAndJoin()
                    session.cancel()
                    session.reset()
                    session.promptRaw("ab")
                    assertTrue(session.next() != null)
                }
            }
        }
    }

    @Test
    fun `cancel ends the call but not the coroutine`() = runTest {
        withModel("chat") { model ->
            model.session().use { session ->
                // A call that cannot be interrupted returns its result.
                val running = async(Dispatchers.IO) { runCatching { session.call { hold(session, it) } } }
                delay(30)
                session.cancel()
                val next = runCatching { session.promptRaw("abc") }
                assertTrue("${running.await()}", running.await().isSuccess && next.isSuccess)
            }
            model.session().use { session ->
                val outcome = async(Dispatchers.IO) {
                    repeat(20) {
                        session.reset()
                        session.promptRaw("abc")
                        session.generateChunks().collect { session.cancel() }
                        assertEquals(FinishReason.CANCELED, session.finishReason)
                    }
                    coroutineContext.isActive
                }
                assertTrue(outcome.await())
            }
        }
    }

    private fun hold(session: Session, pointer: Long) {
        check(!session.isClosed)
        NativeTesting.hold(pointer, 80)
    }

    @Test
    fun `calls of many coroutines run one at a time`() = runTest {
        withModel("chat") { model ->
            model.greedySession(4).use { session ->
                List(16) {
                    launch(Dispatchers.Default) {
                        session.reset()
                        session.stats()
                        session.save()
                    }
                }.joinAll()
                // A call that waits for its turn can be canceled.
                val first = launch(Dispatchers.IO, CoroutineStart.UNDISPATCHED) { session.call { hold(session, it) } }
                val second = launch(start = CoroutineStart.UNDISPATCHED) { session.reset() }
                val start = System.nanoTime()
                second.cancelAndJoin()
                assertTrue((System.nanoTime() - start) / 1e6 < 60)
                first.join()
            }
        }
    }
}

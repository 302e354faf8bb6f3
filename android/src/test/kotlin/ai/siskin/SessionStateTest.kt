// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineStart.UNDISPATCHED
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeout
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class SessionStateTest {
    @Test
    fun `a restored session continues like the saved one`() = runTest {
        withModel("chat") { model ->
            model.greedySession(6).use { first ->
                first.complete("A long story").toList()
                val bytes = first.save()
                val file = File.createTempFile("session", ".saved")
                first.save(file.path)
                val expected = first.complete(" and").toList()
                model.greedySession(6).use { second ->
                    second.restore(bytes)
                    assertEquals(expected, second.complete(" and").toList())
                }
                model.greedySession(6).use { third ->
                    third.restore(file.path)
                    assertEquals(expected, third.complete(" and").toList())
                    assertThrows<SiskinException.Io> { third.restore("/nowhere/at/all") }
                }
                file.delete()
            }
        }
    }

    @Test
    fun `sessions can be rewound and trimmed`() = runTest {
        withModel("chat") { model ->
            model.greedySession(4).use { session ->
                session.promptRaw("abcdef")
                session.next()
                session.rewind(3)
                assertEquals(3, session.stats().position)
                assertThrows<SiskinException.State> { session.next() }
                assertEquals(256, session.logits().size)
                session.trimMemory(TrimLevel.UNUSED)
                assertEquals(3, session.stats().position)
                session.trimMemory(TrimLevel.ALL)
                assertEquals(0, session.stats().position)
            }
        }
    }

    @Test
    fun `a paused answer continues after resume`() = runTest {
        withModel("chat") { model ->
            model.greedySession(40).use { session ->
                val all = session.complete("go on").toList()
                session.reset()
                session.promptRaw("go on")
                val seen = mutableListOf<String>()
                val answer = async(Dispatchers.IO) {
                    session.generateText().onEach { seen += it; if (seen.size == 3) session.pause() }.toList()
                }
                while (seen.size < 3) delay(1)
                delay(50)
                assertFalse(answer.isCompleted)
                assertEquals(3, seen.size)
                assertThrows<SiskinException.Paused> { session.promptRaw("x") }
                session.resume()
                assertEquals(all, answer.await())
            }
        }
    }

    @Test
    fun `a paused answer ends when its job is canceled or its session is closed`() = runTest {
        withModel("chat") { model ->
            val session = model.greedySession(40)
            session.promptRaw("go on")
            session.pause()
            val canceled = launch(Dispatchers.IO) { session.generateText().collect() }
            val closed = async(Dispatchers.IO) { runCatching { session.generateText().collect() } }
            val prompt = async(Dispatchers.IO) { runCatching { session.prompt("hello") } }
            delay(50)
            assertTrue(canceled.isActive && closed.isActive && prompt.isActive)
            withTimeout(5000) { canceled.cancelAndJoin() }
            session.close()
            for (call in listOf(closed, prompt)) {
                val error = withTimeout(5000) { call.await().exceptionOrNull() }
                assertTrue("$error", error is SiskinException.Closed)
            }
            assertThrows<SiskinException.Closed> { session.pause() }
            assertThrows<SiskinException.Closed> { session.next() }
        }
    }

    @Test
    fun `cancel ends calls that wait for resume`() = runTest {
        withModel("chat") { model ->
            val session = model.greedySession(40)
            val all = session.complete("go on").toList()
            session.reset()
            session.promptRaw("go on")
            session.pause()
            repeat(2) {
                // Both begin immediately, and wait.
                val answer = async(start = UNDISPATCHED) { runCatching { session.generateText().collect() } }
                val prompt = async(start = UNDISPATCHED) { runCatching { session.prompt("hello") } }
                delay(50)
                assertTrue(answer.isActive && prompt.isActive)
                session.cancel()
                val outcome = withTimeout(5000) { answer.await() }
                assertTrue("$outcome", outcome.isSuccess)
                val error = withTimeout(5000) { prompt.await().exceptionOrNull() }
                assertTrue("$error", error is SiskinException.Canceled)
                assertEquals(FinishReason.CANCELED, session.finishReason)
            }
            session.resume()
            assertEquals(all, session.generateText().toList())
            session.close()
        }
    }

    @Test
    fun `cancel ends a waiting prompt and the answer before its next token`() = runTest {
        withModel("chat") { model ->
            model.greedySession(40).use { session ->
                val all = session.complete("go on").toList()
                session.reset()
                session.promptRaw("go on")
                session.pause()
                val prompt = async(start = UNDISPATCHED) { runCatching { session.prompt("hello") } }
                // Runs after the prompt was rejected.
                session.stats()
                session.cancel()
                assertTrue(withTimeout(5000) { prompt.await().exceptionOrNull() } is SiskinException.Canceled)
                session.resume()
                assertNull(session.next())
                assertEquals(FinishReason.CANCELED, session.finishReason)
                assertEquals(all, session.generateText().toList())
            }
        }
    }

    @Test
    fun `a cancellation is not mistaken for a pause`() = runTest {
        withModel("chat") { model ->
            var canceled = 0
            repeat(40) { round ->
                model.session().use { session ->
                    val begun = CompletableDeferred<Unit>()
                    val repeats = round % 2 == 0
                    val answer = async(Dispatchers.IO) {
                        runCatching {
                            do {
                                session.reset()
                                session.promptRaw("go on")
                                session.generateChunks().collect { begun.complete(Unit) }
                            } while (repeats && session.finishReason != FinishReason.CANCELED)
                            session.finishReason
                        }
                    }
                    begun.await()
                    repeat(round * 200) { Thread.onSpinWait() }
                    do {
                        session.cancel()
                        session.pause()
                        if (repeats) session.resume()
                        delay(5)
                    } while (repeats && answer.isActive)
                    // A paused answer would wait for ever.
                    val outcome = withTimeout(5000) { answer.await() }
                    val isCancelled = outcome.getOrNull() == FinishReason.CANCELED ||
                        outcome.exceptionOrNull() is SiskinException.Canceled
                    if (isCancelled) canceled++
                    // Otherwise the only answer had ended before.
                    else assertTrue("$outcome", outcome.isSuccess && !repeats)
                }
            }
            assertTrue("$canceled", canceled > 20)
        }
    }

    @Test
    fun `a paused prompt is added once`() = runTest {
        assumeNotNull(resource("siskin.smollm2"))
        val text = "The sky is blue, and the sea is too. ".repeat(80)
        Model.open(resource("siskin.smollm2")!!.path).use { model ->
            model.session { context = 2048; maxTokens = 8; sampler = Sampler.greedy() }.use { session ->
                for (flow in listOf(session.chat(text), session.complete(text), session.chat(listOf(Message("user", text))))) {
                    session.reset()
                    val expected = flow.toList()
                    val position = session.stats().position
                    session.reset()
                    val answer = async(Dispatchers.IO) { flow.toList() }
                    var times = 0
                    while (times < 3) {
                        delay(20)
                        if (answer.isCompleted) break
                        session.pause()
                        delay(20)
                        session.resume()
                        times++
                    }
                    assertEquals(expected, answer.await())
                    assertEquals(position, session.stats().position)
                    println("pause: $times times during a prompt of $position tokens")
                    assertTrue(times > 0)
                }
            }
        }
    }

    @Test
    fun `memory plans are exact and budgets are enforced`() = runTest {
        withModel("chat") { model ->
            val options = SessionOptions().apply { context = 128; maxBatchTokens = 32; kvCacheType = KvCacheType.F16 }
            val plan = model.sessionMemory(options)
            assertTrue(plan.activations > 0 && plan.kvCache > 0 && plan.mappedFile > 0)
            val wider = model.sessionMemory { context = 128; maxBatchTokens = 32; kvCacheType = KvCacheType.F32 }
            assertTrue(wider.kvCache > plan.kvCache)
            val shorter = model.sessionMemory { context = 64; maxBatchTokens = 32; kvCacheType = KvCacheType.F16 }
            assertTrue(shorter.kvCache < plan.kvCache)
            options.memoryBudget = plan.activations + plan.kvCache - 1
            assertThrows<SiskinException.Memory> { model.session(options) }
            options.memoryBudget = plan.activations + plan.kvCache
            model.session(options).use { assertEquals(plan, it.memoryUsage()) }
        }
    }

    @Test
    fun `stop strings and token limits end answers`() = runTest {
        withModel("chat") { model ->
            val (texts, count) = model.greedySession(12).use { session ->
                session.complete("some text").toList() to session.stats().generatedTokens
            }
            assertEquals(12, count)
            val stop = texts.joinToString("").takeLast(3)
            model.session { sampler = Sampler.greedy(); stopStrings = listOf(stop) }.use { session ->
                session.promptRaw("some text")
                val chunks = session.generateChunks().toList()
                assertEquals(FinishReason.STOP, session.finishReason)
                assertTrue(chunks.size <= 13 && stop !in chunks.joinToString("") { it.text })
            }
        }
    }
}

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
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class StateTest {
    @Test
    fun `what was saved goes on`() = test {
        with("chat") { model ->
            model.greedy(6).use { first ->
                first.complete("A long story").toList()
                val bytes = first.save()
                val file = File.createTempFile("session", ".saved")
                first.save(file.path)
                val whole = first.complete(" and").toList()
                model.greedy(6).use { second ->
                    second.restore(bytes)
                    assertEquals(whole, second.complete(" and").toList())
                }
                model.greedy(6).use { third ->
                    third.restore(file.path)
                    assertEquals(whole, third.complete(" and").toList())
                    fails<SiskinException.Io> { third.restore("/nowhere/at/all") }
                }
                file.delete()
            }
        }
    }

    @Test
    fun `sessions go back and give memory back`() = test {
        with("chat") { model ->
            model.greedy(4).use { session ->
                session.promptRaw("abcdef")
                session.next()
                session.rewind(3)
                assertEquals(3, session.stats().position)
                fails<SiskinException.State> { session.next() }
                assertEquals(256, session.logits().size)
                session.trim(Trim.UNUSED)
                assertEquals(3, session.stats().position)
                session.trim(Trim.ALL)
                assertEquals(0, session.stats().position)
            }
        }
    }

    @Test
    fun `a suspended answer waits and goes on`() = test {
        with("chat") { model ->
            model.greedy(40).use { session ->
                val all = session.complete("go on").toList()
                session.forget()
                session.promptRaw("go on")
                val seen = mutableListOf<String>()
                val answer = async(Dispatchers.IO) {
                    session.texts().onEach { seen += it; if (seen.size == 3) session.suspend() }.toList()
                }
                while (seen.size < 3) delay(1)
                delay(50)
                assertFalse(answer.isCompleted)
                assertEquals(3, seen.size)
                fails<SiskinException.Suspended> { session.promptRaw("x") }
                session.resume()
                assertEquals(all, answer.await())
            }
        }
    }

    @Test
    fun `a suspended answer ends with its job and with its session`() = test {
        with("chat") { model ->
            val session = model.greedy(40)
            session.promptRaw("go on")
            session.suspend()
            val cancelled = launch(Dispatchers.IO) { session.texts().collect() }
            val closed = async(Dispatchers.IO) { runCatching { session.texts().collect() } }
            val prompt = async(Dispatchers.IO) { runCatching { session.prompt("hello") } }
            delay(50)
            assertTrue(cancelled.isActive && closed.isActive && prompt.isActive)
            withTimeout(5000) { cancelled.cancelAndJoin() }
            session.close()
            for (call in listOf(closed, prompt)) {
                val error = withTimeout(5000) { call.await().exceptionOrNull() }
                assertTrue("$error", error is SiskinException.Closed)
            }
            fails<SiskinException.Closed> { session.suspend() }
            fails<SiskinException.Closed> { session.next() }
        }
    }

    @Test
    fun `a stop ends what waits for a resume`() = test {
        with("chat") { model ->
            val session = model.greedy(40)
            val all = session.complete("go on").toList()
            session.forget()
            session.promptRaw("go on")
            session.suspend()
            repeat(2) {
                // Both begin immediately, and wait.
                val answer = async(start = UNDISPATCHED) { runCatching { session.texts().collect() } }
                val prompt = async(start = UNDISPATCHED) { runCatching { session.prompt("hello") } }
                delay(50)
                assertTrue(answer.isActive && prompt.isActive)
                session.stop()
                for (call in listOf(answer, prompt)) {
                    val error = withTimeout(5000) { call.await().exceptionOrNull() }
                    assertTrue("$error", error is SiskinException.Cancelled)
                }
            }
            session.resume()
            assertEquals(all, session.texts().toList())
            session.close()
        }
    }

    @Test
    fun `a stop ends the next piece beside a prompt that waits`() = test {
        with("chat") { model ->
            model.greedy(40).use { session ->
                val all = session.complete("go on").toList()
                session.forget()
                session.promptRaw("go on")
                session.suspend()
                val prompt = async(start = UNDISPATCHED) { runCatching { session.prompt("hello") } }
                // Gets its turn when the prompt was rejected.
                session.stats()
                session.stop()
                assertTrue(withTimeout(5000) { prompt.await().exceptionOrNull() } is SiskinException.Cancelled)
                session.resume()
                fails<SiskinException.Cancelled> { session.next() }
                assertEquals(all, session.texts().toList())
            }
        }
    }

    @Test
    fun `a stop is not taken for a suspension`() = test {
        with("chat") { model ->
            var stops = 0
            repeat(40) { round ->
                model.session { maxTokens = 0 }.use { session ->
                    val begun = CompletableDeferred<Unit>()
                    val goesOn = round % 2 == 0
                    val answer = async(Dispatchers.IO) {
                        runCatching {
                            do {
                                session.forget()
                                session.promptRaw("go on")
                                session.pieces().collect { begun.complete(Unit) }
                            } while (goesOn)
                        }
                    }
                    begun.await()
                    repeat(round * 200) { Thread.onSpinWait() }
                    do {
                        session.stop()
                        session.suspend()
                        if (goesOn) session.resume()
                        delay(5)
                    } while (goesOn && answer.isActive)
                    val error = withTimeout(5000) { answer.await().exceptionOrNull() }
                    if (error is SiskinException.Cancelled) stops++
                    // Without a stop, the only answer had ended before.
                    else assertTrue("$error", error == null && !goesOn)
                }
            }
            assertTrue("$stops", stops > 20)
        }
    }

    @Test
    fun `a suspended prompt is said once`() = test {
        assumeNotNull(given("siskin.chat"))
        val text = "The sky is blue, and the sea is too. ".repeat(80)
        Model.open(given("siskin.chat")!!.path).use { model ->
            model.session { context = 2048; maxTokens = 8; sampler = Sampler.greedy() }.use { session ->
                for (flow in listOf(session.chat(text), session.complete(text), session.chat(listOf(Message("user", text))))) {
                    session.forget()
                    val expected = flow.toList()
                    val position = session.stats().position
                    session.forget()
                    val answer = async(Dispatchers.IO) { flow.toList() }
                    var times = 0
                    while (times < 3) {
                        delay(20)
                        if (answer.isCompleted) break
                        session.suspend()
                        delay(20)
                        session.resume()
                        times++
                    }
                    assertEquals(expected, answer.await())
                    assertEquals(position, session.stats().position)
                    println("suspend: $times times beside a prompt of $position tokens")
                    assertTrue(times > 0)
                }
            }
        }
    }

    @Test
    fun `plans hold, and budgets refuse`() = test {
        with("chat") { model ->
            val options = SessionOptions().apply { context = 128; batch = 32; cacheType = CacheType.F16 }
            val plan = model.plan(options)
            assertTrue(plan.activations > 0 && plan.cache > 0 && plan.mapped > 0)
            assertTrue(model.plan { context = 128; batch = 32; cacheType = CacheType.F32 }.cache > plan.cache)
            assertTrue(model.plan { context = 64; batch = 32; cacheType = CacheType.F16 }.cache < plan.cache)
            options.budget = plan.activations + plan.cache - 1
            fails<SiskinException.Memory> { model.session(options) }
            options.budget++
            model.session(options).use { assertEquals("$plan", "${it.memory()}") }
        }
    }

    @Test
    fun `stops and lengths end answers`() = test {
        with("chat") { model ->
            val (texts, most) = model.greedy(12).use { session ->
                session.complete("some text").toList() to session.stats().tokens
            }
            assertEquals(12, most)
            val stop = texts.joinToString("").takeLast(3)
            model.session { sampler = Sampler.greedy(); stops = listOf(stop) }.use { session ->
                session.promptRaw("some text")
                val pieces = session.pieces().toList()
                assertEquals(Ended.STOP, session.ended)
                assertTrue(pieces.size <= 13 && stop !in pieces.joinToString("") { it.text })
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.toList
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
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

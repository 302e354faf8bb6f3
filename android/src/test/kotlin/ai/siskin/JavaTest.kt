// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.util.concurrent.atomic.AtomicReference
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

/** The blocking API, which Java code calls. */
class JavaTest {
    @Test
    fun `a blocking chat returns the answer and reports its chunks`() = runTest {
        val expected = withModel("chat") { it.greedySession(200).use { session -> session.chat("hello").toList() } }
        val texts = mutableListOf<String>()
        val answer = JavaClient.chat(smallModel("chat"), "hello") { chunk -> texts += chunk.text }
        assertEquals(expected.joinToString(""), answer)
        assertEquals(expected, texts.filter { it.isNotEmpty() })
    }

    @Test
    fun `a listener can cancel the answer`() = runTest {
        withModel("chat") { model ->
            model.greedySession(24).use { session ->
                val expected = session.chat("hello").toList().joinToString("")
                session.reset()
                assertEquals(FinishReason.CANCELED, JavaClient.cancelAfter(session, 3))
                assertEquals(3, session.stats().generatedTokens - 24)
                val rest = session.generateBlocking()
                assertTrue(expected.endsWith(rest) && rest.length in 1 until expected.length)
                assertEquals(FinishReason.LENGTH, session.finishReason)
            }
        }
    }

    @Test
    fun `exceptions of a listener end the answer`() = runTest {
        withModel("chat") { model ->
            model.greedySession(24).use { session ->
                val error = assertThrows<IllegalStateException> {
                    session.completeBlocking("abc") { error("listener") }
                }
                assertEquals("listener", error.message)
                assertTrue(session.generateBlocking().isNotEmpty())
            }
        }
    }

    @Test
    fun `interrupting the thread cancels the call`() = runTest {
        withModel("chat") { model ->
            model.session().use { session ->
                val outcome = AtomicReference<Throwable>()
                val thread = Thread {
                    val endless = runCatching {
                        while (true) {
                            runBlocking { session.reset() }
                            session.completeBlocking("abc")
                        }
                    }
                    outcome.set(endless.exceptionOrNull())
                }
                thread.start()
                Thread.sleep(50)
                thread.interrupt()
                thread.join(5000)
                assertTrue("${outcome.get()}", outcome.get() is InterruptedException)
            }
        }
    }

    @Test
    fun `embeddings can be searched`() = runTest {
        withModel("vectors") { model ->
            model.encoderBlocking().use { encoder ->
                assertEquals(1, JavaClient.nearest(encoder, listOf("a", "the sky is blue"), "the sky is blue"))
            }
        }
    }
}

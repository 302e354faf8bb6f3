// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class ChatTest {
    @Test
    fun `an answer streams`() = test {
        with("chat") { model ->
            assertEquals("llama", model.info.family)
            assertEquals(256, model.info.vocabulary)
            assertEquals(setOf(Ability.WRITES, Ability.CHATS, Ability.TAKES_TEXT), model.info.abilities)
            model.greedy(24).use { session ->
                session.say("system", "Be brief.")
                val answer = session.chat("Why is the sky blue? \uD83D\uDE00").toList().joinToString("")
                val stats = session.stats()
                assertEquals(24, stats.tokens)
                assertTrue(stats.promptTokens > 0 && stats.position > 0)
                assertNull(session.next())
                session.forget()
                val messages = listOf(Message("system", "Be brief."), Message("user", "Why is the sky blue? \uD83D\uDE00"))
                assertEquals(answer, session.chat(messages).toList().joinToString(""))
            }
        }
    }

    @Test
    fun `numbers are those of PyTorch`() = test {
        val golden = Tensors(File(given("siskin.data"), "golden/llama/io.safetensors"))
        val ids = golden.longs("input_ids")
        val logits = golden.floats("logits")
        with("chat") { model ->
            for (row in 0..1) model.greedy(1).use { session ->
                session.promptTokens(IntArray(23) { ids[row * 23 + it].toInt() })
                val expected = logits.copyOfRange((row * 23 + 22) * 256, (row * 23 + 23) * 256)
                val largest = expected.maxOf { kotlin.math.abs(it) }
                assertArrayEquals(expected, session.logits(), largest * 1e-4f)
                assertEquals(expected.indices.maxBy { expected[it] }, session.next()!!.token)
            }
        }
    }

    @Test
    fun `characters come whole`() = test {
        // Tokens are bytes: sampling only these produces an emoji, a Chinese character or an accented letter every now
        // and then.
        val wanted = "\uD83D\uDE00日é".encodeToByteArray().map { it.toInt() and 0xff }.toSet()
        with("chat") { model ->
            val biases = (0..255).filter { it !in wanted }.associateWith { Float.NEGATIVE_INFINITY }
            var whole = 0
            for (start in 1L..40L) {
                val options = SessionOptions().apply {
                    sampler = Sampler().apply { this.biases = biases; seed = start; temperature = 3.0; topK = 0; topP = 1.0; minP = 0.0 }
                }
                model.session(options).use { session ->
                    session.promptRaw("x")
                    val pieces = session.pieces().toList()
                    val bytes = pieces.flatMap { it.bytes.asList() }.toByteArray()
                    val text = pieces.joinToString("") { it.text }
                    assertEquals(String(bytes, Charsets.UTF_8), text)
                    pieces.forEach { assertFalse(it.text, it.text.lonely()) }
                    whole += Regex("\uD83D\uDE00|日|é").findAll(text).count()
                }
            }
            println("characters: $whole came whole")
            assertTrue(whole > 20)
        }
    }

    @Test
    fun `emoji and CJK of a real model stream whole`() = test {
        assumeNotNull(given("siskin.chat"))
        Model.open(given("siskin.chat")!!.path).use { model ->
            model.greedy(48).use { session ->
                for (start in listOf("\uD83D\uDE00\uD83D\uDE02\uD83D\uDE00\uD83D\uDE02\uD83D\uDE00\uD83D\uDE02", "日本語、中国語、日本語、中国語、")) {
                    session.forget()
                    session.promptRaw(start)
                    val pieces = session.pieces().toList()
                    val text = pieces.joinToString("") { it.text }
                    println("$start goes on: ${text.take(40)}")
                    assertEquals(String(pieces.flatMap { it.bytes.asList() }.toByteArray()), text)
                    pieces.forEach { assertFalse(it.text, it.text.lonely() || '\uFFFD' in it.text) }
                    assertTrue(text.any { it.code > 0x2000 } && pieces.any { it.text.isEmpty() })
                }
            }
        }
    }

    @Test
    fun `who stops collecting stops the answer, which goes on`() = test {
        with("chat") { model ->
            model.greedy(24).use { session ->
                val all = session.complete("Once upon").toList().joinToString("")
                session.forget()
                val before = session.stats().tokens
                val first = session.complete("Once upon").take(2).toList()
                assertEquals(2, first.size)
                val tokens = session.stats().tokens - before
                assertTrue("$tokens", tokens in 2..12)
                assertEquals(all, first.joinToString("") + session.texts().toList().joinToString(""))
            }
        }
    }

    @Test
    fun `tokens and finish reasons are reported`() = test {
        with("chat") { model ->
            val session = model.session {
                sampler = Sampler().apply { seed = 7; topLogProbabilities = 5; biases = mapOf(0 to Float.NEGATIVE_INFINITY) }
                windowRecent = 40
                windowFirst = 4
                stops = listOf("\n\nUser:")
            }
            session.use {
                session.setMaxTokens(3)
                val pieces = session.apply { promptRaw("x") }.pieces().toList()
                for (piece in pieces.take(3)) {
                    assertTrue(piece.token != 0 && piece.bytes.size == 1 && piece.top.size == 5)
                    assertTrue(piece.logProbability!! <= 0 && piece.top[0].logProbability >= piece.top[4].logProbability)
                }
                assertEquals(3, pieces.count { it.token != null })
                assertEquals(Ended.LENGTH, session.ended)
            }
        }
    }
}

/** Whether the string contains an unpaired surrogate. */
private fun String.lonely(): Boolean = this != String(encodeToByteArray(), Charsets.UTF_8)

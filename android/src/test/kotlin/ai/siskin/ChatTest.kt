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
    fun `answers are streamed and conversations can be repeated`() = runTest {
        withModel("chat") { model ->
            assertEquals("llama", model.info.family)
            assertEquals(256, model.info.vocabularySize)
            assertEquals(setOf(Capability.GENERATE, Capability.CHAT, Capability.TOKENIZE), model.info.capabilities)
            model.greedySession(24).use { session ->
                session.addMessage("system", "Be brief.")
                val answer = session.chat("Why is the sky blue? \uD83D\uDE00").toList().joinToString("")
                val stats = session.stats()
                assertEquals(24, stats.generatedTokens)
                assertTrue(stats.promptTokens > 0 && stats.position > 0)
                assertNull(session.next())
                session.reset()
                val messages = listOf(Message("system", "Be brief."), Message("user", "Why is the sky blue? \uD83D\uDE00"))
                assertEquals(answer, session.chat(messages).toList().joinToString(""))
            }
        }
    }

    @Test
    fun `logits match PyTorch`() = runTest {
        val golden = Tensors(File(resource("siskin.data"), "golden/llama/io.safetensors"))
        val ids = golden.longs("input_ids")
        val logits = golden.floats("logits")
        withModel("chat") { model ->
            for (row in 0..1) model.greedySession(1).use { session ->
                session.promptTokens(IntArray(23) { ids[row * 23 + it].toInt() })
                val expected = logits.copyOfRange((row * 23 + 22) * 256, (row * 23 + 23) * 256)
                val largest = expected.maxOf { kotlin.math.abs(it) }
                assertArrayEquals(expected, session.logits(), largest * 1e-4f)
                assertEquals(expected.indices.maxBy { expected[it] }, session.next()!!.token)
            }
        }
    }

    @Test
    fun `forks continue alike and texts are scored`() = runTest {
        withModel("chat") { model ->
            val options = SessionOptions().apply {
                sampler = Sampler().apply { temperature = 0.0 }
                maxTokens = 8
                forks = 1
                templateVariables = """{"style": "brief"}"""
            }
            model.session(options).use { session ->
                session.promptRaw("Once upon")
                session.fork().use { fork ->
                    fork.promptTokens(IntArray(0))
                    assertEquals(session.generateChunks().toList(), fork.generateChunks().toList())
                    fork.reset()
                    assertEquals(8, fork.scoreText("Once upon").tokens)
                    val score = fork.scoreText(" a time")
                    assertEquals(7, score.tokens)
                    assertTrue(score.logProbability < 0)
                }
            }
            assertThrows<SiskinException.Argument> { model.session { templateVariables = "[]" } }
        }
    }

    @Test
    fun `characters are never split`() = runTest {
        // Tokens are bytes: sampling only these produces an emoji, a Chinese character or an accented letter every now
        // and then.
        val allowed = "\uD83D\uDE00日é".encodeToByteArray().map { it.toInt() and 0xff }.toSet()
        withModel("chat") { model ->
            val bias = (0..255).filter { it !in allowed }.associateWith { Float.NEGATIVE_INFINITY }
            var count = 0
            for (start in 1L..40L) {
                val options = SessionOptions().apply {
                    sampler = Sampler().apply { logitBias = bias; seed = start; temperature = 3.0; topK = 0; topP = 1.0; minP = 0.0 }
                }
                model.session(options).use { session ->
                    session.promptRaw("x")
                    val chunks = session.generateChunks().toList()
                    val bytes = chunks.flatMap { it.bytes.asList() }.toByteArray()
                    val text = chunks.joinToString("") { it.text }
                    assertEquals(String(bytes, Charsets.UTF_8), text)
                    chunks.forEach { assertFalse(it.text, it.text.hasUnpairedSurrogate()) }
                    count += Regex("\uD83D\uDE00|日|é").findAll(text).count()
                }
            }
            println("characters: $count were generated")
            assertTrue(count > 20)
        }
    }

    @Test
    fun `emoji and CJK of a real model are never split`() = runTest {
        assumeNotNull(resource("siskin.smollm2"))
        Model.open(resource("siskin.smollm2")!!.path).use { model ->
            model.greedySession(48).use { session ->
                for (start in listOf("\uD83D\uDE00\uD83D\uDE02\uD83D\uDE00\uD83D\uDE02\uD83D\uDE00\uD83D\uDE02", "日本語、中国語、日本語、中国語、")) {
                    session.reset()
                    session.promptRaw(start)
                    val chunks = session.generateChunks().toList()
                    val text = chunks.joinToString("") { it.text }
                    println("$start continues: ${text.take(40)}")
                    assertEquals(String(chunks.flatMap { it.bytes.asList() }.toByteArray()), text)
                    chunks.forEach { assertFalse(it.text, it.text.hasUnpairedSurrogate() || '\uFFFD' in it.text) }
                    assertTrue(text.any { it.code > 0x2000 } && chunks.any { it.text.isEmpty() })
                }
            }
        }
    }

    @Test
    fun `an answer stops with its collector and can be continued`() = runTest {
        withModel("chat") { model ->
            model.greedySession(24).use { session ->
                val all = session.complete("Once upon").toList().joinToString("")
                session.reset()
                val before = session.stats().generatedTokens
                val first = session.complete("Once upon").take(2).toList()
                assertEquals(2, first.size)
                val tokens = session.stats().generatedTokens - before
                assertTrue("$tokens", tokens in 2..12)
                assertEquals(all, first.joinToString("") + session.generateText().toList().joinToString(""))
            }
        }
    }

    @Test
    fun `a response is one of the choices`() = runTest {
        withModel("chat") { model ->
            model.session().use { session ->
                session.setStructuredOutput(StructuredOutput.Choice(listOf("a \"yes\"", "no")))
                val answer = session.apply { promptRaw("Well?") }.generateChunks().toList().joinToString("") { it.text }
                assertTrue(answer == "a \"yes\"" || answer == "no")
                assertEquals(FinishReason.EOS, session.finishReason)
                session.setStructuredOutput(null)
            }
        }
    }

    @Test
    fun `the message of a chat has its content`() = runTest {
        withModel("chat") { model ->
            model.session { maxTokens = 20 }.use { session ->
                assertTrue(runCatching { session.message() }.exceptionOrNull() is SiskinException)
                val messages = """[{"role": "user", "content": "Why?"}]"""
                val content = session.chat(messages, """{"tool_choice": "none"}""").toList().joinToString("")
                val message = session.message()
                assertTrue(message.contains("\"role\":\"assistant\"") && message.contains("\"content\":\""))
                assertTrue(content.isNotEmpty())
                val unknown = runCatching { session.promptChat(messages, """{"tool": []}""") }
                assertTrue(unknown.exceptionOrNull() is SiskinException)
            }
        }
    }

    @Test
    fun `tokens and finish reasons are reported`() = runTest {
        withModel("chat") { model ->
            val session = model.session {
                sampler = Sampler().apply { seed = 7; topLogProbabilities = 5; logitBias = mapOf(0 to Float.NEGATIVE_INFINITY) }
                slidingWindow = 40
                attentionSinks = 4
                stopStrings = listOf("\n\nUser:")
            }
            session.use {
                session.setMaxTokens(3)
                val chunks = session.apply { promptRaw("x") }.generateChunks().toList()
                for (chunk in chunks.take(3)) {
                    val top = chunk.topLogProbabilities
                    assertTrue(chunk.token != 0 && chunk.bytes.size == 1 && top.size == 5)
                    assertTrue(chunk.logProbability!! <= 0 && top[0].logProbability >= top[4].logProbability)
                }
                assertEquals(3, chunks.count { it.token != null })
                assertEquals(FinishReason.LENGTH, session.finishReason)
            }
        }
    }
}

/** Whether the string contains an unpaired surrogate. */
private fun String.hasUnpairedSurrogate(): Boolean = this != String(encodeToByteArray(), Charsets.UTF_8)

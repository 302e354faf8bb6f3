// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test

class EngineTest {
    private val prompts = listOf("Why is the sky blue?", "What is a siskin?", "Why is the sky blue? And the sea?", "\uD83D\uDE00")

    private fun greedyRequest(change: RequestOptions.() -> Unit = {}) =
        RequestOptions().apply { sampler = Sampler().apply { temperature = 0.0 }; maxTokens = 24 }.apply(change)

    @Test
    fun `concurrent requests have the answers of sessions while others are canceled`() = runTest {
        withModel("chat") { model ->
            val expected = prompts.map { prompt ->
                model.greedySession(24).use { it.chat(prompt).toList().joinToString("") }
            }
            for (background in listOf(false, true)) Engine.create { threads = 2; backgroundThread = background }.use { engine ->
                val served = engine.add(model) { context = 128 }
                val canceled = launch {
                    while (true) {
                        val request = launch { served.generate("And so on").toList() }
                        delay(5)
                        request.cancelAndJoin()
                    }
                }
                val answers = prompts.map { async { served.generate(it, greedyRequest()).toList().joinToString("") } }
                assertEquals(expected, answers.awaitAll())
                canceled.cancelAndJoin()
                assertTrue(served.stats().steps > 0)
                // A flow that is not collected to its end cancels its request.
                served.generate("And so on").first()
                engine.drain(60_000)
                assertEquals(0, served.stats().running)
                assertThrows<SiskinException.Overloaded> { served.submit("One more") }
            }
        }
    }

    @Test
    fun `sessions of an engine answer as others do`() = runTest {
        withModel("chat") { model ->
            val expected = prompts.map { prompt ->
                model.greedySession(24).use { it.chat(prompt).toList().joinToString("") }
            }
            val greedy = SessionOptions().apply { sampler = Sampler().apply { temperature = 0.0 }; maxTokens = 24 }
            Engine.create { threads = 2; backgroundThread = true }.use { engine ->
                val served = engine.add(model) { context = 128 }
                val answers = prompts.map { prompt ->
                    async { served.session(greedy).use { it.chat(prompt).toList().joinToString("") } }
                }
                assertEquals(expected, answers.awaitAll())
                assertEquals(expected[0], served.sessionBlocking(greedy).use { it.chat(prompts[0]).toList().joinToString("") })
                engine.attach(model).use { attached ->
                    assertEquals(expected[1], attached.session(greedy).use { it.chat(prompts[1]).toList().joinToString("") })
                }
                served.session().use { session ->
                    engine.drain(1_000)
                    assertThrows<SiskinException.Overloaded> { session.prompt("One more") }
                }
            }
        }
    }

    @Test
    fun `models are replaced within a memory budget`() = runTest {
        withModel("chat") { model ->
            val options = ServedModelOptions().apply { context = 128 }
            // The first power of two that is enough for one model is not enough for two.
            var budget = 1024L
            while (true) {
                val fits = Engine.create { memoryBudget = budget }.use { engine ->
                    try {
                        engine.add(model, options)
                        true
                    } catch (_: SiskinException.Memory) {
                        false
                    }
                }
                if (fits) break
                budget *= 2
            }
            Engine.create { backgroundThread = true; memoryBudget = budget }.use { engine ->
                val old = engine.add(model, options)
                assertThrows<SiskinException.Memory> { engine.add(model, options) }
                val expected = old.generate(prompts[0], greedyRequest()).toList()
                engine.trim()
                assertEquals(0, old.stats().cachedPrefixes)
                assertEquals(old.stats().kvBlocks, old.stats().freeKvBlocks)
                old.remove(1_000)
                assertThrows<SiskinException.Argument> { old.submit("One more") }
                val new = engine.add(model, options)
                assertEquals(expected, new.generate(prompts[0], greedyRequest()).toList())
            }
        }
    }

    @Test
    fun `encoders of an engine embed as others do`() = runTest {
        withModel("vectors") { model ->
            val texts = listOf("the sky is blue", "a", "is the sky blue", "blue sky")
            val expected = model.encoder { useHead = false }.use { it.embed(texts) }
            Engine.create { backgroundThread = true }.use { engine ->
                val answers = (0 until 4).map {
                    async { engine.encoder(model) { useHead = false }.use { encoder -> encoder.embed(texts) } }
                }
                for (answer in answers.awaitAll()) {
                    for ((vector, other) in answer.zip(expected)) assertArrayEquals(other, vector, 0f)
                }
                withModel("classes") { classes ->
                    val classified = engine.encoder(classes) { useHead = true }.use { it.classify(texts) }
                    assertEquals(classes.encoder { useHead = true }.use { it.classify(texts) }, classified)
                }
                engine.encoderBlocking(model, EncoderOptions().apply { useHead = false }).use { encoder ->
                    engine.drain(1_000)
                    assertThrows<SiskinException.Overloaded> { encoder.embed(texts) }
                }
            }
        }
    }

    @Test
    fun `generations report tokens and reasons and can be canceled`() = runTest {
        withModel("chat") { model ->
            val engine = Engine.create()
            val served = engine.add(model)
            val session = model.greedySession(24).use { it.promptRaw("Once upon"); it.generateChunks().toList() }
            served.submitRaw("Once upon", options = greedyRequest()).use { generation ->
                val chunks = generateSequence { generation.nextBlocking() }.toList()
                assertEquals(session, chunks)
                assertEquals(FinishReason.LENGTH, generation.finishReason)
                assertNull(generation.next())
                assertEquals(24, generation.usage().generatedTokens)
            }
            served.submitTokens(model.tokenize("Once upon"), greedyRequest()).use { generation ->
                while (generation.next() != null) Unit
                val usage = generation.usage()
                assertEquals(usage.promptTokens - 1, usage.cachedTokens)
            }
            val messages = listOf(Message("user", prompts[0]))
            served.submit(messages, greedyRequest { structuredOutput = StructuredOutput.Choice(listOf("yes", "no")) }).use {
                val text = generateSequence { it.nextBlocking() }.joinToString("") { chunk -> chunk.text }
                assertTrue(text, text == "yes" || text == "no")
            }
            served.submitChat("""[{"role":"user","content":"Hi"}]""", options = greedyRequest()).use { generation ->
                while (generation.next() != null) Unit
                assertTrue(generation.message().startsWith("""{"role":"assistant""""))
            }
            val endless = served.submitRaw("For ever")
            // The engine lives as long as its generations.
            engine.close()
            assertThrows<SiskinException.Closed> { served.submit("One more") }
            endless.next()
            endless.cancel()
            while (endless.next() != null) Unit
            assertEquals(FinishReason.CANCELED, endless.finishReason)
            endless.close()
            assertThrows<SiskinException.Closed> { endless.next() }
        }
    }

    @Test
    fun `options are checked`() = runTest {
        withModel("chat") { model ->
            Engine.create().use { engine ->
                val served = engine.add(model) {
                    context = 64
                    maxBatchTokens = 32
                    kvCacheType = KvCacheType.F32
                    kvCacheMemory = 1L shl 22
                    maxRunning = 2
                    maxWaiting = 3
                    prefixCacheDirectory = kotlin.io.path.createTempDirectory("prefixes").toString()
                    prefixCacheDirectorySize = 1L shl 30
                    draftModel = model
                }
                assertThrows<SiskinException.TooLong> { served.submitRaw("a".repeat(400)) }
                assertThrows<SiskinException.Argument> { served.submit("Hi", greedyRequest { adapter = "unknown" }) }
                assertThrows<SiskinException.Argument> { served.submit("Hi", greedyRequest { maxTokens = -1 }) }
                val options = greedyRequest {
                    priority = Priority.INTERACTIVE
                    speculation = Speculation.DRAFT
                    client = 7
                    cacheSalt = "salt"
                    timeout = 600_000
                    stopStrings = listOf("\u0001\u0002")
                }
                val drafted = served.generate("Hi", options).toList().joinToString("")
                val plain = greedyRequest { speculation = Speculation.OFF }
                assertEquals(served.generate("Hi", plain).toList().joinToString(""), drafted)
                served.submitRaw("For ever", options = RequestOptions().apply { timeout = 1; maxTokens = 1_000_000 }).use {
                    while (it.next() != null) Unit
                    assertTrue(it.finishReason in setOf(FinishReason.TIMEOUT, FinishReason.CONTEXT))
                }
                served.submitBlocking("Hi", greedyRequest()).use { assertTrue(it.nextBlocking() != null) }
            }
            withModel("vectors") { encoder ->
                Engine.create().use { engine -> assertThrows<SiskinException.Unsupported> { engine.add(encoder) } }
            }
        }
    }
}

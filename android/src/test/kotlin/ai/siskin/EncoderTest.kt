// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlin.math.sqrt
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNotNull
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class EncoderTest {
    private suspend fun <T> withEncoder(
        name: String,
        options: EncoderOptions.() -> Unit,
        use: suspend (Encoder) -> T,
    ): T = withModel(name) { it.encoder(options) }.use { use(it) }

    @Test
    fun `an embedding does not depend on its batch`() = runTest {
        withEncoder("vectors", {}) { encoder ->
            val (first, second) = encoder.embed(listOf("the sky is blue", "a"))
            assertEquals(32, first.size)
            assertEquals(1f, sqrt(first.map { it * it }.sum()), 1e-4f)
            assertArrayEquals(first, encoder.embed("the sky is blue"), 0f)
            assertArrayEquals(second, encoder.embed("a"), 0f)
            assertEquals(0, encoder.embed(emptyList()).size)
            assertThrows<SiskinException.Unsupported> { encoder.classify("a") }
        }
        withEncoder("vectors", { pooling = Pooling.FIRST; normalize = false; dimensions = 8 }) { encoder ->
            assertEquals(8, encoder.embed("the sky is blue").size)
        }
        withModel("vectors") { model -> assertThrows<SiskinException.Argument> { model.encoder { dimensions = 0 } } }
    }

    @Test
    fun `texts leave the model early`() = runTest {
        val texts = listOf("good", "bad and long")
        val whole = withEncoder("exits", { useHead = true }) { it.classify(texts) }
        withEncoder("exits", { useHead = true; earlyExit = EarlyExit.Entropy(0f) }) { encoder ->
            assertEquals(whole, encoder.classify(texts))
            assertTrue(encoder.layers().all { it > 2 })
        }
        withEncoder("exits", { useHead = true; earlyExit = EarlyExit.Confidence(0f) }) { encoder ->
            encoder.classify(texts)
            assertEquals(listOf(1, 1), encoder.layers())
        }
        withModel("exits") { model ->
            assertThrows<SiskinException.Argument> { model.encoder { useHead = true; earlyExit = EarlyExit.Patience(0) } }
        }
        withModel("classes") { model ->
            assertThrows<SiskinException.Unsupported> { model.encoder { useHead = true; earlyExit = EarlyExit.Patience(1) } }
        }
    }

    @Test
    fun `embeddings match PyTorch`() = runTest {
        assumeNotNull(resource("siskin.minilm"))
        val sentences = jsonStrings(File(resource("siskin.data"), "embeddings/minilm.json").readText())
        val expected = Tensors(File(resource("siskin.data"), "embeddings/minilm.safetensors")).floats("embeddings")
        Model.open(resource("siskin.minilm")!!.path).use { model ->
            model.encoder().use { encoder ->
                val vectors = encoder.embed(sentences)
                assertEquals(expected.size, sentences.size * vectors[0].size)
                val cosines = vectors.mapIndexed { row, vector ->
                    vector.cosineSimilarity(expected.copyOfRange(row * vector.size, (row + 1) * vector.size))
                }
                println("embed: ${sentences.size} sentences, minimum cosine similarity to PyTorch ${cosines.min()}")
                assertTrue(cosines.min() > 0.9999f)
                val many = List(400) { sentences[it % sentences.size] + it }
                val job = launch(Dispatchers.IO) { encoder.embed(many) }
                delay(40)
                val start = System.nanoTime()
                job.cancelAndJoin()
                println("cancel: embedding took %.1f ms".format((System.nanoTime() - start) / 1e6))
                assertArrayEquals(vectors[0], encoder.embed(sentences[0]), 0f)
            }
        }
    }

    @Test
    fun `classification and reranking`() = runTest {
        withEncoder("classes", { useHead = true }) { encoder ->
            val classes = encoder.classify(listOf("good", "bad"))
            assertEquals(2, classes.size)
            assertEquals(1f, classes[1].map { it.score }.sum(), 1e-4f)
            assertEquals(classes[1].sortedByDescending { it.score }, classes[1])
            assertTrue(classes[1].size > 1 && classes[1].all { it.text.isNotEmpty() })
            assertEquals(2, encoder.rerank("how is it", listOf("good", "bad")).size)
            assertThrows<SiskinException.Unsupported> { encoder.tag("a") }
            assertThrows<SiskinException.Unsupported> { encoder.answer("who", listOf("a")) }
            assertThrows<SiskinException.TooLong> { encoder.classify("a ".repeat(2000)) }
        }
        withEncoder("classes", { useHead = true; onOverflow = OverflowMode.Truncate }) { encoder ->
            assertTrue(encoder.classify("a ".repeat(2000)).size > 1)
        }
    }

    @Test
    fun `ranges are indices of strings`() = runTest {
        // The prefix has more UTF-8 bytes than UTF-16 code units.
        val text = "日本 \uD83D\uDE00 anna lives in rome"
        withEncoder("labels", { useHead = true }) { encoder ->
            for (span in encoder.tag(text)) assertTrue(!span.range!!.isEmpty() && span.range!!.last < text.length)
        }
        withEncoder("answers", { useHead = true }) { encoder ->
            val span = encoder.answer("where does anna live", listOf(text)).single()
            assertNotNull(span)
            assertEquals(span!!.text, text.substring(span.range!!))
            assertTrue(span.score > 0)
        }
    }

    @Test
    fun `mask tokens are predicted`() = runTest {
        withEncoder("vectors", { useHead = true }) { encoder ->
            val masks = encoder.fillMask("the [MASK] is [MASK]", 3)
            assertEquals(listOf(3, 3), masks.map { it.size })
            for (predictions in masks) {
                assertEquals(predictions.sortedByDescending { it.score }, predictions)
                assertTrue(predictions.all { it.token != null && it.range == null && it.text.isNotEmpty() })
            }
            assertEquals(1, encoder.fillMask("a [MASK]").size)
            assertThrows<SiskinException.Argument> { encoder.fillMask("no mask token") }
        }
    }
}

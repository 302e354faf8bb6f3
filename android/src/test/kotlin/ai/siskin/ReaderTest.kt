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

class ReaderTest {
    private suspend fun <T> encoder(name: String, options: EncoderOptions.() -> Unit, use: suspend (Encoder) -> T): T =
        with(name) { it.encoder(options) }.use { use(it) }

    @Test
    fun `vectors do not depend on their neighbors`() = test {
        encoder("vectors", {}) { encoder ->
            val (first, second) = encoder.embed(listOf("the sky is blue", "a"))
            assertEquals(32, first.size)
            assertEquals(1f, sqrt(first.map { it * it }.sum()), 1e-4f)
            assertArrayEquals(first, encoder.embed("the sky is blue"), 0f)
            assertArrayEquals(second, encoder.embed("a"), 0f)
            assertEquals(0, encoder.embed(emptyList()).size)
            fails<SiskinException.Unsupported> { encoder.classify("a") }
        }
        encoder("vectors", { pooling = Pooling.FIRST; normalize = false; columns = 8 }) { encoder ->
            assertEquals(8, encoder.embed("the sky is blue").size)
        }
        with("vectors") { model -> fails<SiskinException.Argument> { model.encoder { columns = -1 } } }
    }

    @Test
    fun `vectors are those of PyTorch`() = test {
        assumeNotNull(given("siskin.vectors"))
        val sentences = jsonStrings(File(given("siskin.data"), "embeddings/minilm.json").readText())
        val truth = Tensors(File(given("siskin.data"), "embeddings/minilm.safetensors")).floats("embeddings")
        Model.open(given("siskin.vectors")!!.path).use { model ->
            model.encoder().use { encoder ->
                val vectors = encoder.embed(sentences)
                assertEquals(truth.size, sentences.size * vectors[0].size)
                val cosines = vectors.mapIndexed { row, vector ->
                    val theirs = truth.copyOfRange(row * vector.size, (row + 1) * vector.size)
                    val product = vector.indices.sumOf { vector[it].toDouble() * theirs[it] }
                    product / sqrt(theirs.sumOf { it.toDouble() * it } * vector.sumOf { it.toDouble() * it })
                }
                println("embed: ${sentences.size} sentences, the least cosine with PyTorch's is ${cosines.min()}")
                assertTrue(cosines.min() > 0.9999)
                val many = List(400) { sentences[it % sentences.size] + it }
                val job = launch(Dispatchers.IO) { encoder.embed(many) }
                delay(40)
                val before = System.nanoTime()
                job.cancelAndJoin()
                println("cancel: embedding took %.1f ms to stop".format((System.nanoTime() - before) / 1e6))
                assertArrayEquals(vectors[0], encoder.embed(sentences[0]), 0f)
            }
        }
    }

    @Test
    fun `classes and scores`() = test {
        encoder("classes", { head = true }) { encoder ->
            val classes = encoder.classify(listOf("good", "bad"))
            assertEquals(2, classes.size)
            assertEquals(1f, classes[1].map { it.score }.sum(), 1e-4f)
            assertEquals(classes[1].sortedByDescending { it.score }, classes[1])
            assertTrue(classes[1].size > 1 && classes[1].all { it.text.isNotEmpty() })
            assertEquals(2, encoder.rerank("how is it", listOf("good", "bad")).size)
            fails<SiskinException.Unsupported> { encoder.tag("a") }
            fails<SiskinException.Unsupported> { encoder.answer("who", listOf("a")) }
            fails<SiskinException.TooLong> { encoder.classify("a ".repeat(2000)) }
        }
        encoder("classes", { head = true; long = LongTexts.CUT }) { encoder ->
            assertTrue(encoder.classify("a ".repeat(2000)).size > 1)
        }
    }

    @Test
    fun `places count characters of strings`() = test {
        // The prefix has more UTF-8 bytes than UTF-16 code units.
        val text = "日本 \uD83D\uDE00 anna lives in rome"
        encoder("labels", { head = true }) { encoder ->
            for (found in encoder.tag(text)) assertTrue(found.start < found.end && found.end <= text.length)
        }
        encoder("answers", { head = true }) { encoder ->
            val found = encoder.answer("where does anna live", listOf(text)).single()
            assertNotNull(found)
            assertEquals(found!!.text, text.substring(found.start, found.end))
            assertTrue(found.score > 0)
        }
        val places = Places(text)
        for (at in text.indices.filter { !text[it].isLowSurrogate() }) {
            assertEquals(at, places[text.substring(0, at).encodeToByteArray().size])
        }
        assertEquals(text.length, places[text.encodeToByteArray().size])
    }

    @Test
    fun `masks are filled`() = test {
        encoder("vectors", { head = true }) { encoder ->
            val places = encoder.fillMask("the [MASK] is [MASK]", 3)
            assertEquals(listOf(3, 3), places.map { it.size })
            for (place in places) {
                assertEquals(place.sortedByDescending { it.score }, place)
                assertTrue(place.all { it.token != null && it.text.isNotEmpty() })
            }
            assertEquals(1, encoder.fillMask("a [MASK]").size)
            fails<SiskinException.Argument> { encoder.fillMask("nothing is hidden") }
        }
    }

    @Test
    fun `texts for texts`() = test {
        with("translates") { model ->
            model.writer(8, 64).use { writer ->
                val how = Writing.translation().apply { beams = 3; best = 2; maxTokens = 8; long = LongTexts.CUT; before = "" }
                val written = writer.write(listOf("good morning", "a"), how)
                for (texts in written) {
                    assertEquals(2, texts.size)
                    assertTrue(texts[0].score >= texts[1].score && texts.all { it.tokens.size <= 9 })
                }
                writer.write("good morning")
                writer.write("good morning", Writing.summary().apply { maxTokens = 4; beams = 1; sampler = Sampler().apply { seed = 1 } })
                fails<SiskinException.Argument> { writer.write("a", Writing().apply { beams = 0 }) }
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import java.nio.ByteBuffer
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class TranscribeTest {
    @Test
    fun `transcripts are those of CTranslate2`() = test {
        assumeNotNull(given("siskin.hears"))
        val truth = File(given("siskin.data"), "speech/speech.json").readText()
        val english = Regex("\"english\".*?\"plain\": *\\[([0-9, \n]*)]", RegexOption.DOT_MATCHES_ALL).find(truth)!!
        val tokens = english.groupValues[1].split(',').map { it.trim().toInt() }
        val wav = File(given("siskin.data"), "speech/english.wav").readBytes()
        Model.open(given("siskin.hears")!!.path).use { model ->
            assertTrue(Ability.LISTENS in model.info.abilities)
            fails<SiskinException.Argument> { model.transcriber { beams = -1 } }
            model.transcriber { timestamps = true }.use { transcriber ->
                hears(transcriber, wav, tokens.joinToString("") { model.tokenBytes(it).decodeToString() }.trim())
                stops(transcriber, wav)
            }
        }
    }

    private suspend fun hears(transcriber: Transcriber, wav: ByteArray, expected: String) {
        val heard = transcriber.transcribeWav(wav)
        println("transcribe: ${heard.language}: ${heard.segments}")
        assertEquals(expected, heard.text.trim())
        assertEquals("en", heard.language)
        assertEquals(2, heard.segments.size)
        var before = 0.0
        for (segment in heard.segments) {
            assertTrue(segment.start >= before && segment.end > segment.start && segment.text.isNotEmpty())
            before = segment.start
        }
        fails<SiskinException.Corrupt> { transcriber.transcribeWav(byteArrayOf(82, 73, 70, 70)) }
        // The file without its 44-byte header is samples.
        val rate = ByteBuffer.wrap(wav).order(java.nio.ByteOrder.LITTLE_ENDIAN).getInt(24)
        val pcm = ByteBuffer.allocateDirect(wav.size - 44).put(wav, 44, wav.size - 44)
        pcm.flip()
        assertEquals(expected, transcriber.transcribePcm16(pcm, rate).text.trim())
        transcriber.setLanguage("en")
        transcriber.setPrompt("")
        assertEquals(0, transcriber.transcribe(FloatArray(16_000)).segments.size)
    }

    private suspend fun stops(transcriber: Transcriber, wav: ByteArray) = kotlinx.coroutines.coroutineScope {
        val times = List(5) { round ->
            val job = launch(Dispatchers.IO) { transcriber.transcribeWav(wav) }
            delay(60L + 40 * round)
            val before = System.nanoTime()
            job.cancelAndJoin()
            (System.nanoTime() - before) / 1e6
        }.sorted()
        println("cancel: transcribing: the middle one took %.1f ms, the slowest %.1f".format(times[2], times[4]))
        assertTrue(times[2] <= System.getProperty("siskin.patience", "100").toDouble())
    }
}

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

class TranscriberTest {
    @Test
    fun `transcripts match CTranslate2`() = runTest {
        assumeNotNull(resource("siskin.whisper"))
        val golden = File(resource("siskin.data"), "speech/speech.json").readText()
        val english = Regex("\"english\".*?\"plain\": *\\[([0-9, \n]*)]", RegexOption.DOT_MATCHES_ALL).find(golden)!!
        val tokens = english.groupValues[1].split(',').map { it.trim().toInt() }
        val wav = File(resource("siskin.data"), "speech/english.wav").readBytes()
        Model.open(resource("siskin.whisper")!!.path).use { model ->
            assertTrue(Capability.TRANSCRIBE in model.info.capabilities)
            assertThrows<SiskinException.Argument> { model.transcriber { beams = -1 } }
            model.transcriber { timestamps = true }.use { transcriber ->
                checkTranscript(transcriber, wav, tokens.joinToString("") { model.tokenBytes(it).decodeToString() }.trim())
                checkCancellation(transcriber, wav)
            }
        }
    }

    private suspend fun checkTranscript(transcriber: Transcriber, wav: ByteArray, expected: String) {
        val segments = mutableListOf<Segment>()
        val transcript = transcriber.transcribeWav(wav, segments::add)
        assertEquals(transcript.segments, segments)
        assertThrows<IllegalStateException> { transcriber.transcribeWav(wav) { error("stop") } }
        println("transcribe: ${transcript.language}: ${transcript.segments}")
        assertEquals(expected, transcript.text.trim())
        assertEquals("en", transcript.language)
        assertEquals(2, transcript.segments.size)
        var previous = 0.0
        for (segment in transcript.segments) {
            assertTrue(segment.start >= previous && segment.end > segment.start && segment.text.isNotEmpty())
            previous = segment.start
        }
        assertThrows<SiskinException.Corrupt> { transcriber.transcribeWav(byteArrayOf(82, 73, 70, 70)) }
        // Without its 44-byte header, the file is samples.
        val rate = ByteBuffer.wrap(wav).order(java.nio.ByteOrder.LITTLE_ENDIAN).getInt(24)
        val pcm = ByteBuffer.allocateDirect(wav.size - 44).put(wav, 44, wav.size - 44)
        pcm.flip()
        assertEquals(expected, transcriber.transcribePcm16(pcm, rate).text.trim())
        transcriber.setLanguage("en")
        transcriber.setPrompt(null)
        assertEquals(0, transcriber.transcribe(FloatArray(16_000)).segments.size)
    }

    private suspend fun checkCancellation(transcriber: Transcriber, wav: ByteArray) = kotlinx.coroutines.coroutineScope {
        val times = List(5) { round ->
            val job = launch(Dispatchers.IO) { transcriber.transcribeWav(wav) }
            delay(60L + 40 * round)
            val start = System.nanoTime()
            job.cancelAndJoin()
            (System.nanoTime() - start) / 1e6
        }.sorted()
        println("cancel: transcribing: median of 5 %.1f ms, maximum %.1f ms".format(times[2], times[4]))
        assertFast(times[2])
    }
}

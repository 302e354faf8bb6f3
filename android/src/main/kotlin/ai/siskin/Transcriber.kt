// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer
import kotlinx.coroutines.runBlocking

internal fun TranscriberOptions.create(model: Long): Transcriber {
    val transcriber = Transcriber(NativeTranscriber.create(model))
    try {
        transcriber.native.withPointer(::copyTo)
    } catch (error: Throwable) {
        transcriber.close()
        throw error
    }
    return transcriber
}

/** A segment of the audio, and its transcript. */
@ConsistentCopyVisibility
public data class Segment internal constructor(
    /** The transcript. */
    public val text: String,
    /** The start, in seconds. */
    public val start: Double,
    /** The end, in seconds. */
    public val end: Double,
    /** The mean log-probability of the tokens in its window. */
    public val logProbability: Float,
    /** The probability that its window contains no speech. */
    public val noSpeechProbability: Float,
)

/** A transcript of audio. */
@ConsistentCopyVisibility
public data class Transcript internal constructor(
    /** The whole text. */
    public val text: String,
    /** The spoken language; `null` if it is unknown. */
    public val language: String?,
    /** The segments, in chronological order. */
    public val segments: List<Segment>,
) {
    internal companion object {
        fun read(bytes: ByteArray): Transcript = Unpacker(bytes).run {
            val text = string()
            val language = string().ifEmpty { null }
            Transcript(text, language, list { segment() })
        }
    }
}

private fun Unpacker.segment() = Segment(string(), double(), double(), float(), float())

/** Receives the segments from the JNI bridge. */
internal class SegmentSink(private val listener: (Segment) -> Unit) {
    /** What the listener threw. */
    @Volatile
    var exception: Throwable? = null

    fun onSegment(bytes: ByteArray): Boolean = Callbacks.enter {
        try {
            listener(Unpacker(bytes).segment())
            true
        } catch (error: Throwable) {
            exception = error
            false
        }
    }
}

/** Transcribes speech. */
public class Transcriber internal constructor(pointer: Long) :
    CancellableHandle(
        NativePointer("transcriber", pointer, NativeTranscriber.cancelHandle(pointer), NativeTranscriber::free),
    ) {
    /**
     * Transcribes one channel of audio at [sampleRate] samples per second, with full scale from -1 to 1. [onSegment]
     * receives each segment once its window of audio was transcribed, from the thread of the call, and must not use
     * the library. If it
     * throws, so does this function.
     */
    public suspend fun transcribe(
        samples: FloatArray,
        sampleRate: Int = 16_000,
        onSegment: ((Segment) -> Unit)? = null,
    ): Transcript = transcript(onSegment) {
        NativeTranscriber.transcribe(it, samples, positive("sampleRate", sampleRate))
    }

    /**
     * Transcribes little-endian 16-bit samples with [channels] interleaved channels, from the buffer's position to its
     * limit. A direct buffer is not copied, and must not change until the call ends. [onSegment] as in [transcribe].
     */
    public suspend fun transcribePcm16(
        pcm: ByteBuffer,
        sampleRate: Int,
        channels: Int = 1,
        onSegment: ((Segment) -> Unit)? = null,
    ): Transcript {
        if (channels !in 1..MAX_CHANNELS) {
            throw SiskinException.Argument("channels", "must be from 1 to $MAX_CHANNELS, got $channels")
        }
        val rate = positive("sampleRate", sampleRate)
        val audio = directView(pcm)
        return transcript(onSegment) { pointer ->
            val offset = audio.position().toLong()
            val length = audio.remaining().toLong()
            NativeTranscriber.transcribePcm16(pointer, audio, offset, length, rate, channels)
        }
    }

    /**
     * Transcribes the bytes of a WAV file, from the buffer's position to its limit. A direct buffer is not copied, and
     * must not change until the call ends. [onSegment] as in [transcribe].
     */
    public suspend fun transcribeWav(wav: ByteBuffer, onSegment: ((Segment) -> Unit)? = null): Transcript {
        val audio = directView(wav)
        return transcript(onSegment) { pointer ->
            val offset = audio.position().toLong()
            val length = audio.remaining().toLong()
            NativeTranscriber.transcribeWav(pointer, audio, offset, length)
        }
    }

    /** Transcribes the bytes of a WAV file. [onSegment] as in [transcribe]. */
    public suspend fun transcribeWav(wav: ByteArray, onSegment: ((Segment) -> Unit)? = null): Transcript =
        transcribeWav(ByteBuffer.wrap(wav), onSegment)

    private suspend fun transcript(onSegment: ((Segment) -> Unit)?, transcribe: (Long) -> ByteArray): Transcript =
        call { pointer ->
            val sink = onSegment?.let(::SegmentSink)
            NativeTranscriber.setSegmentSink(pointer, sink)
            try {
                Transcript.read(transcribe(pointer))
            } catch (error: SiskinException.Canceled) {
                throw sink?.exception ?: error
            } finally {
                NativeTranscriber.setSegmentSink(pointer, null)
            }
        }

    /** Sets the spoken language, such as `en`; `null` detects it. */
    public suspend fun setLanguage(language: String?): Unit =
        shortCall { NativeTranscriberOptions.setLanguage(it, language.orEmpty().encodeToByteArray()) }

    /** Sets a prompt: names and words that are likely to occur in the audio. */
    public suspend fun setPrompt(prompt: String?): Unit =
        shortCall { NativeTranscriberOptions.setPrompt(it, prompt.orEmpty().encodeToByteArray()) }

    /** Blocking variant of [transcribe], for Java. Interrupting the thread cancels the call. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun transcribeBlocking(samples: FloatArray, sampleRate: Int = 16_000): Transcript =
        runBlocking { transcribe(samples, sampleRate) }

    /** Blocking variant of [transcribeWav], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun transcribeWavBlocking(wav: ByteArray): Transcript = runBlocking { transcribeWav(wav) }

    /** Returns a direct buffer with the remaining bytes: a view of the buffer, or a copy if that is not direct. */
    private fun directView(buffer: ByteBuffer): ByteBuffer {
        if (buffer.isDirect) return buffer.duplicate()
        val copy = ByteBuffer.allocateDirect(buffer.remaining())
        copy.put(buffer.duplicate())
        return copy.apply { (this as java.nio.Buffer).flip() }
    }

    private companion object {
        const val MAX_CHANNELS = 0xffff
    }
}

internal object NativeTranscriber {
    @JvmStatic external fun create(model: Long): Long

    @JvmStatic external fun cancelHandle(transcriber: Long): Long

    @JvmStatic external fun setSegmentSink(transcriber: Long, sink: SegmentSink?)

    @JvmStatic external fun transcribe(transcriber: Long, samples: FloatArray, sampleRate: Int): ByteArray

    @JvmStatic external fun transcribePcm16(
        transcriber: Long,
        pcm: ByteBuffer,
        offset: Long,
        length: Long,
        sampleRate: Int,
        channels: Int,
    ): ByteArray

    @JvmStatic external fun transcribeWav(transcriber: Long, wav: ByteBuffer, offset: Long, length: Long): ByteArray

    @JvmStatic external fun free(transcriber: Long)
}

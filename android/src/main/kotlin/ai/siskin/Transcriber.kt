// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer

/** Options of a transcriber. `null` means the default. */
public class TranscriberOptions {
    /** Translate to English. */
    public var translate: Boolean? = null

    /** Split the text into segments with timestamps. */
    public var timestamps: Boolean? = null

    /** The number of beams of beam search. */
    public var beams: Int? = null

    /** Condition on the text of the previous windows. */
    public var previous: Boolean? = null

    /** The no-speech probability from which a window is treated as silent, unless its text is likely. */
    public var silence: Double? = null

    /** The maximum number of tokens of a window. */
    public var maxTokens: Int? = null

    /** The spoken language, such as `en`; empty: detect it. */
    public var language: String = ""

    /** A prompt: names and words that are likely to occur in the audio. */
    public var prompt: String = ""

    internal fun open(model: Long): Transcriber {
        val transcriber = Transcriber(NativeTranscriber.create(model))
        try {
            transcriber.owner.lend(::fill)
        } catch (error: Throwable) {
            transcriber.close()
            throw error
        }
        return transcriber
    }

    private fun fill(transcriber: Long) {
        // In the order of their native constants, which begin with 1.
        listOf(translate?.number(), timestamps?.number(), beams, previous?.number(), silence, maxTokens)
            .forEachIndexed { index, value ->
                if (value != null) NativeTranscriber.set(transcriber, index + 1, value.toDouble())
            }
        NativeTranscriber.setLanguage(transcriber, language.encodeToByteArray())
        NativeTranscriber.setPrompt(transcriber, prompt.encodeToByteArray())
    }
}

/** A segment of the audio, and its transcript. */
public class Segment internal constructor(
    /** Its text. */
    public val text: String,
    /** Its start, in seconds. */
    public val start: Double,
    /** Its end, in seconds. */
    public val end: Double,
    /** The mean log-probability of the tokens of its window. */
    public val logProbability: Float,
    /** The probability that its window contains no speech. */
    public val silence: Float,
) {
    override fun toString(): String = "$start to $end: $text"
}

/** A transcript of audio. */
public class Transcript internal constructor(
    /** The whole text. */
    public val text: String,
    /** The spoken language; empty if unknown. */
    public val language: String,
    /** Its segments, in order of time. */
    public val segments: List<Segment>,
) {
    override fun toString(): String = text

    internal companion object {
        fun read(bytes: ByteArray): Transcript = Unpacker(bytes).run {
            Transcript(text(), text(), list { Segment(text(), double(), double(), float(), float()) })
        }
    }
}

/** Transcribes speech. */
public class Transcriber internal constructor(pointer: Long) :
    WorkingHandle(Owner("transcriber", pointer, NativeTranscriber.stopper(pointer), NativeTranscriber::free)) {
    /** Transcribes one channel of audio at [rate] samples per second, with full scale from -1 to 1. */
    public suspend fun transcribe(samples: FloatArray, rate: Int = 16_000): Transcript =
        work { Transcript.read(NativeTranscriber.hear(it, samples, natural("rate", rate))) }

    /**
     * Transcribes little-endian 16-bit samples with [channels] interleaved channels, from the buffer's position to its
     * limit. A direct buffer is not copied, and must not change until the call ends.
     */
    public suspend fun transcribePcm16(pcm: ByteBuffer, rate: Int, channels: Int = 1): Transcript {
        if (channels !in 0..0xffff) throw SiskinException.Argument("channels", "is $channels; give 1 or a few")
        val sound = direct(pcm)
        return work {
            val (from, length) = sound.position().toLong() to sound.remaining().toLong()
            Transcript.read(NativeTranscriber.hearPcm16(it, sound, from, length, natural("rate", rate), channels))
        }
    }

    /** Transcribes the bytes of a WAVE file. */
    public suspend fun transcribeWav(wav: ByteBuffer): Transcript {
        val sound = direct(wav)
        return work {
            val (from, length) = sound.position().toLong() to sound.remaining().toLong()
            Transcript.read(NativeTranscriber.hearWav(it, sound, from, length))
        }
    }

    /** Transcribes the bytes of a WAVE file. */
    public suspend fun transcribeWav(wav: ByteArray): Transcript = transcribeWav(ByteBuffer.wrap(wav))

    /** The spoken language, such as `en`; empty: detect it. */
    public suspend fun setLanguage(language: String): Unit =
        briefly { NativeTranscriber.setLanguage(it, language.encodeToByteArray()) }

    /** Sets a prompt: names and words that are likely to occur in the audio. Empty: none. */
    public suspend fun setPrompt(prompt: String): Unit =
        briefly { NativeTranscriber.setPrompt(it, prompt.encodeToByteArray()) }

    /** Returns the buffer with its own position, copied if it is not a direct one. */
    private fun direct(buffer: ByteBuffer): ByteBuffer {
        if (buffer.isDirect) return buffer.duplicate()
        val copy = ByteBuffer.allocateDirect(buffer.remaining())
        copy.put(buffer.duplicate())
        return copy.apply { (this as java.nio.Buffer).flip() }
    }
}

internal object NativeTranscriber {
    @JvmStatic external fun create(model: Long): Long

    @JvmStatic external fun stopper(transcriber: Long): Long

    @JvmStatic external fun set(transcriber: Long, option: Int, value: Double)

    @JvmStatic external fun setLanguage(transcriber: Long, language: ByteArray)

    @JvmStatic external fun setPrompt(transcriber: Long, prompt: ByteArray)

    @JvmStatic external fun hear(transcriber: Long, samples: FloatArray, rate: Int): ByteArray

    @JvmStatic external fun hearPcm16(
        transcriber: Long,
        pcm: ByteBuffer,
        offset: Long,
        length: Long,
        rate: Int,
        channels: Int,
    ): ByteArray

    @JvmStatic external fun hearWav(transcriber: Long, wav: ByteBuffer, offset: Long, length: Long): ByteArray

    @JvmStatic external fun free(transcriber: Long)
}

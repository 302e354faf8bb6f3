// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer

/** How a transcriber listens. What is `null` is as usual. */
public class TranscriberOptions {
    /** Write English, whatever is spoken. */
    public var translate: Boolean? = null

    /** Cut the text into segments with times. */
    public var timestamps: Boolean? = null

    /** How many texts go on at the same time, of which the likeliest is taken. */
    public var beams: Int? = null

    /** Let the model see the text of the windows before. */
    public var previous: Boolean? = null

    /** The probability from which a window is silent, unless its text is likely. */
    public var silence: Double? = null

    /** The most tokens of a window. */
    public var maxTokens: Int? = null

    /** The language that is spoken, such as `en`; empty: what the model hears. */
    public var language: String = ""

    /** What might have been said before: names and words that the sound may hold. */
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
        // In the order of their numbers, which begin with 1.
        listOf(translate?.number(), timestamps?.number(), beams, previous?.number(), silence, maxTokens)
            .forEachIndexed { index, value ->
                if (value != null) NativeTranscriber.set(transcriber, index + 1, value.toDouble())
            }
        NativeTranscriber.setLanguage(transcriber, language.encodeToByteArray())
        NativeTranscriber.setPrompt(transcriber, prompt.encodeToByteArray())
    }
}

/** A part of a sound, and what is said in it. */
public class Segment internal constructor(
    /** What is said. */
    public val text: String,
    /** Where it begins, in seconds. */
    public val start: Double,
    /** Where it ends, in seconds. */
    public val end: Double,
    /** The mean logarithm of the probabilities of its window's tokens. */
    public val logProbability: Float,
    /** The probability that its window is silent. */
    public val silence: Float,
) {
    override fun toString(): String = "$start to $end: $text"
}

/** What is said in a sound. */
public class Transcript internal constructor(
    /** The whole text. */
    public val text: String,
    /** The language that is spoken; empty where that is not known. */
    public val language: String,
    /** Its parts, in their order. */
    public val segments: List<Segment>,
) {
    override fun toString(): String = text

    internal companion object {
        fun read(bytes: ByteArray): Transcript = Unpacker(bytes).run {
            Transcript(text(), text(), list { Segment(text(), double(), double(), float(), float()) })
        }
    }
}

/** Writes down what is said. */
public class Transcriber internal constructor(pointer: Long) :
    WorkingHandle(Owner("transcriber", pointer, NativeTranscriber.stopper(pointer), NativeTranscriber::free)) {
    /** Writes down one channel of sound with [rate] samples in a second, full scale being -1 to 1. */
    public suspend fun transcribe(samples: FloatArray, rate: Int = 16_000): Transcript =
        work { Transcript.read(NativeTranscriber.hear(it, samples, natural("rate", rate))) }

    /**
     * The same of little-endian 16-bit samples, [channels] of them for each moment, from the buffer's position to its
     * limit. A direct buffer is not copied, and must stay as it is until the call ends.
     */
    public suspend fun transcribePcm16(pcm: ByteBuffer, rate: Int, channels: Int = 1): Transcript {
        if (channels !in 0..0xffff) throw SiskinException.Argument("channels", "is $channels; give 1 or a few")
        val sound = direct(pcm)
        return work {
            val (from, length) = sound.position().toLong() to sound.remaining().toLong()
            Transcript.read(NativeTranscriber.hearPcm16(it, sound, from, length, natural("rate", rate), channels))
        }
    }

    /** The same of the bytes of a WAVE file. */
    public suspend fun transcribeWav(wav: ByteBuffer): Transcript {
        val sound = direct(wav)
        return work {
            val (from, length) = sound.position().toLong() to sound.remaining().toLong()
            Transcript.read(NativeTranscriber.hearWav(it, sound, from, length))
        }
    }

    /** The same of the bytes of a WAVE file. */
    public suspend fun transcribeWav(wav: ByteArray): Transcript = transcribeWav(ByteBuffer.wrap(wav))

    /** The language that is spoken, such as `en`; empty: what the model hears. */
    public suspend fun setLanguage(language: String): Unit =
        briefly { NativeTranscriber.setLanguage(it, language.encodeToByteArray()) }

    /** What might have been said before: names and words that the sound may hold. Empty: nothing. */
    public suspend fun setPrompt(prompt: String): Unit =
        briefly { NativeTranscriber.setPrompt(it, prompt.encodeToByteArray()) }

    /** The buffer with a position of its own, copied where it is not a direct one. */
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

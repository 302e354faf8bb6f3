// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** A piece of an answer. */
public class Piece internal constructor(
    /**
     * Whole characters. Empty while a character is not whole, or what came may be the beginning of a stop text.
     */
    public val text: String,
    /** The bytes of the token, which may be a part of a character. */
    public val bytes: ByteArray,
    /** The token; `null` where text that was held back came at the end. */
    public val token: Int?,
    /** The logarithm of its probability, where the sampler was asked for it. */
    public val logProbability: Float?,
    /** The likeliest tokens in its place, where the sampler was asked for them. */
    public val top: List<Choice>,
) {
    override fun toString(): String = text

    internal companion object {
        /** The piece, or nothing where the answer is over; then [over] is told why. */
        fun read(bytes: ByteArray, over: (Ended?) -> Unit): Piece? = Unpacker(bytes).run {
            val isOver = flag()
            val ended = int()
            if (isOver) {
                over(Ended.entries.getOrNull(ended - 1))
                return null
            }
            val hasToken = flag()
            val token = int()
            val probability = float()
            Piece(
                text = text(),
                bytes = bytes(),
                token = token.takeIf { hasToken },
                logProbability = probability.takeUnless { it.isNaN() },
                top = list { Choice(int(), float()) },
            )
        }
    }
}

/** A token that might have been chosen. */
public class Choice internal constructor(
    /** Its id. */
    public val token: Int,
    /** The logarithm of its probability. */
    public val logProbability: Float,
)

/** Why an answer ended. */
public enum class Ended {
    /** The model ended it. */
    MODEL,

    /** A stop text came. */
    STOP,

    /** It has as many tokens as were wanted. */
    LENGTH,

    /** The context is full. */
    CONTEXT,
}

/** What a session gives back to the system. */
public enum class Trim {
    /** Memory that holds nothing. */
    UNUSED,

    /** All that was said and read as well: save it before. */
    ALL,
}

/** What a session has done so far. */
public class Stats internal constructor(
    /** Tokens that it holds. */
    public val position: Long,
    /** Tokens of prompts that were read; those that were known already are not counted. */
    public val promptTokens: Long,
    /** The time that took. */
    public val promptNanoseconds: Long,
    /** Tokens that were written. */
    public val tokens: Long,
    /** The time that took. */
    public val nanoseconds: Long,
) {
    override fun toString(): String = "Stats(position=$position, promptTokens=$promptTokens, tokens=$tokens)"

    internal companion object {
        fun read(bytes: ByteArray): Stats = Unpacker(bytes).run { Stats(long(), long(), long(), long(), long()) }
    }
}

internal object NativeSessionState {
    @JvmStatic external fun stats(session: Long): ByteArray

    @JvmStatic external fun memory(session: Long): ByteArray

    @JvmStatic external fun logits(session: Long): FloatArray

    @JvmStatic external fun forget(session: Long)

    @JvmStatic external fun rewind(session: Long, position: Int)

    @JvmStatic external fun save(session: Long, path: ByteArray)

    @JvmStatic external fun saveMemory(session: Long): ByteArray

    @JvmStatic external fun restore(session: Long, path: ByteArray)

    @JvmStatic external fun restoreMemory(session: Long, bytes: ByteArray)

    @JvmStatic external fun suspend(session: Long)

    @JvmStatic external fun resume(session: Long)

    @JvmStatic external fun trim(session: Long, level: Int)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** A piece of an answer. */
public class Piece internal constructor(
    /**
     * Whole characters. Empty while a character is incomplete, or while the text may be the beginning of a stop string.
     */
    public val text: String,
    /** The bytes of the token, which may be a partial character. */
    public val bytes: ByteArray,
    /** The token id; `null` for text that was held back until the end. */
    public val token: Int?,
    /** Its log-probability, if the sampler reports it. */
    public val logProbability: Float?,
    /** The most probable tokens at this position, if the sampler reports them. */
    public val top: List<Choice>,
) {
    override fun toString(): String = text

    internal companion object {
        /** Reads a piece, or returns `null` if the answer has ended; then [over] receives the finish reason. */
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

/** A candidate token. */
public class Choice internal constructor(
    /** The token id. */
    public val token: Int,
    /** Its log-probability. */
    public val logProbability: Float,
)

/** Finish reasons: why an answer ended. */
public enum class Ended {
    /** The model ended it with an end-of-sequence token. */
    MODEL,

    /** A stop string occurred. */
    STOP,

    /** The maximum number of tokens was reached. */
    LENGTH,

    /** The context is full. */
    CONTEXT,
}

/** What memory a session returns to the system. */
public enum class Trim {
    /** Memory that is not in use. */
    UNUSED,

    /** All messages and tokens as well: save the session before. */
    ALL,
}

/** Counters of a session. */
public class Stats internal constructor(
    /** Tokens in the KV cache. */
    public val position: Long,
    /** Prompt tokens that were computed; tokens that were already in the KV cache are not counted. */
    public val promptTokens: Long,
    /** The time spent in prefill. */
    public val promptNanoseconds: Long,
    /** Tokens that were generated. */
    public val tokens: Long,
    /** The time spent in prefill. */
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

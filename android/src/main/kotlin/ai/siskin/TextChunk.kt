// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** A token of a response, with the text that it completes. */
public class TextChunk internal constructor(
    /**
     * Whole characters. Empty while a character is incomplete, or while the text may be the beginning of a stop string.
     */
    public val text: String,
    /** The bytes of the token, which may be a partial character. */
    public val bytes: ByteArray,
    /** The token id; `null` for held-back text that is flushed at the end of the response. */
    public val token: Int?,
    /** The log-probability of the token, if [Sampler.logProbabilities] is set. */
    public val logProbability: Float?,
    /** The most probable tokens at this position, as many as [Sampler.topLogProbabilities]. */
    public val topLogProbabilities: List<TokenLogProbability>,
) {
    override fun equals(other: Any?): Boolean = this === other ||
        other is TextChunk && text == other.text && bytes.contentEquals(other.bytes) && token == other.token &&
        logProbability == other.logProbability && topLogProbabilities == other.topLogProbabilities

    override fun hashCode(): Int = 31 * (31 * text.hashCode() + bytes.contentHashCode()) + token.hashCode()

    override fun toString(): String = text
}

/** A token and its log-probability. */
@ConsistentCopyVisibility
public data class TokenLogProbability internal constructor(
    /** The token id. */
    public val token: Int,
    /** Its log-probability. */
    public val logProbability: Float,
)

/** How likely a text is. */
@ConsistentCopyVisibility
public data class TextScore internal constructor(
    /** The sum of the log-probabilities of its tokens, each given all before it. */
    public val logProbability: Double,
    /** The number of these tokens. */
    public val tokens: Int,
) {
    internal companion object {
        fun read(bytes: ByteArray): TextScore = Unpacker(bytes).run { TextScore(double(), int()) }
    }
}

/** Why generation ended. */
public enum class FinishReason {
    /** The model generated an end-of-sequence token. */
    EOS,

    /** A stop string occurred. */
    STOP,

    /** The maximum number of tokens was reached. */
    LENGTH,

    /** The context is full. */
    CONTEXT,

    /** The timeout of a request to an [Engine] expired. */
    TIMEOUT,

    /**
     * [CancellableHandle.cancel] ended the response or its prompt. [Session.generateText] continues a response, except
     * that of a [Generation].
     */
    CANCELED,
}

/** Receives the chunks of a response as they are generated. */
public fun interface TextChunkListener {
    /** Receives one chunk, on the thread of the blocking call. [Session.cancel] ends the response after it. */
    public fun onTextChunk(chunk: TextChunk)
}

/** The next chunk of a response, or the reason why it ended. */
internal class NextChunk(val chunk: TextChunk?, val finishReason: FinishReason?) {
    companion object {
        fun read(bytes: ByteArray): NextChunk = Unpacker(bytes).run {
            val isDone = boolean()
            val reason = FinishReason.entries.getOrNull(int() - 1)
            if (isDone) return NextChunk(null, reason)
            val hasToken = boolean()
            val token = int()
            val logProbability = float()
            val chunk = TextChunk(
                text = string(),
                bytes = bytes(),
                token = token.takeIf { hasToken },
                logProbability = logProbability.takeUnless { it.isNaN() },
                topLogProbabilities = list { TokenLogProbability(int(), float()) },
            )
            NextChunk(chunk, null)
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.runBlocking

/** Options for an encoder. `null` means the default. */
public class EncoderOptions {
    /**
     * Whether to use the model's task head: required by [Encoder.classify], [Encoder.rerank], [Encoder.tag],
     * [Encoder.answer] and [Encoder.fillMask]; must be off for [Encoder.embed].
     */
    public var useHead: Boolean = false

    /** The maximum number of tokens in one forward pass. Default: 512. */
    public var maxBatchTokens: Int? = null

    /** The dtype in which keys and values are kept during a pass. Default: the model's own. */
    public var kvCacheType: KvCacheType? = null

    /** What happens to texts with more tokens than the model supports. Default: [OverflowMode.Error]. */
    public var onOverflow: OverflowMode? = null

    /** How hidden states are pooled into one vector. Default: the model's own pooling. */
    public var pooling: Pooling? = null

    /**
     * Whether embeddings are normalized to unit length. Default: the model's own setting, or `true` if [pooling] or
     * [dimensions] is set.
     */
    public var normalize: Boolean? = null

    /** The number of leading dimensions to keep, for Matryoshka models. Default: all. */
    public var dimensions: Int? = null

    /**
     * When texts of [Encoder.classify] and [Encoder.rerank] leave the model before its last layer; `null`: never. Needs a
     * model with classification heads on intermediate layers.
     */
    public var earlyExit: EarlyExit? = null

    internal fun create(model: Long): Encoder =
        create { useHead, maxTokens, cacheType -> NativeEncoder.create(model, useHead, maxTokens, cacheType) }

    /** Creates an encoder by a function of whether it has the head, the maximum batch size, and the KV cache type. */
    internal fun create(native: (Boolean, Int, Int) -> Long): Encoder {
        val maxTokens = maxBatchTokens?.let { positive("maxBatchTokens", it) } ?: 0
        val encoder = Encoder(native(useHead, maxTokens, kvCacheType?.code ?: 0))
        try {
            encoder.native.withPointer(::copyTo)
        } catch (error: Throwable) {
            encoder.close()
            throw error
        }
        return encoder
    }

    private fun copyTo(encoder: Long) {
        onOverflow?.let { NativeEncoder.setOverflowMode(encoder, it.code, it.overlapTokens()) }
        if (pooling != null || normalize != null || dimensions != null) {
            val dimensions = dimensions?.let { positive("dimensions", it) } ?: 0
            NativeEncoder.setPooling(encoder, pooling?.code ?: 0, normalize ?: true, dimensions)
        }
        earlyExit?.let { NativeEncoder.setEarlyExit(encoder, it.code, it.threshold) }
    }
}

/** What happens to texts with more tokens than the model supports. */
public sealed class OverflowMode(internal val code: Int) {
    /** The call throws [SiskinException.TooLong]. */
    public data object Error : OverflowMode(0)

    /** Texts are truncated to the maximum length. */
    public data object Truncate : OverflowMode(1)

    /** Texts are split into overlapping windows. Tasks that need one result per text do not support it. */
    public data class Window(
        /** The number of tokens that adjacent windows share. */
        public val overlap: Int = 0,
    ) : OverflowMode(2)

    internal fun overlapTokens(): Int = if (this is Window) nonNegative("overlap", overlap) else 0
}

/** When a text has passed enough layers to be classified. */
public sealed class EarlyExit(internal val code: Int, internal val threshold: Float) {
    /** When the most likely class has at least this probability. */
    public data class Confidence(public val probability: Float) : EarlyExit(1, probability)

    /** When the entropy of the classes is below this, in nats (DeeBERT). */
    public data class Entropy(public val nats: Float) : EarlyExit(2, nats)

    /** When this many consecutive heads agree with the one before them (PABEE). */
    public data class Patience(public val heads: Int) : EarlyExit(3, heads.toFloat())
}

/** How hidden states are pooled into one vector. */
public enum class Pooling {
    /** The mean over all tokens. */
    MEAN,

    /** The first token (CLS). */
    FIRST,

    /** The last token. */
    LAST,

    /** The maximum of each dimension. */
    MAX,

    /** The mean, weighted by position: 1, 2, 3, ... */
    WEIGHTED,
    ;

    /** The native constant. */
    internal val code: Int
        get() = ordinal + 1
}

/** One result of an encoder: a class, a labeled span, an answer or a token. */
@ConsistentCopyVisibility
public data class Prediction internal constructor(
    /** The name of the class or label, or the text of the answer or token. */
    public val text: String,
    /** The range of the span in the input `String`; `null` if the result is not a span. */
    public val range: IntRange?,
    /** The probability, or the predicted value of a regression model. */
    public val score: Float,
    /** The token id; `null` if the result is not a token. */
    public val token: Int?,
)

/** Encodes texts in batches. */
public class Encoder internal constructor(pointer: Long) :
    CancellableHandle(NativePointer("encoder", pointer, NativeEncoder.cancelHandle(pointer), NativeEncoder::free)) {
    /** Returns the embedding of each text. */
    public suspend fun embed(texts: List<String>): List<FloatArray> =
        call { NativeEncoder.embed(it, texts.encodeToByteArrays()).asList() }

    /** Returns the embedding of a text. */
    public suspend fun embed(text: String): FloatArray = embed(listOf(text)).single()

    /** Returns the classes of each text, the most probable first. */
    public suspend fun classify(texts: List<String>): List<List<Prediction>> =
        call { read(texts, NativeEncoder.classify(it, texts.encodeToByteArrays())) }

    /** Returns the classes of a text, the most probable first. */
    public suspend fun classify(text: String): List<Prediction> = classify(listOf(text)).single()

    /**
     * Scores the relevance of each document to a query with a cross-encoder. Only the order of the scores is
     * meaningful.
     */
    public suspend fun rerank(query: String, documents: List<String>): List<Float> = call { pointer ->
        val scores = NativeEncoder.rerank(pointer, query.encodeToByteArray(), documents.encodeToByteArrays())
        read(documents, scores).map { it.first().score }
    }

    /** Returns the labeled spans of each text, such as named entities. */
    public suspend fun tag(texts: List<String>): List<List<Prediction>> =
        call { read(texts, NativeEncoder.tag(it, texts.encodeToByteArrays())) }

    /** Returns the labeled spans of a text. */
    public suspend fun tag(text: String): List<Prediction> = tag(listOf(text)).single()

    /**
     * Returns the most probable span of each context that answers the question (extractive question answering); `null`
     * if there is none.
     */
    public suspend fun answer(question: String, contexts: List<String>): List<Prediction?> = call { pointer ->
        val spans = NativeEncoder.answer(pointer, question.encodeToByteArray(), contexts.encodeToByteArrays())
        read(contexts, spans).map { it.firstOrNull() }
    }

    /** Returns the [count] most probable tokens for each mask token of a text. */
    public suspend fun fillMask(text: String, count: Int = 5): List<List<Prediction>> = call { pointer ->
        read(null, NativeEncoder.fillMask(pointer, text.encodeToByteArray(), positive("count", count)))
    }

    /**
     * Returns how many layers each text of the last call of [classify] or [rerank] passed, with
     * [EncoderOptions.earlyExit].
     */
    public suspend fun layers(): List<Int> = call { Unpacker(NativeEncoder.layers(it)).run { List(int()) { int() } } }

    /** Blocking variant of [embed], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun embedBlocking(texts: List<String>): List<FloatArray> = runBlocking { embed(texts) }

    /** Blocking variant of [classify], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun classifyBlocking(texts: List<String>): List<List<Prediction>> = runBlocking { classify(texts) }

    /** Blocking variant of [rerank], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun rerankBlocking(query: String, documents: List<String>): List<Float> =
        runBlocking { rerank(query, documents) }

    /** Blocking variant of [tag], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun tagBlocking(texts: List<String>): List<List<Prediction>> = runBlocking { tag(texts) }

    /** Blocking variant of [answer], for Java. Interrupting the thread cancels the call. */
    @Throws(InterruptedException::class)
    public fun answerBlocking(question: String, contexts: List<String>): List<Prediction?> =
        runBlocking { answer(question, contexts) }

    /** Blocking variant of [fillMask], for Java. Interrupting the thread cancels the call. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun fillMaskBlocking(text: String, count: Int = 5): List<List<Prediction>> =
        runBlocking { fillMask(text, count) }

    /** Reads the predictions of each text, and converts their UTF-8 offsets to ranges of the `String`. */
    private fun read(texts: List<String>?, bytes: ByteArray): List<List<Prediction>> = Unpacker(bytes).run {
        List(int()) { index ->
            val offsets = lazy(LazyThreadSafetyMode.NONE) { Utf16Offsets(texts?.get(index) ?: "") }
            list {
                val text = string()
                val start = int()
                val end = int()
                val isSpan = texts != null && end > start
                val range = if (isSpan) offsets.value[start] until offsets.value[end] else null
                Prediction(text, range, score = float(), token = int().takeIf { it != NO_TOKEN })
            }
        }
    }

    private companion object {
        const val NO_TOKEN = -1
    }
}

/** Maps UTF-8 byte offsets of a text to UTF-16 offsets. */
internal class Utf16Offsets(text: String) {
    private val offsets: IntArray

    init {
        var bytes = 0
        val all = IntArray(text.length * 3 + 1)
        var offset = 0
        while (offset < text.length) {
            val size = Character.charCount(text.codePointAt(offset))
            val width = text.substring(offset, offset + size).encodeToByteArray().size
            all.fill(offset, bytes, bytes + width)
            bytes += width
            offset += size
        }
        all[bytes] = offset
        offsets = all.copyOf(bytes + 1)
    }

    operator fun get(byte: Int): Int = offsets[byte.coerceIn(offsets.indices)]
}

internal object NativeEncoder {
    @JvmStatic external fun create(model: Long, useHead: Boolean, maxBatchTokens: Int, kvCacheType: Int): Long

    @JvmStatic external fun cancelHandle(encoder: Long): Long

    @JvmStatic external fun setOverflowMode(encoder: Long, mode: Int, overlap: Int)

    @JvmStatic external fun setPooling(encoder: Long, pooling: Int, normalize: Boolean, dimensions: Int)

    @JvmStatic external fun setEarlyExit(encoder: Long, criterion: Int, threshold: Float)

    @JvmStatic external fun layers(encoder: Long): ByteArray

    @JvmStatic external fun embed(encoder: Long, texts: Array<ByteArray>): Array<FloatArray>

    @JvmStatic external fun classify(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun rerank(encoder: Long, query: ByteArray, documents: Array<ByteArray>): ByteArray

    @JvmStatic external fun tag(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun answer(encoder: Long, question: ByteArray, contexts: Array<ByteArray>): ByteArray

    @JvmStatic external fun fillMask(encoder: Long, text: ByteArray, count: Int): ByteArray

    @JvmStatic external fun free(encoder: Long)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Options of an encoder. */
public class EncoderOptions {
    /**
     * Whether to use the model's head: required for classes, labels, scores and answers, not allowed for embeddings.
     */
    public var head: Boolean = false

    /** The maximum number of tokens of one forward pass; 0: 512. */
    public var batch: Int = 0

    /** The type of the KV cache. */
    public var cacheType: CacheType = CacheType.AUTO

    /** How texts with more tokens than the model's maximum are handled. */
    public var long: LongTexts = LongTexts.REFUSE

    /** The overlap of the windows of [LongTexts.PARTS], in tokens. */
    public var overlap: Int = 0

    /** How hidden states are pooled to one vector. */
    public var pooling: Pooling = Pooling.AUTO

    /**
     * Whether embeddings are normalized to unit length; `null`: the model's own setting, or `true` if [pooling] or
     * [columns] is set.
     */
    public var normalize: Boolean? = null

    /** How many dimensions of embeddings are kept, for Matryoshka models; 0: all. */
    public var columns: Int = 0

    internal fun open(model: Long): Encoder {
        val encoder = Encoder(NativeEncoder.create(model, head, natural("batch", batch), cacheType.ordinal))
        try {
            encoder.owner.lend(::fill)
        } catch (error: Throwable) {
            encoder.close()
            throw error
        }
        return encoder
    }

    private fun fill(encoder: Long) {
        NativeEncoder.setLong(encoder, long.ordinal, natural("overlap", overlap))
        if (pooling != Pooling.AUTO || normalize != null || columns != 0) {
            NativeEncoder.setPooling(encoder, pooling.ordinal, normalize ?: true, natural("columns", columns))
        }
    }
}

/** How texts with more tokens than the model's maximum are handled. */
public enum class LongTexts {
    /** Rejected. */
    REFUSE,

    /** Truncated to the model's maximum length. */
    CUT,

    /** Split into overlapping windows. */
    PARTS,
}

/** How hidden states are pooled to one vector. */
public enum class Pooling {
    /** The model's own pooling. */
    AUTO,

    /** The mean over all tokens. */
    MEAN,

    /** The first token (CLS). */
    FIRST,

    /** The last token. */
    LAST,

    /** The maximum of each column. */
    MAX,

    /** The mean, weighted by position: 1, 2, 3, ... */
    WEIGHTED,
}

/** One result of an encoder: a class, a labeled span, an answer or a token. */
public class Found internal constructor(
    /** The name of the class or label, the text of the answer or of the token. */
    public val text: String,
    /** The offset of its start in the text, in UTF-16 code units of the `String`. */
    public val start: Int,
    /** The offset of its end, exclusive. */
    public val end: Int,
    /** Its probability; the predicted value of a regression model. */
    public val score: Float,
    /** The token id, if the result is a token. */
    public val token: Int?,
) {
    override fun toString(): String = "$text ($score)"
}

/** Encodes whole texts in batches. */
public class Encoder internal constructor(pointer: Long) :
    WorkingHandle(Owner("encoder", pointer, NativeEncoder.stopper(pointer), NativeEncoder::free)) {
    /** Returns the embedding of each text. */
    public suspend fun embed(texts: List<String>): List<FloatArray> =
        work { NativeEncoder.embed(it, texts.encoded()).asList() }

    /** Returns the embedding of a text. */
    public suspend fun embed(text: String): FloatArray = embed(listOf(text)).single()

    /** Classifies each text, with the most probable class first. */
    public suspend fun classify(texts: List<String>): List<List<Found>> =
        work { read(texts, NativeEncoder.classify(it, texts.encoded())) }

    /** Classifies a text, with the most probable class first. */
    public suspend fun classify(text: String): List<Found> = classify(listOf(text)).single()

    /**
     * Scores the relevance of each text to a query with a cross-encoder, in the order of the texts. Only the order of
     * the scores is meaningful.
     */
    public suspend fun rerank(question: String, texts: List<String>): List<Float> = work { pointer ->
        val found = NativeEncoder.rerank(pointer, question.encodeToByteArray(), texts.encoded())
        read(texts, found).map { it.first().score }
    }

    /** Finds the labeled spans of each text, such as named entities. */
    public suspend fun tag(texts: List<String>): List<List<Found>> =
        work { read(texts, NativeEncoder.tag(it, texts.encoded())) }

    /** Finds the labeled spans of a text. */
    public suspend fun tag(text: String): List<Found> = tag(listOf(text)).single()

    /** Finds the most probable span of each text that answers a question; `null` if there is none. */
    public suspend fun answer(question: String, texts: List<String>): List<Found?> = work { pointer ->
        val found = NativeEncoder.answer(pointer, question.encodeToByteArray(), texts.encoded())
        read(texts, found).map { it.firstOrNull() }
    }

    /** Predicts the [count] most probable tokens for each mask token of a text. */
    public suspend fun fillMask(text: String, count: Int = 5): List<List<Found>> = work { pointer ->
        read(null, NativeEncoder.fillMask(pointer, text.encodeToByteArray(), natural("count", count)))
    }

    /** Reads the results of each text. Converts UTF-8 byte offsets of the library to UTF-16 offsets of strings. */
    private fun read(texts: List<String>?, bytes: ByteArray): List<List<Found>> = Unpacker(bytes).run {
        List(int()) { index ->
            val places = lazy(LazyThreadSafetyMode.NONE) { Places(texts?.get(index) ?: "") }
            list {
                val text = text()
                val (start, end) = int() to int()
                val score = float()
                val token = int().takeIf { it != -1 }
                val isRun = texts != null && end > start
                Found(text, if (isRun) places.value[start] else 0, if (isRun) places.value[end] else 0, score, token)
            }
        }
    }
}

/** Maps UTF-8 byte offsets of a text to UTF-16 offsets. */
internal class Places(text: String) {
    private val places: IntArray

    init {
        var bytes = 0
        val found = IntArray(text.length * 3 + 1)
        var at = 0
        while (at < text.length) {
            val size = Character.charCount(text.codePointAt(at))
            val width = text.substring(at, at + size).encodeToByteArray().size
            found.fill(at, bytes, bytes + width)
            bytes += width
            at += size
        }
        found[bytes] = at
        places = found.copyOf(bytes + 1)
    }

    operator fun get(byte: Int): Int = places[byte.coerceIn(places.indices)]
}

internal object NativeEncoder {
    @JvmStatic external fun create(model: Long, head: Boolean, batch: Int, cache: Int): Long

    @JvmStatic external fun stopper(encoder: Long): Long

    @JvmStatic external fun setLong(encoder: Long, kind: Int, overlap: Int)

    @JvmStatic external fun setPooling(encoder: Long, pooling: Int, normalize: Boolean, columns: Int)

    @JvmStatic external fun embed(encoder: Long, texts: Array<ByteArray>): Array<FloatArray>

    @JvmStatic external fun classify(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun rerank(encoder: Long, question: ByteArray, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun tag(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun answer(encoder: Long, question: ByteArray, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun fillMask(encoder: Long, text: ByteArray, count: Int): ByteArray

    @JvmStatic external fun free(encoder: Long)
}

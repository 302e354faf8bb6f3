// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How an encoder is opened. */
public class EncoderOptions {
    /**
     * Whether the model's head is used, which classes, labels, scores and answers need and vectors must not have.
     */
    public var head: Boolean = false

    /** The most tokens that go through the model at once; 0: 512. */
    public var batch: Int = 0

    /** The type of keys and values. */
    public var cacheType: CacheType = CacheType.AUTO

    /** What is done with texts that have more tokens than the model reads. */
    public var long: LongTexts = LongTexts.REFUSE

    /** How many tokens the parts of [LongTexts.PARTS] share. */
    public var overlap: Int = 0

    /** How hidden states become one vector. */
    public var pooling: Pooling = Pooling.AUTO

    /**
     * Whether vectors are brought to length one; `null`: what the model was made for, or `true` where [pooling] or
     * [columns] is set.
     */
    public var normalise: Boolean? = null

    /** How many columns of vectors are kept, for models that were trained to be cut off; 0: all. */
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
        if (pooling != Pooling.AUTO || normalise != null || columns != 0) {
            NativeEncoder.setPooling(encoder, pooling.ordinal, normalise ?: true, natural("columns", columns))
        }
    }
}

/** What is done with texts that have more tokens than the model reads. */
public enum class LongTexts {
    /** They are refused. */
    REFUSE,

    /** They are read as far as the model reads. */
    CUT,

    /** They are read in parts that share some tokens. */
    PARTS,
}

/** How hidden states become one vector. */
public enum class Pooling {
    /** What the model was made for. */
    AUTO,

    /** The mean over all tokens. */
    MEAN,

    /** The first token's. */
    FIRST,

    /** The last token's. */
    LAST,

    /** The largest of each column. */
    MAX,

    /** The mean with weights 1, 2, 3, ... */
    WEIGHTED,
}

/** Something that an encoder found: a class, a run with a label, an answer or a token. */
public class Found internal constructor(
    /** The name of the class or label, the words of the answer, or the text of the token. */
    public val text: String,
    /** Where it begins in the text, in characters of the `String`. */
    public val start: Int,
    /** The first character behind it. */
    public val end: Int,
    /** Its probability; of the classes of a model of numbers (`regression`), the number. */
    public val score: Float,
    /** The token, where it is one. */
    public val token: Int?,
) {
    override fun toString(): String = "$text ($score)"
}

/** Reads whole texts, many at a time. */
public class Encoder internal constructor(pointer: Long) :
    WorkingHandle(Owner("encoder", pointer, NativeEncoder.stopper(pointer), NativeEncoder::free)) {
    /** Makes a vector of each text. */
    public suspend fun embed(texts: List<String>): List<FloatArray> =
        work { NativeEncoder.embed(it, texts.encoded()).asList() }

    /** Makes a vector of a text. */
    public suspend fun embed(text: String): FloatArray = embed(listOf(text)).single()

    /** Tells the classes of each text, the likeliest first. */
    public suspend fun classify(texts: List<String>): List<List<Found>> =
        work { read(texts, NativeEncoder.classify(it, texts.encoded())) }

    /** Tells the classes of a text, the likeliest first. */
    public suspend fun classify(text: String): List<Found> = classify(listOf(text)).single()

    /** Scores how well each text goes with a question, in the order of the texts. Only the order means something. */
    public suspend fun rerank(question: String, texts: List<String>): List<Float> = work { pointer ->
        val found = NativeEncoder.rerank(pointer, question.encodeToByteArray(), texts.encoded())
        read(texts, found).map { it.first().score }
    }

    /** Finds the runs of each text that have a label, such as names. */
    public suspend fun tag(texts: List<String>): List<List<Found>> =
        work { read(texts, NativeEncoder.tag(it, texts.encoded())) }

    /** Finds the runs of a text that have a label. */
    public suspend fun tag(text: String): List<Found> = tag(listOf(text)).single()

    /** Finds the likeliest place of each text that answers a question; `null` where there is none. */
    public suspend fun answer(question: String, texts: List<String>): List<Found?> = work { pointer ->
        val found = NativeEncoder.answer(pointer, question.encodeToByteArray(), texts.encoded())
        read(texts, found).map { it.firstOrNull() }
    }

    /** Finds the [count] likeliest tokens for each masked place of a text. */
    public suspend fun fillMask(text: String, count: Int = 5): List<List<Found>> = work { pointer ->
        read(null, NativeEncoder.fillMask(pointer, text.encodeToByteArray(), natural("count", count)))
    }

    /** What was found for each text. The library counts bytes, and strings count UTF-16. */
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

/** Where in a string the bytes of its UTF-8 stand. */
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

    @JvmStatic external fun setPooling(encoder: Long, pooling: Int, normalise: Boolean, columns: Int)

    @JvmStatic external fun embed(encoder: Long, texts: Array<ByteArray>): Array<FloatArray>

    @JvmStatic external fun classify(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun rerank(encoder: Long, question: ByteArray, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun tag(encoder: Long, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun answer(encoder: Long, question: ByteArray, texts: Array<ByteArray>): ByteArray

    @JvmStatic external fun fillMask(encoder: Long, text: ByteArray, count: Int): ByteArray

    @JvmStatic external fun free(encoder: Long)
}

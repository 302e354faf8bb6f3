// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Generation options of a writer. `null` means the default of the model's configuration. */
public class Writing private constructor(private val make: (Long) -> Long) {
    /** The defaults of the model's configuration. */
    public constructor() : this(NativeWriting::create)

    /** The number of beams of beam search; 1: greedy decoding or sampling with one beam. */
    public var beams: Int? = null

    /** The number of texts returned for each input, best first. */
    public var best: Int? = null

    /** The maximum number of tokens of a text. */
    public var maxTokens: Int? = null

    /** Length penalty: the exponent of a text's length by which its score is divided. */
    public var lengthPenalty: Double? = null

    /** Diverse beam search: the number of groups that the beams are divided into. */
    public var groups: Int? = null

    /** Diverse beam search: the penalty of a group for tokens that other groups chose. */
    public var diversity: Double? = null

    /** How texts that are too long for the model are handled. Windows end at sentence boundaries. */
    public var long: LongTexts? = null

    /** The overlap of the windows of [LongTexts.PARTS], in tokens. */
    public var overlap: Int = 0

    /** The prefix of each text, such as the name of a task. */
    public var before: String? = null

    /** The sampling options for a single beam. */
    public var sampler: Sampler? = null

    internal fun <T> lend(model: Model, use: (Long) -> T): T =
        lent(model.owner.lend(make), NativeWriting::free) { writing ->
            // In the order of their native constants, which begin with 1.
            listOf<Number?>(beams, best, maxTokens, lengthPenalty, groups, diversity).forEachIndexed { index, value ->
                if (value != null) NativeWriting.set(writing, index + 1, value.toDouble())
            }
            long?.let { NativeWriting.setLong(writing, it.ordinal, natural("overlap", overlap)) }
            before?.let { NativeWriting.setBefore(writing, it.encodeToByteArray()) }
            sampler?.lend { NativeWriting.setSampler(writing, it) }
            use(writing)
        }

    /** Tasks. */
    public companion object {
        /** Summarization. */
        @JvmStatic
        public fun summary(): Writing = Writing(NativeWriting::createSummary)

        /**
         * Translation. Languages are given by the model's names for them, or by the language code that such a name
         * begins with; empty if the model supports a single language pair.
         */
        @JvmStatic
        public fun translation(from: String = "", to: String = ""): Writing = Writing { model ->
            NativeWriting.createTranslation(model, from.encodeToByteArray(), to.encodeToByteArray())
        }
    }
}

/** A generated text. */
public class Written internal constructor(
    /** The text. */
    public val text: String,
    /** Its token ids. */
    public val tokens: IntArray,
    /** Its length-penalized score: higher is better. */
    public val score: Double,
    /** Whether the model ended it; otherwise the length limit did. */
    public val ended: Boolean,
) {
    override fun toString(): String = text
}

/** Generates a text for each text of a batch: translations, summaries, continuations. */
public class Writer internal constructor(private val model: Model, pointer: Long) :
    WorkingHandle(Owner("writer", pointer, NativeWriter.stopper(pointer), NativeWriter::free)) {
    /** Generates texts for each text, best first; the model must still be open if [writing] is not `null`. */
    public suspend fun write(texts: List<String>, writing: Writing? = null): List<List<Written>> = work { pointer ->
        val source = texts.encoded()
        val written = when (writing) {
            null -> NativeWriter.write(pointer, source, 0)
            else -> writing.lend(model) { NativeWriter.write(pointer, source, it) }
        }
        Unpacker(written).run { list { list { Written(text(), ints(), double(), flag()) } } }
    }

    /** Generates a text for a text. */
    public suspend fun write(text: String, writing: Writing? = null): Written =
        write(listOf(text), writing).single().first()
}

internal object NativeWriting {
    @JvmStatic external fun create(model: Long): Long

    @JvmStatic external fun createSummary(model: Long): Long

    @JvmStatic external fun createTranslation(model: Long, from: ByteArray, to: ByteArray): Long

    @JvmStatic external fun set(writing: Long, option: Int, value: Double)

    @JvmStatic external fun setLong(writing: Long, kind: Int, overlap: Int)

    @JvmStatic external fun setBefore(writing: Long, before: ByteArray)

    @JvmStatic external fun setSampler(writing: Long, sampler: Long)

    @JvmStatic external fun free(writing: Long)
}

internal object NativeWriter {
    @JvmStatic external fun create(model: Long, rows: Int, context: Int): Long

    @JvmStatic external fun stopper(writer: Long): Long

    @JvmStatic external fun write(writer: Long, texts: Array<ByteArray>, writing: Long): ByteArray

    @JvmStatic external fun free(writer: Long)
}

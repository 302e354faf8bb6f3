// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How a writer writes. What is `null` is what the model's own configuration asks for. */
public class Writing private constructor(private val make: (Long) -> Long) {
    /** What the model's own configuration asks for. */
    public constructor() : this(NativeWriting::create)

    /** How many texts are begun at the same time, of which the likeliest are kept; 1: the likeliest token each time. */
    public var beams: Int? = null

    /** How many texts are given for each, the best first. */
    public var best: Int? = null

    /** The most tokens of a text. */
    public var maxTokens: Int? = null

    /** The power of a text's length that its score is divided by. */
    public var lengthPenalty: Double? = null

    /** Into how many groups beams are divided, each of which looks for something else. */
    public var groups: Int? = null

    /** What groups lose for the same tokens. */
    public var diversity: Double? = null

    /** What is done with texts that are too long for the model. Parts end where sentences do. */
    public var long: LongTexts? = null

    /** How many tokens the parts of [LongTexts.PARTS] share. */
    public var overlap: Int = 0

    /** What stands before each text, such as the name of a task. */
    public var before: String? = null

    /** How tokens are chosen where there is one beam. */
    public var sampler: Sampler? = null

    internal fun <T> lend(model: Model, use: (Long) -> T): T =
        lent(model.owner.lend(make), NativeWriting::free) { writing ->
            // In the order of their numbers, which begin with 1.
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
        /** A summary. */
        @JvmStatic
        public fun summary(): Writing = Writing(NativeWriting::createSummary)

        /**
         * A translation. Languages are named as the model names them, or by the code with which its own names begin;
         * empty where the model knows one pair alone.
         */
        @JvmStatic
        public fun translation(from: String = "", to: String = ""): Writing = Writing { model ->
            NativeWriting.createTranslation(model, from.encodeToByteArray(), to.encodeToByteArray())
        }
    }
}

/** A text that was written. */
public class Written internal constructor(
    /** The text. */
    public val text: String,
    /** Its tokens. */
    public val tokens: IntArray,
    /** How likely it is by its length: higher is better. */
    public val score: Double,
    /** Whether the model ended it; otherwise there was room for no more. */
    public val ended: Boolean,
) {
    override fun toString(): String = text
}

/** Writes texts for texts: translations, summaries, continuations. */
public class Writer internal constructor(private val model: Model, pointer: Long) :
    WorkingHandle(Owner("writer", pointer, NativeWriter.stopper(pointer), NativeWriter::free)) {
    /** Writes texts for each text, the best first; the model must still be open where [writing] is not `null`. */
    public suspend fun write(texts: List<String>, writing: Writing? = null): List<List<Written>> = work { pointer ->
        val source = texts.encoded()
        val written = when (writing) {
            null -> NativeWriter.write(pointer, source, 0)
            else -> writing.lend(model) { NativeWriter.write(pointer, source, it) }
        }
        Unpacker(written).run { list { list { Written(text(), ints(), double(), flag()) } } }
    }

    /** Writes a text for a text. */
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

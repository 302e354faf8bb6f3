// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.runBlocking

/** What an encoder–decoder model does with its input. */
public sealed class Seq2SeqTask {
    internal abstract fun createOptions(model: Long): Long

    /** Summarization. */
    public data object Summarize : Seq2SeqTask() {
        override fun createOptions(model: Long): Long = NativeSeq2SeqOptions.createSummary(model)
    }

    /**
     * Translation. Languages are given by the model's names for them, or by the language code that such a name begins
     * with. Models that support a single language pair need none.
     */
    public data class Translate
    @JvmOverloads
    constructor(
        /** The source language. */
        public val from: String? = null,
        /** The target language. */
        public val to: String? = null,
    ) : Seq2SeqTask() {
        override fun createOptions(model: Long): Long = NativeSeq2SeqOptions.createTranslation(
            model,
            from.orEmpty().encodeToByteArray(),
            to.orEmpty().encodeToByteArray(),
        )
    }
}

internal fun <T> Seq2SeqOptions.withNative(model: Model, use: (Long) -> T): T =
    useNative(model.native.withPointer(::createNative), NativeSeq2SeqOptions::free) { options ->
        copyTo(options)
        use(options)
    }

private fun Seq2SeqOptions.createNative(model: Long): Long =
    task?.createOptions(model) ?: NativeSeq2SeqOptions.create(model)

/** A generated text. */
public class GeneratedText internal constructor(
    /** The text. */
    public val text: String,
    /** Its token ids. */
    public val tokens: IntArray,
    /** Its length-penalized score: higher is better. */
    public val score: Double,
    /** [FinishReason.EOS], or [FinishReason.LENGTH] if the text reached the length limit. */
    public val finishReason: FinishReason,
) {
    override fun equals(other: Any?): Boolean = this === other ||
        other is GeneratedText && text == other.text && tokens.contentEquals(other.tokens) &&
        score == other.score && finishReason == other.finishReason

    override fun hashCode(): Int = 31 * (31 * text.hashCode() + tokens.contentHashCode()) + score.hashCode()

    override fun toString(): String = text
}

/** Generates output for each input text of a batch, with an encoder–decoder model: translations, summaries. */
public class Seq2Seq internal constructor(private val model: Model, pointer: Long) :
    CancellableHandle(NativePointer("seq2seq", pointer, NativeSeq2Seq.cancelHandle(pointer), NativeSeq2Seq::free)) {
    /**
     * Generates [Seq2SeqOptions.nBest] texts for each input, best first. The model must still be open if
     * [options] are given.
     */
    public suspend fun generate(texts: List<String>, options: Seq2SeqOptions? = null): List<List<GeneratedText>> =
        call { pointer ->
            val inputs = texts.encodeToByteArrays()
            val outputs = when (options) {
                null -> NativeSeq2Seq.generate(pointer, inputs, 0)
                else -> options.withNative(model) { NativeSeq2Seq.generate(pointer, inputs, it) }
            }
            Unpacker(outputs).run { list { list { readText() } } }
        }

    /** Generates the best text for one input. */
    public suspend fun generate(text: String, options: Seq2SeqOptions? = null): GeneratedText =
        generate(listOf(text), options).single().first()

    /** Generates the best text for one input: `seq2Seq.generate(text) { task = Seq2SeqTask.Summarize }`. */
    public suspend fun generate(text: String, options: Seq2SeqOptions.() -> Unit): GeneratedText =
        generate(text, Seq2SeqOptions().apply(options))

    /** Blocking variant of [generate], for Java. Interrupting the thread cancels the call. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun generateBlocking(texts: List<String>, options: Seq2SeqOptions? = null): List<List<GeneratedText>> =
        runBlocking { generate(texts, options) }

    private fun Unpacker.readText() =
        GeneratedText(string(), ints(), double(), if (boolean()) FinishReason.EOS else FinishReason.LENGTH)
}

internal object NativeSeq2Seq {
    @JvmStatic external fun create(model: Long, maxSequences: Int, context: Int): Long

    @JvmStatic external fun cancelHandle(seq2Seq: Long): Long

    @JvmStatic external fun generate(seq2Seq: Long, texts: Array<ByteArray>, options: Long): ByteArray

    @JvmStatic external fun free(seq2Seq: Long)
}

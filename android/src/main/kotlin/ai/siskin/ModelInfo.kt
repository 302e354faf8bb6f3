// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Properties of a model. */
@ConsistentCopyVisibility
public data class ModelInfo internal constructor(
    /** The model family, such as `llama`. */
    public val family: String,
    /** The context length that the model was trained for, in tokens. */
    public val contextLength: Long,
    /** The vocabulary size. */
    public val vocabularySize: Long,
    /** The hidden size. */
    public val hiddenSize: Long,
    /** The size of the file, in bytes. */
    public val fileSize: Long,
    /** The number of worker threads. */
    public val threads: Int,
    /** What the model can do. */
    public val capabilities: Set<Capability>,
    /** Warnings about how the model runs, for example that it cannot use the fast kernels. */
    public val warnings: List<String>,
) {
    internal companion object {
        fun read(bytes: ByteArray): ModelInfo = Unpacker(bytes).run {
            ModelInfo(
                family = string(),
                contextLength = long(),
                vocabularySize = long(),
                hiddenSize = long(),
                fileSize = long(),
                threads = int(),
                capabilities = Capability.fromBits(int()),
                warnings = list { string() },
            )
        }
    }
}

/** What a model can do. */
public enum class Capability {
    /** Text generation: sessions; with [ENCODE], also [Model.seq2Seq]. */
    GENERATE,

    /**
     * Encodes texts: [Model.encoder]. With [GENERATE], the model is an encoder-decoder model: use [Model.seq2Seq].
     */
    ENCODE,

    /** A chat template. */
    CHAT,

    /** A tokenizer: the model accepts text. */
    TOKENIZE,

    /** Speech to text: transcribers. */
    TRANSCRIBE,

    /** A classification head: [Encoder.classify], [Encoder.rerank]. */
    CLASSIFY,

    /** A token classification head: [Encoder.tag]. */
    TAG,

    /** An extractive question answering head: [Encoder.answer]. */
    ANSWER,

    /** A fill-mask head: [Encoder.fillMask]. */
    FILL_MASK,
    ;

    internal companion object {
        fun fromBits(bits: Int): Set<Capability> = entries.filter { bits shr it.ordinal and 1 != 0 }.toSet()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer

/**
 * A loaded model. Any threads may use it concurrently. Objects created from it keep what they need, so that it may be
 * closed first.
 */
public class Model internal constructor(pointer: Long) : Handle(Owner("model", pointer, 0, NativeModel::free)) {
    /** The properties of the model. */
    public val info: ModelInfo = ModelInfo.read(NativeModel.describe(pointer))

    /** Creates a session: one conversation or sequence. */
    public suspend fun session(options: SessionOptions): Session = make { pointer ->
        options.lend { how -> Session(NativeSession.create(pointer, how), Ability.CHATS in info.abilities) }
    }

    /** Creates a session: `model.session { context = 4096 }`. */
    public suspend fun session(options: SessionOptions.() -> Unit = {}): Session =
        session(SessionOptions().apply(options))

    /** Creates an encoder, for models that encode whole texts. */
    public suspend fun encoder(options: EncoderOptions): Encoder = make { pointer -> options.open(pointer) }

    /** Creates an encoder: `model.encoder { head = true }`. */
    public suspend fun encoder(options: EncoderOptions.() -> Unit = {}): Encoder =
        encoder(EncoderOptions().apply(options))

    /**
     * Creates a writer, for translations and summaries. [rows] is the number of sequences or beams that are generated
     * at the same time, 0: 32; [context] the maximum number of tokens of a text, 0: the model's own, but no more than
     * 1024.
     */
    public suspend fun writer(rows: Int = 0, context: Int = 0): Writer = make { pointer ->
        Writer(this, NativeWriter.create(pointer, natural("rows", rows), natural("context", context)))
    }

    /** Creates a transcriber, for speech-to-text models. */
    public suspend fun transcriber(options: TranscriberOptions): Transcriber = make { pointer -> options.open(pointer) }

    /** Creates a transcriber: `model.transcriber { timestamps = true }`. */
    public suspend fun transcriber(options: TranscriberOptions.() -> Unit = {}): Transcriber =
        transcriber(TranscriberOptions().apply(options))

    /** Returns the memory that a session with these options would use, without allocating it. */
    public fun plan(options: SessionOptions): Memory = owner.lend { pointer ->
        options.lend { how -> Memory.read(NativeModel.plan(pointer, how)) }
    }

    /** The same: `model.plan { context = 4096 }`. */
    public fun plan(options: SessionOptions.() -> Unit = {}): Memory = plan(SessionOptions().apply(options))

    /**
     * Tokenizes a text. [special] adds the special tokens that the model expects around a text; control tokens spelled
     * out in the text are always tokenized as plain text.
     */
    public fun tokenize(text: String, special: Boolean = true): IntArray =
        owner.lend { NativeModel.tokenize(it, text.encodeToByteArray(), special) }

    /** Returns the bytes of a token, which may be a partial character. */
    public fun tokenBytes(token: Int): ByteArray = owner.lend { NativeModel.token(it, token) }

    /**
     * Verifies all hashes of the model's file, which reads all of it. It cannot be stopped: cancellation waits until it
     * ends, and closing the model lets it run to its end.
     */
    public suspend fun verify(): Unit = aside({}, null) { owner.lend(NativeModel::verify) }

    /** Creates an object from the model, or frees it if the waiting coroutine was cancelled. */
    private suspend fun <T : Handle> make(open: (Long) -> T): T = aside({}, Handle::close) { owner.lend(open) }

    /** Opens models. */
    public companion object {
        /**
         * Opens the model at a path: a `.siskin` file, or a model in another format, which is packed once. The file
         * must not be written to or truncated while the model or anything created from it is open.
         */
        public suspend fun open(path: String, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.open(path.encodeToByteArray(), it) }

        /** The same: `Model.open(path) { threads = 2 }`. */
        public suspend fun open(path: String, options: ModelOptions.() -> Unit): Model =
            open(path, ModelOptions().apply(options))

        /**
         * Opens a `.siskin` model from [length] bytes of an open file starting at [offset]; 0 bytes: up to the end of
         * the file. The descriptor remains the caller's and may be closed afterwards.
         */
        public suspend fun openDescriptor(
            descriptor: Int,
            offset: Long = 0,
            length: Long = 0,
            options: ModelOptions = ModelOptions(),
        ): Model = open(options) {
            NativeModel.openDescriptor(descriptor, natural("offset", offset), natural("length", length), it)
        }

        /** Opens a `.siskin` model in memory, and copies it. */
        public suspend fun openCopy(bytes: ByteArray, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.openCopy(bytes, it) }

        /**
         * Opens a `.siskin` model in a direct buffer, from its position to its limit, without a copy. Its contents must
         * not change while the model or anything created from it is open; both keep a reference to the buffer.
         */
        public suspend fun openMemory(buffer: ByteBuffer, options: ModelOptions = ModelOptions()): Model {
            val (from, length) = buffer.position().toLong() to buffer.remaining().toLong()
            return open(options) { NativeModel.openMemory(buffer, from, length, it) }
        }

        private suspend fun open(options: ModelOptions, open: (Long) -> Long): Model {
            Library.load()
            val opening = Opening()
            return aside(opening::cancel, Handle::close) {
                Model(options.open({ opening.isWanted }, open))
            }
        }
    }

    /** Whether the coroutine that opens a model is still waiting for it. */
    private class Opening {
        @Volatile
        var isWanted = true

        fun cancel() {
            isWanted = false
        }
    }
}

/** Properties of a model. */
public class ModelInfo internal constructor(
    /** The name of its family, such as `llama`. */
    public val family: String,
    /** The context length that it was trained for, in tokens. */
    public val context: Long,
    /** The vocabulary size. */
    public val vocabulary: Long,
    /** The hidden size. */
    public val width: Long,
    /** The size of its file in bytes. */
    public val bytes: Long,
    /** The number of worker threads. */
    public val threads: Int,
    /** Its capabilities. */
    public val abilities: Set<Ability>,
    /** Notes on how it runs, such as that it is slower than possible. */
    public val notes: List<String>,
) {
    override fun toString(): String = "ModelInfo($family, context=$context, bytes=$bytes, $abilities)"

    internal companion object {
        fun read(bytes: ByteArray): ModelInfo = Unpacker(bytes).run {
            ModelInfo(
                family = text(),
                context = long(),
                vocabulary = long(),
                width = long(),
                bytes = long(),
                threads = int(),
                abilities = int().let { bits -> Ability.entries.filter { bits shr it.ordinal and 1 != 0 }.toSet() },
                notes = list { text() },
            )
        }
    }
}

/** Capabilities of a model. */
public enum class Ability {
    /** Text generation: sessions and writers. */
    WRITES,

    /** Encoding of whole texts: encoders, or writers if it also generates. */
    READS,

    /** A chat template. */
    CHATS,

    /** A tokenizer: it accepts text. */
    TAKES_TEXT,

    /** Speech to text: transcribers. */
    LISTENS,

    /** A classification head, which also scores pairs. */
    CLASSIFIES,

    /** A token classification head. */
    TAGS,

    /** An extractive question answering head. */
    ANSWERS,

    /** A fill-mask head. */
    FILLS,
}

internal object NativeModel {
    @JvmStatic external fun open(path: ByteArray, options: Long): Long

    @JvmStatic external fun openDescriptor(descriptor: Int, offset: Long, length: Long, options: Long): Long

    @JvmStatic external fun openCopy(bytes: ByteArray, options: Long): Long

    @JvmStatic external fun openMemory(buffer: ByteBuffer, offset: Long, length: Long, options: Long): Long

    @JvmStatic external fun describe(model: Long): ByteArray

    @JvmStatic external fun plan(model: Long, options: Long): ByteArray

    @JvmStatic external fun tokenize(model: Long, text: ByteArray, special: Boolean): IntArray

    @JvmStatic external fun token(model: Long, token: Int): ByteArray

    @JvmStatic external fun verify(model: Long)

    @JvmStatic external fun free(model: Long)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer

/**
 * An open model. Any threads may use it together. What is made of it keeps what it needs, so that it may be closed
 * first.
 */
public class Model internal constructor(pointer: Long) : Handle(Owner("model", pointer, 0, NativeModel::free)) {
    /** What the model is. */
    public val info: ModelInfo = ModelInfo.read(NativeModel.describe(pointer))

    /** Opens a session: one conversation or text. */
    public suspend fun session(options: SessionOptions): Session = make { pointer ->
        options.lend { how -> Session(NativeSession.create(pointer, how), Ability.CHATS in info.abilities) }
    }

    /** Opens a session: `model.session { context = 4096 }`. */
    public suspend fun session(options: SessionOptions.() -> Unit = {}): Session =
        session(SessionOptions().apply(options))

    /** Opens an encoder, for models that read whole texts. */
    public suspend fun encoder(options: EncoderOptions): Encoder = make { pointer -> options.open(pointer) }

    /** Opens an encoder: `model.encoder { head = true }`. */
    public suspend fun encoder(options: EncoderOptions.() -> Unit = {}): Encoder =
        encoder(EncoderOptions().apply(options))

    /**
     * Opens a writer, for translations and summaries. [rows] is how many texts or beams go on at the same time, 0: 32;
     * [context] the most tokens of a text, 0: the model's own, but no more than 1024.
     */
    public suspend fun writer(rows: Int = 0, context: Int = 0): Writer = make { pointer ->
        Writer(this, NativeWriter.create(pointer, natural("rows", rows), natural("context", context)))
    }

    /** Opens a transcriber, for models that listen. */
    public suspend fun transcriber(options: TranscriberOptions): Transcriber = make { pointer -> options.open(pointer) }

    /** Opens a transcriber: `model.transcriber { timestamps = true }`. */
    public suspend fun transcriber(options: TranscriberOptions.() -> Unit = {}): Transcriber =
        transcriber(TranscriberOptions().apply(options))

    /** What a session with these options would hold in memory; nothing of it is taken. */
    public fun plan(options: SessionOptions): Memory = owner.lend { pointer ->
        options.lend { how -> Memory.read(NativeModel.plan(pointer, how)) }
    }

    /** The same: `model.plan { context = 4096 }`. */
    public fun plan(options: SessionOptions.() -> Unit = {}): Memory = plan(SessionOptions().apply(options))

    /**
     * The tokens of a text. [special] says whether those that the model expects around a text are added; what the text
     * spells is never a special token.
     */
    public fun tokenize(text: String, special: Boolean = true): IntArray =
        owner.lend { NativeModel.tokenize(it, text.encodeToByteArray(), special) }

    /** The bytes that a token stands for, which may be a part of a character. */
    public fun tokenBytes(token: Int): ByteArray = owner.lend { NativeModel.token(it, token) }

    /**
     * Compares all hashes of the model's file with what they stand for, which reads all of it. It cannot be stopped: who
     * cancels it waits for its end, and who closes the model leaves it to end by itself.
     */
    public suspend fun verify(): Unit = aside({}, null) { owner.lend(NativeModel::verify) }

    /** Makes something of the model, or frees it where nobody waits for it any more. */
    private suspend fun <T : Handle> make(open: (Long) -> T): T = aside({}, Handle::close) { owner.lend(open) }

    /** Opens models. */
    public companion object {
        /**
         * Opens the model at a path: a `.siskin` file, or a model of another format, which is packed once. Nobody may
         * write to the file or shorten it while the model or anything made of it is open.
         */
        public suspend fun open(path: String, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.open(path.encodeToByteArray(), it) }

        /** The same: `Model.open(path) { threads = 2 }`. */
        public suspend fun open(path: String, options: ModelOptions.() -> Unit): Model =
            open(path, ModelOptions().apply(options))

        /**
         * Opens a `.siskin` model that is [length] bytes of an open file from [offset] on; 0 bytes: all that follow. The
         * descriptor stays the caller's, who may close it afterwards.
         */
        public suspend fun openDescriptor(
            descriptor: Int,
            offset: Long = 0,
            length: Long = 0,
            options: ModelOptions = ModelOptions(),
        ): Model = open(options) {
            NativeModel.openDescriptor(descriptor, natural("offset", offset), natural("length", length), it)
        }

        /** Opens a `.siskin` model that is in memory, and copies it. */
        public suspend fun openCopy(bytes: ByteArray, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.openCopy(bytes, it) }

        /**
         * Opens a `.siskin` model in a direct buffer, from its position to its limit, without a copy. Nobody may change
         * what is in it while the model or anything made of it is open, which keep the buffer.
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

    /** Whether somebody still waits for a model to be open. */
    private class Opening {
        @Volatile
        var isWanted = true

        fun cancel() {
            isWanted = false
        }
    }
}

/** What a model is. */
public class ModelInfo internal constructor(
    /** The name of its family, such as `llama`. */
    public val family: String,
    /** The most tokens that it was made for. */
    public val context: Long,
    /** Tokens of its vocabulary. */
    public val vocabulary: Long,
    /** Columns of its hidden states. */
    public val width: Long,
    /** Bytes of its file. */
    public val bytes: Long,
    /** Threads that compute. */
    public val threads: Int,
    /** What it can do. */
    public val abilities: Set<Ability>,
    /** Notes on how it runs, such as that it is slower than it could be. */
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

/** What a model can do. */
public enum class Ability {
    /** It writes: it can have sessions and writers. */
    WRITES,

    /** It reads whole texts: it can have encoders, or writers where it writes too. */
    READS,

    /** It has a chat template. */
    CHATS,

    /** It has a tokenizer: it takes text. */
    TAKES_TEXT,

    /** It listens: it can have transcribers. */
    LISTENS,

    /** Its head tells classes, and scores pairs. */
    CLASSIFIES,

    /** Its head labels tokens. */
    TAGS,

    /** Its head finds answers. */
    ANSWERS,

    /** Its head fills masked places. */
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

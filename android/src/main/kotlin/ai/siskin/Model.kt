// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer
import kotlinx.coroutines.runBlocking

/**
 * A loaded model. Thread-safe. Objects created from it keep its memory alive, so that it may be closed before them.
 *
 * ```
 * Model.open(path).use { model -> model.session().use { session -> ... } }
 * ```
 */
public class Model internal constructor(pointer: Long) : Handle(NativePointer("model", pointer, 0, NativeModel::free)) {
    /** The properties of the model. */
    public val info: ModelInfo = ModelInfo.read(NativeModel.describe(pointer))

    /**
     * The throttling mode, which limits inference speed. Applies to everything created from it, at any time. When the device cools down
     * after throttling, the duty cycle rises step by step.
     */
    public var throttle: Throttle = Throttle.Off
        @Synchronized get
        @Synchronized set(value) {
            native.withPointer { NativeThrottle.setMode(it, value.mode, value.value) }
            field = value
        }

    /** Sets the thermal state of the device, which [throttle] takes into account. */
    public fun updateThermalState(state: ThermalState): Unit =
        native.withPointer { NativeThrottle.setThermalState(it, state.ordinal) }

    /** Sets the power state of the device, which [throttle] takes into account. */
    public fun updatePowerState(state: PowerState): Unit = native.withPointer {
        NativeThrottle.setPowerState(it, state.isPowerSaveMode, state.isOnBattery, state.batteryLevel ?: -1f)
    }

    /** Returns throttling statistics. */
    public fun throttleStats(): ThrottleStats = ThrottleStats.read(native.withPointer(NativeThrottle::stats))

    /** Creates a session: one conversation or sequence. */
    public suspend fun session(options: SessionOptions): Session = create { pointer ->
        val hasChatTemplate = Capability.CHAT in info.capabilities
        options.withNative { Session(NativeSession.create(pointer, it), hasChatTemplate) }
    }

    /** Creates a session: `model.session { context = 4096 }`. */
    public suspend fun session(options: SessionOptions.() -> Unit = {}): Session =
        session(SessionOptions().apply(options))

    /** Creates an encoder. */
    public suspend fun encoder(options: EncoderOptions): Encoder = create { options.create(it) }

    /** Creates an encoder: `model.encoder { useHead = true }`. */
    public suspend fun encoder(options: EncoderOptions.() -> Unit = {}): Encoder =
        encoder(EncoderOptions().apply(options))

    /**
     * Creates a generator for encoder–decoder models, for translation and summarization. [maxSequences] is the maximum
     * number of sequences that are generated at the same time, counting every beam; by default 32. [context] is the
     * maximum number of tokens in a generated text, including its prompt; by default the model's own, capped at 1024.
     */
    public suspend fun seq2Seq(maxSequences: Int? = null, context: Int? = null): Seq2Seq = create { pointer ->
        val sequencesOrDefault = maxSequences?.let { positive("maxSequences", it) } ?: 0
        val contextOrDefault = context?.let { positive("context", it) } ?: 0
        Seq2Seq(this, NativeSeq2Seq.create(pointer, sequencesOrDefault, contextOrDefault))
    }

    /** Creates a transcriber, for speech-to-text models. */
    public suspend fun transcriber(options: TranscriberOptions): Transcriber = create { options.create(it) }

    /** Creates a transcriber: `model.transcriber { timestamps = true }`. */
    public suspend fun transcriber(options: TranscriberOptions.() -> Unit = {}): Transcriber =
        transcriber(TranscriberOptions().apply(options))

    /** Returns the memory that a session with these options would use, without allocating it. */
    public fun sessionMemory(options: SessionOptions): MemoryUsage = native.withPointer { pointer ->
        options.withNative { MemoryUsage.read(NativeModel.sessionMemory(pointer, it)) }
    }

    /** Returns the memory that a session would use: `model.sessionMemory { context = 4096 }`. */
    public fun sessionMemory(options: SessionOptions.() -> Unit = {}): MemoryUsage =
        sessionMemory(SessionOptions().apply(options))

    /**
     * Tokenizes text. [addSpecial] adds the special tokens that the model expects around a text. Special tokens in
     * the text are treated as plain text.
     */
    @JvmOverloads
    public fun tokenize(text: String, addSpecial: Boolean = true): IntArray =
        native.withPointer { NativeModel.tokenize(it, text.encodeToByteArray(), addSpecial) }

    /** Returns the bytes of a token, which may be a partial character. */
    public fun tokenBytes(token: Int): ByteArray = native.withPointer { NativeModel.tokenBytes(it, token) }

    /**
     * Verifies all hashes of the model's file, which reads the whole file. It cannot be interrupted: a canceled
     * coroutine does not resume until it finishes, and closing the model does not stop it.
     */
    public suspend fun verify(): Unit = runInBackground({}, null) { native.withPointer(NativeModel::verify) }

    /** Blocking variant of [session], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun sessionBlocking(options: SessionOptions = SessionOptions()): Session = runBlocking { session(options) }

    /** Blocking variant of [encoder], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun encoderBlocking(options: EncoderOptions = EncoderOptions()): Encoder = runBlocking { encoder(options) }

    /** Blocking variant of [seq2Seq], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun seq2SeqBlocking(maxSequences: Int? = null, context: Int? = null): Seq2Seq =
        runBlocking { seq2Seq(maxSequences, context) }

    /** Blocking variant of [transcriber], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun transcriberBlocking(options: TranscriberOptions = TranscriberOptions()): Transcriber =
        runBlocking { transcriber(options) }

    /** Creates a handle in the background, and closes it if the coroutine was canceled meanwhile. */
    private suspend fun <T : Handle> create(create: (Long) -> T): T =
        runInBackground({}, Handle::close) { native.withPointer(create) }

    /** Opens models. */
    public companion object {
        /**
         * Opens the model at a path: a `.siskin` file, or a model in another supported format, which is packed once.
         * The file must not be written to or truncated while the model or anything created from it is open.
         */
        public suspend fun open(path: String, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.open(path.encodeToByteArray(), it) }

        /** Opens the model at a path: `Model.open(path) { threads = 2 }`. */
        public suspend fun open(path: String, options: ModelOptions.() -> Unit): Model =
            open(path, ModelOptions().apply(options))

        /** Copies a `.siskin` model from memory and opens the copy. */
        public suspend fun open(bytes: ByteArray, options: ModelOptions = ModelOptions()): Model =
            open(options) { NativeModel.openCopy(bytes, it) }

        /**
         * Opens a `.siskin` model in a direct buffer, from its position to its limit, without a copy. Its contents must
         * not change while the model or anything created from it is open; both keep a reference to the buffer.
         */
        public suspend fun open(buffer: ByteBuffer, options: ModelOptions = ModelOptions()): Model {
            val offset = buffer.position().toLong()
            val length = buffer.remaining().toLong()
            return open(options) { NativeModel.openBuffer(buffer, offset, length, it) }
        }

        /**
         * Opens a `.siskin` model in [length] bytes of an open file, starting at [offset]; by default up to the end of
         * the file. The descriptor remains the caller's and may be closed afterwards. For best alignment, use an offset
         * that is a multiple of 16384.
         */
        public suspend fun openFileDescriptor(
            descriptor: Int,
            offset: Long = 0,
            length: Long? = null,
            options: ModelOptions = ModelOptions(),
        ): Model {
            val start = nonNegative("offset", offset)
            val lengthOrRest = length?.let { positive("length", it) } ?: 0
            return open(options) { NativeModel.openFileDescriptor(descriptor, start, lengthOrRest, it) }
        }

        /** Blocking variant of [open], for Java. Interrupting the thread cancels the call. */
        @JvmStatic
        @JvmOverloads
        @Throws(InterruptedException::class)
        public fun openBlocking(path: String, options: ModelOptions = ModelOptions()): Model =
            runBlocking { open(path, options) }

        /** Blocking variant of [openFileDescriptor], for Java. Interrupting the thread cancels the call. */
        @JvmStatic
        @JvmOverloads
        @Throws(InterruptedException::class)
        public fun openFileDescriptorBlocking(
            descriptor: Int,
            offset: Long = 0,
            length: Long? = null,
            options: ModelOptions = ModelOptions(),
        ): Model = runBlocking { openFileDescriptor(descriptor, offset, length, options) }

        private suspend fun open(options: ModelOptions, open: (Long) -> Long): Model {
            Library.load()
            val opening = Opening()
            return runInBackground(opening::cancel, Handle::close) {
                Model(options.open({ opening.isActive }, open))
            }
        }
    }

    /** Whether the coroutine that opens a model is still active. */
    private class Opening {
        @Volatile
        var isActive = true

        fun cancel() {
            isActive = false
        }
    }
}

internal object NativeModel {
    @JvmStatic external fun open(path: ByteArray, options: Long): Long

    @JvmStatic external fun openFileDescriptor(descriptor: Int, offset: Long, length: Long, options: Long): Long

    @JvmStatic external fun openCopy(bytes: ByteArray, options: Long): Long

    @JvmStatic external fun openBuffer(buffer: ByteBuffer, offset: Long, length: Long, options: Long): Long

    @JvmStatic external fun describe(model: Long): ByteArray

    @JvmStatic external fun sessionMemory(model: Long, options: Long): ByteArray

    @JvmStatic external fun tokenize(model: Long, text: ByteArray, addSpecial: Boolean): IntArray

    @JvmStatic external fun tokenBytes(model: Long, token: Int): ByteArray

    @JvmStatic external fun verify(model: Long)

    @JvmStatic external fun free(model: Long)
}

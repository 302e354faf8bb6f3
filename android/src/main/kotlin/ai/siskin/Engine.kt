// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.runBlocking

/**
 * Generates for many requests at once: they share forward passes, threads, memory and the KV cache of common prefixes.
 * The tokens of a request are those that a [Session] with the same options generates. Thread-safe.
 *
 * ```
 * Engine.create().use { engine ->
 *     val chat = engine.add(model)
 *     launch { chat.generate("Why is the sky blue?").collect { print(it) } }
 *     launch { chat.generate("What is a siskin?").collect { print(it) } }
 * }
 * ```
 *
 * Apps with a user interface should set [EngineOptions.backgroundThread]: a canceled request then ends within
 * milliseconds, whereas a thread that computes for other requests as well returns after the pass.
 *
 * Closing an engine neither waits for its calls nor ends its generations.
 */
public class Engine internal constructor(pointer: Long) :
    Handle(NativePointer("engine", pointer, 0, NativeEngine::free)) {
    /** Adds a decoder-only model, and reserves the memory of its KV cache. */
    public suspend fun add(model: Model, options: ServedModelOptions = ServedModelOptions()): ServedModel =
        runInBackground({}, null) {
            val hasChatTemplate = Capability.CHAT in model.info.capabilities
            val number = native.withPointer { engine ->
                model.native.withPointer { pointer ->
                    options.withNative { NativeEngine.addModel(engine, pointer, it) }
                }
            }
            ServedModel(this, number, hasChatTemplate)
        }

    /** Adds a decoder-only model: `engine.add(model) { context = 4096 }`. */
    public suspend fun add(model: Model, options: ServedModelOptions.() -> Unit): ServedModel =
        add(model, ServedModelOptions().apply(options))

    /** Blocking variant of [add], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun addBlocking(model: Model, options: ServedModelOptions = ServedModelOptions()): ServedModel =
        runBlocking { add(model, options) }

    /**
     * Creates an encoder that runs on the engine. The texts that it embeds share batches with those of other encoders of the
     * same model and options; predictions take turns with the engine's forward passes. The encoder keeps the engine alive.
     * [Encoder.embed] throws [SiskinException.Overloaded] if too many texts wait, and after [drain].
     */
    public suspend fun encoder(model: Model, options: EncoderOptions = EncoderOptions()): Encoder =
        runInBackground({}, Handle::close) {
            native.withPointer { engine ->
                model.native.withPointer { pointer ->
                    options.create { useHead, maxTokens, cacheType ->
                        NativeEngine.newEncoder(engine, pointer, useHead, maxTokens, cacheType)
                    }
                }
            }
        }

    /** Creates an encoder that runs on the engine: `engine.encoder(model) { pooling = Pooling.MEAN }`. */
    public suspend fun encoder(model: Model, options: EncoderOptions.() -> Unit): Encoder =
        encoder(model, EncoderOptions().apply(options))

    /** Blocking variant of [encoder], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun encoderBlocking(model: Model, options: EncoderOptions = EncoderOptions()): Encoder =
        runBlocking { encoder(model, options) }

    /**
     * Returns [model] on the engine's threads: its sessions, encoders, seq2seq generators and transcribers take turns
     * with the engine's forward passes instead of competing for the cores. Both share their weights, and either can be
     * closed first.
     */
    public fun attach(model: Model): Model = native.withPointer { engine ->
        model.native.withPointer { Model(NativeEngine.attachModel(engine, it)) }
    }

    /**
     * Rejects further requests with [SiskinException.Overloaded] from now on, waits until the others have ended, and
     * cancels any that are still running after [milliseconds], such as those whose tokens are not taken. Then cached
     * prefixes are written to [ServedModelOptions.prefixCacheDirectory], if any, for about ten seconds at most.
     */
    public suspend fun drain(milliseconds: Int): Unit = runInBackground({}, null) {
        native.withPointer { NativeEngine.drain(it, nonNegative("milliseconds", milliseconds)) }
    }

    /**
     * Removes the cached prefixes of all models, and releases unused memory to the system: for `onTrimMemory`. The memory
     * stays reserved, and requests use it again. Waits for the running forward pass.
     */
    public suspend fun trim(): Unit = runInBackground({}, null) { native.withPointer { NativeEngine.trim(it) } }

    /** Creates engines. */
    public companion object {
        /** Creates an engine without models. */
        @JvmStatic
        @JvmOverloads
        public fun create(options: EngineOptions = EngineOptions()): Engine {
            Library.load()
            return options.withNative { Engine(NativeEngine.create(it)) }
        }

        /** Creates an engine without models: `Engine.create { threads = 2 }`. */
        public fun create(options: EngineOptions.() -> Unit): Engine = create(EngineOptions().apply(options))
    }
}

/** A model of an [Engine]. Thread-safe. */
public class ServedModel internal constructor(
    /** The engine. */
    public val engine: Engine,
    private val number: Int,
    private val hasChatTemplate: Boolean,
) {
    /**
     * Creates a session, whose tokens are batched with those of requests and of other sessions of the engine. Its keys and
     * values occupy a part of the model's KV cache until it is closed. Memory options and forks are ignored: the context
     * length, the KV cache type and the window are those of the [ServedModelOptions]. The session keeps the engine alive.
     * Throws [SiskinException.Overloaded] if the model has [ServedModelOptions.maxSessions].
     */
    public suspend fun session(options: SessionOptions): Session = runInBackground({}, Handle::close) {
        engine.native.withPointer { pointer ->
            options.withNative { Session(NativeEngine.newSession(pointer, number, it), hasChatTemplate) }
        }
    }

    /** Creates a session: `served.session { maxTokens = 100 }`. */
    public suspend fun session(options: SessionOptions.() -> Unit = {}): Session =
        session(SessionOptions().apply(options))

    /** Blocking variant of [session], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun sessionBlocking(options: SessionOptions = SessionOptions()): Session = runBlocking { session(options) }

    /**
     * Streams the response to a prompt in whole characters: see [submit]. The request is submitted when the flow is
     * collected, and canceled with the collector. Throws [SiskinException.Canceled] if its timeout expires, or if
     * [Engine.drain] cancels it.
     */
    public fun generate(text: String, options: RequestOptions = RequestOptions()): Flow<String> =
        texts { submit(text, options) }

    /** Streams the response to a conversation in whole characters. */
    public fun generate(messages: List<Message>, options: RequestOptions = RequestOptions()): Flow<String> =
        texts { submit(messages, options) }

    private fun texts(submit: suspend () -> Generation): Flow<String> = flow {
        submit().use { generation ->
            while (true) {
                val chunk = generation.next() ?: break
                if (chunk.text.isNotEmpty()) emit(chunk.text)
            }
            generation.throwIfCut()
        }
    }

    /**
     * Submits a prompt, which becomes a user message if the model has a chat template, and otherwise a text to
     * continue. Special tokens in it are treated as plain text. Throws [SiskinException.Overloaded] if too many requests
     * wait, if the timeout of the request would expire before it starts, and after [Engine.drain].
     */
    public suspend fun submit(text: String, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native -> NativeEngine.submit(engine, number, text.encodeToByteArray(), native) }

    /** Submits a conversation. */
    public suspend fun submit(messages: List<Message>, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native ->
            NativeEngine.submitMessages(engine, number, messages.json().encodeToByteArray(), native)
        }

    /** Submits a prompt whose response must be [output], whatever the options say. */
    internal suspend fun submit(text: String, options: RequestOptions, output: StructuredOutput): Generation =
        submit(options) { engine, native ->
            output.copyTo(native)
            NativeEngine.submit(engine, number, text.encodeToByteArray(), native)
        }

    internal suspend fun submit(messages: List<Message>, options: RequestOptions, output: StructuredOutput): Generation =
        submit(options) { engine, native ->
            output.copyTo(native)
            NativeEngine.submitMessages(engine, number, messages.json().encodeToByteArray(), native)
        }

    /**
     * Submits a conversation in which the model may call tools. [messages] and [chatOptions] are those of
     * [Session.promptChat]; [Generation.message] returns the response.
     */
    public suspend fun submitChat(
        messages: String,
        chatOptions: String = "",
        options: RequestOptions = RequestOptions(),
    ): Generation = submit(options) { engine, native ->
        val text = messages.encodeToByteArray()
        NativeEngine.submitChat(engine, number, text, chatOptions.encodeToByteArray(), native)
    }

    /**
     * Submits a text to continue, bypassing the chat template. [parseSpecial] enables parsing of special tokens in the
     * text: do not set it for untrusted text.
     */
    public suspend fun submitRaw(
        text: String,
        parseSpecial: Boolean = false,
        options: RequestOptions = RequestOptions(),
    ): Generation = submit(options) { engine, native ->
        NativeEngine.submitRaw(engine, number, text.encodeToByteArray(), parseSpecial, native)
    }

    /** Submits tokens to continue. */
    public suspend fun submitTokens(tokens: IntArray, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native -> NativeEngine.submitTokens(engine, number, tokens, native) }

    private suspend fun submit(options: RequestOptions, submit: (Long, Long) -> Long): Generation =
        runInBackground({}, Handle::close) {
            engine.native.withPointer { pointer -> options.withNative { Generation(submit(pointer, it)) } }
        }

    /** Blocking variant of [submit], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun submitBlocking(text: String, options: RequestOptions = RequestOptions()): Generation =
        runBlocking { submit(text, options) }

    /** Blocking variant of [submit] with a whole conversation, for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun submitBlocking(messages: List<Message>, options: RequestOptions = RequestOptions()): Generation =
        runBlocking { submit(messages, options) }

    /**
     * Removes the model from its engine: rejects further requests, waits until the others have ended, and cancels any that
     * are still running after [milliseconds]. Its sessions throw from then on, and its memory is freed with the last of its
     * generations and sessions. To replace a model without interruption, add the new one, submit requests to it, then
     * remove the old one; the memory budget must have room for both. Otherwise remove the old one first, and close its
     * generations and sessions.
     */
    public suspend fun remove(milliseconds: Int): Unit = runInBackground({}, null) {
        engine.native.withPointer { NativeEngine.removeModel(it, number, nonNegative("milliseconds", milliseconds)) }
    }

    /** Returns the counters of the model's requests, as of its last forward pass. */
    public fun stats(): EngineStats = EngineStats.read(engine.native.withPointer { NativeEngine.stats(it, number) })
}

/** Counters of a model's requests. */
@ConsistentCopyVisibility
public data class EngineStats internal constructor(
    /** Requests that run now. */
    public val running: Long,
    /** Requests that wait now. */
    public val waiting: Long,
    /** Cached prefixes now. */
    public val cachedPrefixes: Long,
    /** Forward passes. */
    public val steps: Long,
    /** Rows (tokens) of all passes. */
    public val rows: Long,
    /** Tokens of requests when they started. */
    public val prefixQueriedTokens: Long,
    /** How many of these were found in the prefix cache. */
    public val prefixHitTokens: Long,
    /** Preemptions: requests that made room for others, and continued later. */
    public val preemptions: Long,
    /** Draft tokens that passes verified. */
    public val draftedTokens: Long,
    /** How many of these were correct. */
    public val acceptedTokens: Long,
    /** Tokens of prefixes that were read from [ServedModelOptions.prefixCacheDirectory]. */
    public val prefixRestoredTokens: Long,
    /** Blocks of the KV cache. */
    public val kvBlocks: Long,
    /** How many of these are free; cached prefixes hold others, which requests can take. */
    public val freeKvBlocks: Long,
) {
    internal companion object {
        fun read(bytes: ByteArray): EngineStats = Unpacker(bytes).run {
            EngineStats(
                long(), long(), long(), long(), long(), long(), long(), long(), long(), long(), long(), long(), long(),
            )
        }
    }
}

internal object NativeEngine {
    @JvmStatic external fun create(options: Long): Long

    @JvmStatic external fun addModel(engine: Long, model: Long, options: Long): Int

    @JvmStatic external fun newSession(engine: Long, model: Int, options: Long): Long

    @JvmStatic external fun newEncoder(engine: Long, model: Long, useHead: Boolean, maxBatchTokens: Int, cacheType: Int): Long

    @JvmStatic external fun attachModel(engine: Long, model: Long): Long

    @JvmStatic external fun submit(engine: Long, model: Int, text: ByteArray, options: Long): Long

    @JvmStatic external fun submitMessages(engine: Long, model: Int, json: ByteArray, options: Long): Long

    @JvmStatic external fun submitChat(
        engine: Long,
        model: Int,
        messages: ByteArray,
        chatOptions: ByteArray,
        options: Long,
    ): Long

    @JvmStatic external fun submitRaw(
        engine: Long,
        model: Int,
        text: ByteArray,
        parseSpecial: Boolean,
        options: Long,
    ): Long

    @JvmStatic external fun submitTokens(engine: Long, model: Int, tokens: IntArray, options: Long): Long

    @JvmStatic external fun stats(engine: Long, model: Int): ByteArray

    @JvmStatic external fun drain(engine: Long, milliseconds: Int)

    @JvmStatic external fun removeModel(engine: Long, model: Int, milliseconds: Int)

    @JvmStatic external fun trim(engine: Long)

    @JvmStatic external fun free(engine: Long)
}

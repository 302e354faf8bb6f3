// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

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
 * Closing an engine does not end its generations.
 */
public class Engine internal constructor(pointer: Long) :
    Handle(NativePointer("engine", pointer, 0, NativeEngine::free)) {
    /** Adds a decoder-only model, and reserves the memory of its KV cache. */
    public suspend fun add(model: Model, options: ServedModelOptions = ServedModelOptions()): ServedModel =
        runInBackground({}, null) {
            val number = native.withPointer { engine ->
                model.native.withPointer { pointer ->
                    options.withNative { NativeEngine.addModel(engine, pointer, it) }
                }
            }
            ServedModel(this, number)
        }

    /** Adds a decoder-only model: `engine.add(model) { context = 4096 }`. */
    public suspend fun add(model: Model, options: ServedModelOptions.() -> Unit): ServedModel =
        add(model, ServedModelOptions().apply(options))

    /**
     * Rejects further requests with [SiskinException.Overloaded], waits until the others have ended, and cancels those
     * that have not after [milliseconds].
     */
    public suspend fun drain(milliseconds: Int): Unit = runInBackground({}, null) {
        native.withPointer { NativeEngine.drain(it, nonNegative("milliseconds", milliseconds)) }
    }

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
) {
    /**
     * Streams the response to a prompt in whole characters: see [submit]. The request is submitted when the flow is
     * collected, and canceled with the collector.
     */
    public fun generate(text: String, options: RequestOptions = RequestOptions()): Flow<String> =
        texts { submit(text, options) }

    /** Streams the response to a conversation in whole characters. */
    public fun generate(messages: List<Message>, options: RequestOptions = RequestOptions()): Flow<String> =
        texts { submit(messages, options) }

    private fun texts(submit: () -> Generation): Flow<String> = flow {
        submit().use { generation ->
            while (true) {
                val chunk = generation.next() ?: break
                if (chunk.text.isNotEmpty()) emit(chunk.text)
            }
        }
    }

    /**
     * Submits a prompt, which becomes a user message if the model has a chat template, and otherwise a text to
     * continue. Special tokens in it are treated as plain text. Throws [SiskinException.Overloaded] if too many requests
     * wait.
     */
    @JvmOverloads
    public fun submit(text: String, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native -> NativeEngine.submit(engine, number, text.encodeToByteArray(), native) }

    /** Submits a conversation. */
    @JvmOverloads
    public fun submit(messages: List<Message>, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native ->
            NativeEngine.submitMessages(engine, number, messages.json().encodeToByteArray(), native)
        }

    /**
     * Submits a conversation in which the model may call tools. [messages] and [chatOptions] are those of
     * [Session.promptChat]; [Generation.message] returns the response.
     */
    @JvmOverloads
    public fun submitChat(
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
    @JvmOverloads
    public fun submitRaw(
        text: String,
        parseSpecial: Boolean = false,
        options: RequestOptions = RequestOptions(),
    ): Generation = submit(options) { engine, native ->
        NativeEngine.submitRaw(engine, number, text.encodeToByteArray(), parseSpecial, native)
    }

    /** Submits tokens to continue. */
    @JvmOverloads
    public fun submitTokens(tokens: IntArray, options: RequestOptions = RequestOptions()): Generation =
        submit(options) { engine, native -> NativeEngine.submitTokens(engine, number, tokens, native) }

    private inline fun submit(options: RequestOptions, crossinline submit: (Long, Long) -> Long): Generation =
        engine.native.withPointer { pointer -> options.withNative { Generation(submit(pointer, it)) } }

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
    /** Those of them that were found in the prefix cache. */
    public val prefixHitTokens: Long,
    /** Preemptions: requests that made room for others, and continued later. */
    public val preemptions: Long,
    /** Guessed tokens that passes verified. */
    public val draftedTokens: Long,
    /** Those of them that were right. */
    public val acceptedTokens: Long,
) {
    internal companion object {
        fun read(bytes: ByteArray): EngineStats = Unpacker(bytes).run {
            EngineStats(long(), long(), long(), long(), long(), long(), long(), long(), long(), long())
        }
    }
}

internal object NativeEngine {
    @JvmStatic external fun create(options: Long): Long

    @JvmStatic external fun addModel(engine: Long, model: Long, options: Long): Int

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

    @JvmStatic external fun free(engine: Long)
}

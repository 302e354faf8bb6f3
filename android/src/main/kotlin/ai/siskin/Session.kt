// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.FlowCollector
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking

/**
 * One conversation or sequence with its KV cache. Calls run one at a time, in the order in which they were made.
 *
 * ```
 * session.chat("Why is the sky blue?").collect { print(it) }
 * ```
 *
 * Flows are cold: nothing is computed until the flow is collected, then one token at a time. If a collector is
 * canceled, no token is lost: the next flow begins with what the collector did not receive. Operators that buffer, such
 * as `flowOn`, `buffer` and `collectLatest`, lose their buffers.
 */
public class Session internal constructor(pointer: Long, private val hasChatTemplate: Boolean) :
    CancellableHandle(NativePointer("session", pointer, NativeSession.cancelHandle(pointer), NativeSession::free)) {
    private val isPaused = MutableStateFlow(false)

    /**
     * The number of cancellations that took effect or preceded the response; a later one ends the response before its
     * next token. Guarded by the call lock.
     */
    private var cancellationsSeen = 0

    /** Whether a response has started and has not finished. Guarded by the call lock. */
    private var isAnswering = false

    /** A chunk that was generated for a collector that was canceled. Guarded by the call lock. */
    private var undelivered: TextChunk? = null

    /** What responses must be. */
    @Volatile
    internal var structuredOutput: StructuredOutput? = null
        private set

    /** Why the last response ended; `null` while it is being generated. */
    @Volatile
    public var finishReason: FinishReason? = null
        private set

    /** Adds a message to the conversation, before the next prompt, such as one with the role `system`. */
    public suspend fun addMessage(role: String, content: String): Unit =
        shortCall { NativeSession.addMessage(it, role.encodeToByteArray(), content.encodeToByteArray()) }

    /**
     * Adds a user message and streams the response in whole characters. Canceling the collection stops generation;
     * [generateText] continues it. The flow completes early if [cancel] is called: see [finishReason].
     */
    public fun chat(text: String): Flow<String> = textFlow { prompt(text) }

    /** Streams the response to a conversation, which replaces the previous one. A shared prefix is not recomputed. */
    public fun chat(messages: List<Message>): Flow<String> = textFlow { prompt(messages) }

    /**
     * Streams the content of the response to a conversation in which the model may call tools; [message] returns all of
     * it. See [promptChat].
     */
    public fun chat(messages: String, options: String): Flow<String> = textFlow { promptChat(messages, options) }

    /** Streams a raw completion in whole characters, bypassing the chat template. */
    public fun complete(text: String, parseSpecial: Boolean = false): Flow<String> = textFlow {
        repeatAfterPause { since -> promptRaw(text, parseSpecial, since) }
    }

    /** Streams the rest of the response in whole characters. The flow is suspended while the session is paused. */
    public fun generateText(): Flow<String> = textFlow {}

    /** Streams the rest of the response token by token. The flow is suspended while the session is paused. */
    public fun generateChunks(): Flow<TextChunk> = unbufferedFlow {
        while (true) emit(next() ?: break)
    }

    private inline fun textFlow(crossinline prompt: suspend () -> Unit): Flow<String> = unbufferedFlow {
        generate({ prompt() }) { if (it.text.isNotEmpty()) emit(it.text) }
    }

    /** Calls [prompt] and generates the response, until it ends or [cancel] is called. */
    private suspend inline fun generate(prompt: () -> Unit, emit: (TextChunk) -> Unit) {
        try {
            prompt()
        } catch (_: SiskinException.Canceled) {
            return
        }
        while (true) emit(next() ?: break)
    }

    /**
     * Starts a response to a prompt, which [next] then generates. The prompt becomes a user message if the model has a
     * chat template, the encoder input if it is an encoder–decoder model, and otherwise a text to continue. Special
     * tokens in the text are treated as plain text. Suspends while the session is paused. After a cancellation, the
     * text is not part of the conversation, except as described for [CancellableHandle].
     */
    public suspend fun prompt(text: String): Unit = repeatAfterPause { since ->
        begin(comparesPrefix = hasChatTemplate, since) { NativeSession.prompt(it, text.encodeToByteArray()) }
    }

    /** Starts a response to a conversation: see [chat]. Suspends while the session is paused. */
    public suspend fun prompt(messages: List<Message>): Unit = repeatAfterPause { since ->
        begin(comparesPrefix = true, since) { NativeSession.promptMessages(it, messages.json().encodeToByteArray()) }
    }

    /**
     * Starts a response to a conversation in which the model may call tools. [messages] is a JSON array of messages in
     * OpenAI's form, and [options] a JSON object with `tools`, `tool_choice`, `parallel_tool_calls`, `reasoning_effort`,
     * `reasoning_budget` and `chat_template_kwargs`, or empty. The chunks have the content of the response, without
     * reasoning and tool calls: see [message]. Suspends while the session is paused.
     */
    public suspend fun promptChat(messages: String, options: String = ""): Unit = repeatAfterPause { since ->
        begin(comparesPrefix = true, since) {
            NativeSession.promptChat(it, messages.encodeToByteArray(), options.encodeToByteArray())
            structuredOutput = null
        }
    }

    /**
     * Returns the assistant's message as far as it was generated after [promptChat]: a JSON object in OpenAI's form, with
     * `content`, `reasoning_content` and `tool_calls`.
     */
    public suspend fun message(): String = shortCall { NativeSession.message(it).decodeToString() }

    /**
     * Starts a raw completion, bypassing the chat template. [parseSpecial] enables parsing of special tokens in the
     * text: do not set it for untrusted text. An empty text continues the previous one. Throws [SiskinException.Paused]
     * if the session is or becomes paused.
     */
    public suspend fun promptRaw(text: String, parseSpecial: Boolean = false): Unit =
        promptRaw(text, parseSpecial, cancelCount.value)

    /**
     * Appends tokens to the session and starts their completion. Throws [SiskinException.Paused] if the session is or
     * becomes paused.
     */
    public suspend fun promptTokens(tokens: IntArray): Unit =
        begin(comparesPrefix = false, cancelCount.value) { NativeSession.promptTokens(it, tokens) }

    /**
     * Returns the next token of the response and its text, or `null` if the response has ended: [finishReason] says
     * why. After [cancel], or if the coroutine is canceled, the response is unchanged, and the next call continues it.
     * Suspends while the session is paused.
     */
    public suspend fun next(): TextChunk? = repeatAfterPause { since ->
        val keep = { chunk: TextChunk? -> if (chunk != null) undelivered = chunk }
        try {
            call(keep, ::onAnswerCanceled) { nextChunk(it, since) }
        } catch (_: SiskinException.Canceled) {
            null
        }
    }

    private fun nextChunk(pointer: Long, since: Int): TextChunk? {
        val count = cancelCount.value
        if (isAnswering && count != cancellationsSeen || count != since) {
            cancellationsSeen = count
            onAnswerCanceled()
            return null
        }
        finishReason = finishReason.takeUnless { it == FinishReason.CANCELED }
        undelivered?.let { chunk ->
            undelivered = null
            return chunk
        }
        val next = NextChunk.read(NativeSession.next(pointer))
        if (next.chunk == null) {
            finishReason = next.finishReason
            isAnswering = false
        }
        return next.chunk
    }

    /**
     * Creates a session that continues from here, and shares the KV cache of the tokens so far: see
     * [SessionOptions.forks]. A response that is not finished continues in this session alone.
     */
    public suspend fun fork(): Session =
        call(undelivered = Session::close) { pointer ->
            Session(NativeSession.fork(pointer), hasChatTemplate).also { it.structuredOutput = structuredOutput }
        }

    /**
     * Appends a text, bypassing the chat template, and returns how likely it was given the tokens before it. The first
     * token of an empty session has no probability. To compare several texts, [fork] or [rewind] the session.
     * [parseSpecial] enables parsing of special tokens in the text: do not set it for untrusted text.
     */
    public suspend fun scoreText(text: String, parseSpecial: Boolean = false): TextScore = call { pointer ->
        val score = TextScore.read(NativeSession.scoreText(pointer, text.encodeToByteArray(), parseSpecial))
        clearAnswer(isAnswering = false)
        score
    }

    /** Sets the maximum number of tokens in later responses; `null` means limited only by the context. */
    public suspend fun setMaxTokens(tokens: Int?): Unit =
        shortCall { NativeSession.setMaxTokens(it, tokens?.let { count -> positive("tokens", count) } ?: 0) }

    /** Sets what later responses must be; `null`: any text. */
    public suspend fun setStructuredOutput(output: StructuredOutput?): Unit = shortCall {
        NativeSession.setStructuredOutput(it, output?.kind ?: 0, output?.definition.orEmpty().encodeToByteArray())
        structuredOutput = output
    }

    /** Returns the session statistics. */
    public suspend fun stats(): SessionStats = shortCall { SessionStats.read(NativeSessionState.stats(it)) }

    /** Returns the memory that the session uses. */
    public suspend fun memoryUsage(): MemoryUsage = shortCall { MemoryUsage.read(NativeSessionState.memory(it)) }

    /** Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token. */
    public suspend fun logits(): FloatArray = shortCall(NativeSessionState::logits)

    /** Removes all messages and tokens, and drops the current response. */
    public suspend fun reset(): Unit = dropAnswer(NativeSessionState::reset)

    /**
     * Truncates the sequence to its first [position] tokens, removes all messages, and drops the current response.
     * Prompts continue after those tokens.
     */
    public suspend fun rewind(position: Int): Unit =
        dropAnswer { NativeSessionState.rewind(it, nonNegative("position", position)) }

    /**
     * Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
     * conversation in plain text; protect it accordingly.
     */
    public suspend fun save(path: String): Unit = call { NativeSessionState.save(it, path.encodeToByteArray()) }

    /** Saves the state to memory. */
    public suspend fun save(): ByteArray = call(block = NativeSessionState::saveMemory)

    /**
     * Restores what [save] wrote, replacing the state of the session. It must come from the same model, and from a
     * session with the same KV cache dtype and sliding window.
     */
    public suspend fun restore(path: String): Unit =
        dropAnswer { NativeSessionState.restore(it, path.encodeToByteArray()) }

    /** Restores the state from memory. */
    public suspend fun restore(bytes: ByteArray): Unit =
        dropAnswer { NativeSessionState.restoreMemory(it, bytes) }

    /** Returns memory to the system, which commits it again on demand. Waits for a running call. */
    public suspend fun trimMemory(level: TrimLevel): Unit = call { pointer ->
        NativeSessionState.trim(pointer, level.code)
        if (level == TrimLevel.ALL) undelivered = null
    }

    /**
     * Pauses the session, for when the app goes to the background. A running call ends within milliseconds, and nothing
     * is lost. [next], [prompt] and all flows are suspended until [resume]; they still end if they are canceled, and
     * throw [SiskinException.Closed] if the session is closed. [promptRaw] and [promptTokens] throw
     * [SiskinException.Paused]. A paused session can be saved and trimmed.
     */
    public fun pause(): Unit = synchronized(isPaused) {
        isPaused.value = true
        try {
            native.withPointer(NativeSessionState::pause)
        } catch (error: Throwable) {
            isPaused.value = false
            throw error
        }
    }

    /** Resumes the session after [pause]. */
    public fun resume(): Unit = synchronized(isPaused) {
        native.withPointer { pointer ->
            NativeSessionState.resume(pointer)
            repeatCancellation()
        }
        isPaused.value = false
    }

    override fun close() {
        try {
            super.close()
        } finally {
            isPaused.value = false
        }
    }

    /**
     * Blocking variant of [chat], for Java. Passes each chunk of the response to [listener], and returns the whole
     * response. Interrupting the thread cancels the call; an exception thrown by the listener ends it.
     */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun chatBlocking(text: String, listener: TextChunkListener? = null): String =
        collectBlocking(listener) { prompt(text) }

    /** Blocking variant of [chat] with a whole conversation, for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun chatBlocking(messages: List<Message>, listener: TextChunkListener? = null): String =
        collectBlocking(listener) { prompt(messages) }

    /** Blocking variant of [complete], for Java. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun completeBlocking(text: String, listener: TextChunkListener? = null): String =
        collectBlocking(listener) { repeatAfterPause { since -> promptRaw(text, parseSpecial = false, since) } }

    /** Blocking variant of [generateChunks], for Java: generates the rest of the response. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun generateBlocking(listener: TextChunkListener? = null): String = collectBlocking(listener) {}

    private inline fun collectBlocking(
        listener: TextChunkListener?,
        crossinline prompt: suspend () -> Unit,
    ): String = runBlocking {
        val answer = StringBuilder()
        generate({ prompt() }) { chunk ->
            answer.append(chunk.text)
            listener?.onTextChunk(chunk)
        }
        answer.toString()
    }

    override fun onCallCanceled(since: Int) {
        // If an earlier cancellation is still pending, it ends the response before its next token.
        if (cancellationsSeen == since) cancellationsSeen = cancelCount.value
    }

    private fun onAnswerCanceled() {
        finishReason = FinishReason.CANCELED
    }

    /**
     * Starts a response; fails if [cancel] has been called more than [since] times. If [comparesPrefix] is set, the
     * call compares the session with the whole prompt, so that it can be retried after any interruption; other calls
     * can only be repeated if they processed no token.
     */
    private suspend fun begin(comparesPrefix: Boolean, since: Int, prompt: (Long) -> Unit): Unit =
        call(canceled = ::onAnswerCanceled) { pointer ->
            if (cancelCount.value != since) {
                onAnswerCanceled()
                throw canceledPrompt()
            }
            val before = position(pointer)
            try {
                prompt(pointer)
            } catch (interrupted: SiskinException.Canceled) {
                val isUnchanged = comparesPrefix || position(pointer) == before
                throw if (isUnchanged) interrupted else pausedMidPrompt()
            }
            clearAnswer(isAnswering = true)
            cancellationsSeen = since
        }

    private suspend fun promptRaw(text: String, parseSpecial: Boolean, since: Int): Unit =
        begin(comparesPrefix = false, since) { NativeSession.promptRaw(it, text.encodeToByteArray(), parseSpecial) }

    private suspend fun dropAnswer(block: (Long) -> Unit): Unit = call { pointer ->
        block(pointer)
        clearAnswer(isAnswering = false)
    }

    private fun clearAnswer(isAnswering: Boolean) {
        undelivered = null
        finishReason = null
        this.isAnswering = isAnswering
    }

    private fun canceledPrompt() =
        SiskinException.Canceled(native.name, "the prompt was canceled; it can be retried", isByCaller = true)

    private fun pausedMidPrompt() = SiskinException.Paused(
        native.name,
        "was paused after processing part of the prompt; resume and rewind it, and repeat the prompt",
        isRepeatable = false,
    )

    private fun position(pointer: Long) = SessionStats.read(NativeSessionState.stats(pointer)).position

    /**
     * Runs [call], and retries it if a pause interrupted or rejected it, once the session is resumed or [cancel] is
     * called. [call] receives the number of earlier cancellations, and ends if there are more.
     */
    private suspend inline fun <T> repeatAfterPause(call: (Int) -> T): T {
        val since = cancelCount.value
        while (true) {
            try {
                return call(since)
            } catch (paused: SiskinException.Paused) {
                if (!paused.isRepeatable) throw paused
            }
            combine(isPaused, cancelCount) { paused, count -> !paused || count != since }.first { it }
        }
    }
}

/** A flow whose values go straight to the collector, without a buffer that a cancellation could lose. */
private inline fun <T> unbufferedFlow(crossinline block: suspend FlowCollector<T>.() -> Unit): Flow<T> =
    object : Flow<T> {
        override suspend fun collect(collector: FlowCollector<T>) = collector.block()
    }

internal object NativeSession {
    @JvmStatic external fun create(model: Long, options: Long): Long

    @JvmStatic external fun cancelHandle(session: Long): Long

    @JvmStatic external fun addMessage(session: Long, role: ByteArray, content: ByteArray)

    @JvmStatic external fun prompt(session: Long, text: ByteArray)

    @JvmStatic external fun promptRaw(session: Long, text: ByteArray, parseSpecial: Boolean)

    @JvmStatic external fun promptMessages(session: Long, json: ByteArray)

    @JvmStatic external fun promptChat(session: Long, messages: ByteArray, options: ByteArray)

    @JvmStatic external fun message(session: Long): ByteArray

    @JvmStatic external fun promptTokens(session: Long, tokens: IntArray)

    @JvmStatic external fun fork(session: Long): Long

    @JvmStatic external fun scoreText(session: Long, text: ByteArray, parseSpecial: Boolean): ByteArray

    @JvmStatic external fun next(session: Long): ByteArray

    @JvmStatic external fun setMaxTokens(session: Long, tokens: Int)

    @JvmStatic external fun setStructuredOutput(session: Long, kind: Int, definition: ByteArray)

    @JvmStatic external fun free(session: Long)
}

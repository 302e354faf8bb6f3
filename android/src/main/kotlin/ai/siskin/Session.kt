// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.FlowCollector
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.first

/**
 * One conversation or sequence with its KV cache. Calls run one after the other, and change the conversation in that
 * order.
 *
 * ```
 * session.chat("Why is the sky blue?").collect { print(it) }
 * ```
 *
 * A cancelled flow loses nothing: the next flow begins with what its collector did not receive. Operators that buffer,
 * such as `flowOn`, `buffer` and `collectLatest`, lose their buffers when they are cancelled.
 */
public class Session internal constructor(pointer: Long, private val chats: Boolean) :
    WorkingHandle(Owner("session", pointer, NativeSession.stopper(pointer), NativeSession::free)) {
    private val held = MutableStateFlow(false)

    /**
     * How many of the stops took effect, or came before the answer began; the others end its next piece. Guarded by the
     * turn.
     */
    private var stopsDone = 0

    /** Whether an answer has begun and has not ended. Guarded by the turn. */
    private var isAnswering = false

    /** A piece that was computed for a collector that was cancelled. Guarded by the turn. */
    private var kept: Piece? = null

    /** The finish reason of the answer; `null` until it has ended. */
    @Volatile
    public var ended: Ended? = null
        private set

    /** Adds a message before the next prompt, such as one of the role `system`. */
    public suspend fun say(role: String, content: String): Unit =
        briefly { NativeSession.say(it, role.encodeToByteArray(), content.encodeToByteArray()) }

    /**
     * Adds a user message and streams the answer in whole characters. Nothing is computed before the flow is collected.
     * Canceling the collection stops the answer; [pieces] or [texts] continue it.
     */
    public fun chat(text: String): Flow<String> = texts { prompt(text) }

    /** Answers a conversation, which replaces the previous one; a shared prefix is not computed again. */
    public fun chat(messages: List<Message>): Flow<String> = texts { prompt(messages) }

    /** Continues a raw text, without the chat template, and streams the continuation in whole characters. */
    public fun complete(text: String, special: Boolean = false): Flow<String> = texts {
        again { since -> readRaw(text, special, since) }
    }

    /** Streams the rest of the answer in whole characters. While the session is suspended, the flow waits. */
    public fun texts(): Flow<String> = texts {}

    /** Streams the rest of the answer token by token. While the session is suspended, the flow waits. */
    public fun pieces(): Flow<Piece> = direct {
        while (true) emit(next() ?: break)
    }

    private inline fun texts(crossinline begin: suspend () -> Unit): Flow<String> = direct {
        begin()
        while (true) {
            val text = (next() ?: break).text
            if (text.isNotEmpty()) emit(text)
        }
    }

    /**
     * Submits a text: as a user message if the model has a chat template, as a plain continuation if it has none, and
     * as the encoder input of an encoder–decoder model. Control tokens spelled out in it are tokenized as plain text.
     * After a cancellation, the text was not added. Waits while the session is suspended.
     */
    public suspend fun prompt(text: String): Unit = again { since ->
        begin(rereads = chats, since) { NativeSession.prompt(it, text.encodeToByteArray()) }
    }

    /** Answers a conversation: see [chat]. Waits while the session is suspended. */
    public suspend fun prompt(messages: List<Message>): Unit = again { since ->
        begin(rereads = true, since) { NativeSession.promptMessages(it, messages.json().encodeToByteArray()) }
    }

    /**
     * Continues a raw text. [special] says whether control tokens spelled out in it are parsed: do not enable it for
     * untrusted text. An empty text continues where the last one ended.
     */
    public suspend fun promptRaw(text: String, special: Boolean = false): Unit = readRaw(text, special, stops.value)

    /** Continues from token ids, appended to those of the session. */
    public suspend fun promptTokens(tokens: IntArray): Unit =
        begin(rereads = false, stops.value) { NativeSession.promptTokens(it, tokens) }

    /**
     * Returns the next token of the answer and its text; `null` after the last one. After a cancellation the answer is
     * unchanged, and nothing is lost. Waits while the session is suspended.
     */
    public suspend fun next(): Piece? = again { since ->
        work({ lost: Piece? -> kept = lost }) { pointer ->
            if (isAnswering && stops.value != stopsDone || stops.value != since) {
                stopsDone = stops.value
                throw stopped()
            }
            kept?.also { kept = null } ?: Piece.read(NativeSession.next(pointer)) {
                ended = it
                isAnswering = false
            }
        }
    }

    /**
     * Sets the maximum number of tokens of the answers that begin from now on; 0: as many as the context has room for.
     */
    public suspend fun setMaxTokens(tokens: Int): Unit =
        briefly { NativeSession.setMaxTokens(it, natural("tokens", tokens)) }

    /** Returns the counters of the session. */
    public suspend fun stats(): Stats = briefly { Stats.read(NativeSessionState.stats(it)) }

    /** Returns the memory that the session uses. */
    public suspend fun memory(): Memory = briefly { Memory.read(NativeSessionState.memory(it)) }

    /** Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token. */
    public suspend fun logits(): FloatArray = briefly(NativeSessionState::logits)

    /** Clears the session: all messages and tokens. The current answer is dropped. */
    public suspend fun forget(): Unit = drop(NativeSessionState::forget)

    /**
     * Truncates the session to the first [position] tokens, and drops all messages: generation continues after those
     * tokens. The current answer is dropped.
     */
    public suspend fun rewind(position: Int): Unit =
        drop { NativeSessionState.rewind(it, natural("position", position)) }

    /**
     * Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
     * conversation in readable form: protect it.
     */
    public suspend fun save(path: String): Unit = work { NativeSessionState.save(it, path.encodeToByteArray()) }

    /** Saves the state to memory. */
    public suspend fun save(): ByteArray = work(block = NativeSessionState::saveMemory)

    /**
     * Restores what [save] wrote, replacing the state of the session. It must come from the same model, and from a
     * session with the same cache type and window.
     */
    public suspend fun restore(path: String): Unit =
        drop { NativeSessionState.restore(it, path.encodeToByteArray()) }

    /** Restores the state from memory. */
    public suspend fun restore(bytes: ByteArray): Unit =
        drop { NativeSessionState.restoreMemory(it, bytes) }

    /** Returns memory to the system; it is committed again on demand. Waits for a running call. */
    public suspend fun trim(level: Trim): Unit = work { pointer ->
        NativeSessionState.trim(pointer, level.ordinal + 1)
        if (level == Trim.ALL) kept = null
    }

    /**
     * Suspends the session, for when an app goes to the background: a running call ends within milliseconds, and
     * nothing is lost. [next], [prompt] and the flows wait, and continue once the session is resumed; they throw
     * [SiskinException.Cancelled] if they are stopped, and [SiskinException.Closed] if it is closed. [promptRaw] and
     * [promptTokens] throw [SiskinException.Suspended], or [SiskinException.Cancelled] if they were running. A
     * suspended session can be saved and trimmed.
     */
    public fun suspend(): Unit = synchronized(held) {
        held.value = true
        try {
            owner.lend(NativeSessionState::suspend)
        } catch (error: Throwable) {
            held.value = false
            throw error
        }
    }

    /** Resumes the session. */
    public fun resume(): Unit = synchronized(held) {
        owner.lend { pointer ->
            NativeSessionState.resume(pointer)
            stopAgain()
        }
        held.value = false
    }

    override fun close() {
        try {
            super.close()
        } finally {
            held.value = false
        }
    }

    override fun stopsEnded(since: Int) {
        // A stop that came between two pieces still ends the next piece.
        if (stopsDone == since) stopsDone = stops.value
    }

    /**
     * Begins an answer. A call that [rereads] compares the session with the whole prompt, so that it can be repeated
     * after any cancellation; other calls can only be repeated if they read nothing. The answer does not begin if a
     * stop came after the first [since] ones.
     */
    private suspend fun begin(rereads: Boolean, since: Int, call: (Long) -> Unit): Unit = work { pointer ->
        if (stops.value != since) throw stopped()
        val before = position(pointer)
        try {
            call(pointer)
        } catch (cancelled: SiskinException.Cancelled) {
            cancelled.isFinal = !rereads && position(pointer) != before
            throw cancelled
        }
        renew(isAnswering = true)
        stopsDone = since
    }

    private suspend fun readRaw(text: String, special: Boolean, since: Int): Unit =
        begin(rereads = false, since) { NativeSession.promptRaw(it, text.encodeToByteArray(), special) }

    /** Runs a call that drops the answer. */
    private suspend fun drop(call: (Long) -> Unit): Unit = work { pointer ->
        call(pointer)
        renew(isAnswering = false)
    }

    /** Resets the state of the last answer, including an undelivered piece. */
    private fun renew(isAnswering: Boolean) {
        kept = null
        ended = null
        this.isAnswering = isAnswering
    }

    private fun stopped() = SiskinException.Cancelled(owner.name, "was stopped; call it again to go on", isFinal = true)

    private fun position(pointer: Long) = Stats.read(NativeSessionState.stats(pointer)).position

    /**
     * Runs a call, and repeats it after a suspension ended or rejected it, once the session is resumed or stopped.
     * `call` receives the number of earlier stops, and throws if there are more.
     */
    private suspend inline fun <T> again(call: (Int) -> T): T {
        val since = stops.value
        while (true) {
            try {
                return call(since)
            } catch (error: SiskinException) {
                val isHeld = error is SiskinException.Suspended || error is SiskinException.Cancelled && !error.isFinal
                if (!isHeld) throw error
            }
            combine(held, stops) { isHeld, now -> !isHeld || now != since }.first { it }
        }
    }
}

/** A flow whose pieces go straight to the collector, without an intermediate step that could be cancelled. */
private inline fun <T> direct(crossinline block: suspend FlowCollector<T>.() -> Unit): Flow<T> = object : Flow<T> {
    override suspend fun collect(collector: FlowCollector<T>) = collector.block()
}

/** A message of a conversation. */
public class Message(
    /** The role of its author, such as `system`, `user` or `assistant`. */
    public val role: String,
    /** Its text. */
    public val content: String,
)

/** Serializes the list as JSON. */
internal fun List<Message>.json(): String = joinToString(",", "[", "]") {
    "{\"role\":${it.role.quoted()},\"content\":${it.content.quoted()}}"
}

private fun String.quoted(): String = buildString {
    append('"')
    for (character in this@quoted) {
        when {
            character == '"' || character == '\\' -> append('\\').append(character)
            character < ' ' -> append("\\u").append(character.code.toString(16).padStart(4, '0'))
            else -> append(character)
        }
    }
    append('"')
}

internal object NativeSession {
    @JvmStatic external fun create(model: Long, options: Long): Long

    @JvmStatic external fun stopper(session: Long): Long

    @JvmStatic external fun say(session: Long, role: ByteArray, content: ByteArray)

    @JvmStatic external fun prompt(session: Long, text: ByteArray)

    @JvmStatic external fun promptRaw(session: Long, text: ByteArray, special: Boolean)

    @JvmStatic external fun promptMessages(session: Long, json: ByteArray)

    @JvmStatic external fun promptTokens(session: Long, tokens: IntArray)

    @JvmStatic external fun next(session: Long): ByteArray

    @JvmStatic external fun setMaxTokens(session: Long, tokens: Int)

    @JvmStatic external fun free(session: Long)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.FlowCollector
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.first

/**
 * One conversation or text. Calls run one after the other; what they do to the conversation is in that order.
 *
 * ```
 * session.chat("Why is the sky blue?").collect { print(it) }
 * ```
 *
 * A cancelled flow loses nothing: what its collector did not get comes first in the next one. Operators that buffer,
 * such as `flowOn`, `buffer` and `collectLatest`, lose what they hold when they are cancelled.
 */
public class Session internal constructor(pointer: Long, private val chats: Boolean) :
    WorkingHandle(Owner("session", pointer, NativeSession.stopper(pointer), NativeSession::free)) {
    private val held = MutableStateFlow(false)

    /** How many of the stops were carried out, or came before the answer began: others end its next piece. In turn. */
    private var stopsDone = 0

    /** Whether an answer has begun and is not over. Changed in turn. */
    private var isAnswering = false

    /** A piece that was made for somebody who went away. Changed in turn. */
    private var kept: Piece? = null

    /** Why the answer ended; `null` while it goes on. */
    @Volatile
    public var ended: Ended? = null
        private set

    /** Adds a message that stands before the next prompt, such as one of the role `system`. */
    public suspend fun say(role: String, content: String): Unit =
        briefly { NativeSession.say(it, role.encodeToByteArray(), content.encodeToByteArray()) }

    /**
     * Says a text as the user, and streams the answer in whole characters. Nothing is done before the flow is collected;
     * whoever stops collecting stops the answer, and [pieces] or [texts] go on with it.
     */
    public fun chat(text: String): Flow<String> = texts { prompt(text) }

    /** Answers a conversation, which takes the place of what was said before; what both share is not read again. */
    public fun chat(messages: List<Message>): Flow<String> = texts { prompt(messages) }

    /** Goes on from a text as it is, without the chat template, and streams what follows in whole characters. */
    public fun complete(text: String, special: Boolean = false): Flow<String> = texts {
        again { since -> readRaw(text, special, since) }
    }

    /** The rest of the answer, in whole characters. While the session is suspended, the flow waits. */
    public fun texts(): Flow<String> = texts {}

    /** The rest of the answer, token by token. While the session is suspended, the flow waits. */
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
     * Says a text as the user where the model has a chat template, goes on from it where it has none, and gives it to
     * read where the model makes a text of a text. Control tokens that it spells are text. After a cancellation, it was
     * not said. Waits while the session is suspended.
     */
    public suspend fun prompt(text: String): Unit = again { since ->
        begin(rereads = chats, since) { NativeSession.prompt(it, text.encodeToByteArray()) }
    }

    /** Answers a conversation: see [chat]. Waits while the session is suspended. */
    public suspend fun prompt(messages: List<Message>): Unit = again { since ->
        begin(rereads = true, since) { NativeSession.promptMessages(it, messages.json().encodeToByteArray()) }
    }

    /**
     * Goes on from a text as it is. [special] says whether control tokens that it spells are such: not for text from
     * strangers. An empty text goes on where the last one ended.
     */
    public suspend fun promptRaw(text: String, special: Boolean = false): Unit = readRaw(text, special, stops.value)

    /** Goes on from tokens behind those that the session has. */
    public suspend fun promptTokens(tokens: IntArray): Unit =
        begin(rereads = false, stops.value) { NativeSession.promptTokens(it, tokens) }

    /**
     * The next token of the answer and the text that it brought; `null` after the last one. After a cancellation the
     * answer is where it was, and nothing of it is lost. Waits while the session is suspended.
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

    /** The most tokens of the answers that begin from now on; 0: as many as there is room for. */
    public suspend fun setMaxTokens(tokens: Int): Unit =
        briefly { NativeSession.setMaxTokens(it, natural("tokens", tokens)) }

    /** What the session has done so far. */
    public suspend fun stats(): Stats = briefly { Stats.read(NativeSessionState.stats(it)) }

    /** What the session holds in memory. */
    public suspend fun memory(): Memory = briefly { Memory.read(NativeSessionState.memory(it)) }

    /** The scores of all tokens to come next, as the model gives them; zeros before the first token. */
    public suspend fun logits(): FloatArray = briefly(NativeSessionState::logits)

    /** Forgets all that was said and read. The answer that is being written is dropped. */
    public suspend fun forget(): Unit = drop(NativeSessionState::forget)

    /**
     * Forgets all but the first [position] tokens, and all messages: what follows goes on from those tokens. The answer
     * that is being written is dropped.
     */
    public suspend fun rewind(position: Int): Unit =
        drop { NativeSessionState.rewind(it, natural("position", position)) }

    /** Writes what the session holds to a file, which appears when it is complete. Who has it can read what was said. */
    public suspend fun save(path: String): Unit = work { NativeSessionState.save(it, path.encodeToByteArray()) }

    /** The same to memory. */
    public suspend fun save(): ByteArray = work(block = NativeSessionState::saveMemory)

    /**
     * Goes on from what [save] wrote, in place of what was said here. It must be of the same model, and of a session with
     * the same type of cache and window.
     */
    public suspend fun restore(path: String): Unit =
        drop { NativeSessionState.restore(it, path.encodeToByteArray()) }

    /** The same from memory. */
    public suspend fun restore(bytes: ByteArray): Unit =
        drop { NativeSessionState.restoreMemory(it, bytes) }

    /** Gives memory back to the system, which gives it again as it is needed. A running call is waited for. */
    public suspend fun trim(level: Trim): Unit = work { pointer ->
        NativeSessionState.trim(pointer, level.ordinal + 1)
        if (level == Trim.ALL) kept = null
    }

    /**
     * Holds the session, for when an app goes to the background: a running call ends within milliseconds, and nothing is
     * lost. [next], [prompt] and the flows wait and go on once it is resumed, or throw [SiskinException.Cancelled] once
     * they are stopped and [SiskinException.Closed] once it is closed. [promptRaw] and [promptTokens] throw
     * [SiskinException.Suspended], or [SiskinException.Cancelled] where they were at work. It can be saved and trimmed
     * meanwhile.
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

    /** Lets the session work again. */
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
        // One that came between two pieces before still ends the next piece.
        if (stopsDone == since) stopsDone = stops.value
    }

    /**
     * What begins an answer. A call that [rereads] compares what was read with all that is to be read, and can be made
     * again wherever it was cancelled; others only where they read nothing. It does not begin where a stop came after
     * the first [since] ones.
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

    /** What drops an answer. */
    private suspend fun drop(call: (Long) -> Unit): Unit = work { pointer ->
        call(pointer)
        renew(isAnswering = false)
    }

    /** Forgets the last answer, and with it the piece that nobody got. */
    private fun renew(isAnswering: Boolean) {
        kept = null
        ended = null
        this.isAnswering = isAnswering
    }

    private fun stopped() = SiskinException.Cancelled(owner.name, "was stopped; call it again to go on", isFinal = true)

    private fun position(pointer: Long) = Stats.read(NativeSessionState.stats(pointer)).position

    /**
     * Makes a call that suspension ended or refused again when the session is resumed, or was stopped. The call is told
     * how many stops there had been, and throws where there are more.
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

/** A flow whose pieces go straight to the collector, with nothing between that could be cancelled. */
private inline fun <T> direct(crossinline block: suspend FlowCollector<T>.() -> Unit): Flow<T> = object : Flow<T> {
    override suspend fun collect(collector: FlowCollector<T>) = collector.block()
}

/** A message of a conversation. */
public class Message(
    /** Who says it, such as `system`, `user` or `assistant`. */
    public val role: String,
    /** What is said. */
    public val content: String,
)

/** The list as JSON. */
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

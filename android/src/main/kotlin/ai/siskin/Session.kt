// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.emitAll
import kotlinx.coroutines.flow.filter
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.map

/**
 * One conversation or text. Calls run one after the other; what they do to the conversation is in that order.
 *
 * ```
 * session.chat("Why is the sky blue?").collect { print(it) }
 * ```
 */
public class Session internal constructor(pointer: Long) :
    WorkingHandle(Owner("session", pointer, NativeSession.stopper(pointer), NativeSession::free)) {
    private val held = MutableStateFlow(false)

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
    public fun chat(text: String): Flow<String> = flow {
        prompt(text)
        emitAll(texts())
    }

    /** Answers a conversation, which takes the place of what was said before; what both share is not read again. */
    public fun chat(messages: List<Message>): Flow<String> = flow {
        prompt(messages)
        emitAll(texts())
    }

    /** Goes on from a text as it is, without the chat template, and streams what follows in whole characters. */
    public fun complete(text: String, special: Boolean = false): Flow<String> = flow {
        promptRaw(text, special)
        emitAll(texts())
    }

    /** The rest of the answer, in whole characters. While the session is suspended, the flow waits. */
    public fun texts(): Flow<String> = pieces().map { it.text }.filter { it.isNotEmpty() }

    /** The rest of the answer, token by token. While the session is suspended, the flow waits. */
    public fun pieces(): Flow<Piece> = flow {
        while (true) emit(next() ?: break)
    }

    /**
     * Says a text as the user where the model has a chat template, goes on from it where it has none, and gives it to
     * read where the model makes a text of a text. Control tokens that it spells are text. After a cancellation, it was
     * not said. Waits while the session is suspended.
     */
    public suspend fun prompt(text: String): Unit = again {
        begin { NativeSession.prompt(it, text.encodeToByteArray()) }
    }

    /** Answers a conversation: see [chat]. Waits while the session is suspended. */
    public suspend fun prompt(messages: List<Message>): Unit = again {
        begin { NativeSession.promptMessages(it, messages.json().encodeToByteArray()) }
    }

    /**
     * Goes on from a text as it is. [special] says whether control tokens that it spells are such: not for text from
     * strangers. An empty text goes on where the last one ended.
     */
    public suspend fun promptRaw(text: String, special: Boolean = false): Unit =
        begin { NativeSession.promptRaw(it, text.encodeToByteArray(), special) }

    /** Goes on from tokens behind those that the session has. */
    public suspend fun promptTokens(tokens: IntArray): Unit = begin { NativeSession.promptTokens(it, tokens) }

    /**
     * The next token of the answer and the text that it brought; `null` after the last one. After a cancellation the
     * answer is where it was, and nothing of it is lost. Waits while the session is suspended.
     */
    public suspend fun next(): Piece? = again {
        work({ lost: Piece? -> kept = lost }) { pointer ->
            kept?.also { kept = null } ?: Piece.read(NativeSession.next(pointer)) { ended = it }
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
    public suspend fun forget(): Unit = begin(NativeSessionState::forget)

    /**
     * Forgets all but the first [position] tokens, and all messages: what follows goes on from those tokens. The answer
     * that is being written is dropped.
     */
    public suspend fun rewind(position: Int): Unit =
        begin { NativeSessionState.rewind(it, natural("position", position)) }

    /** Writes what the session holds to a file, which appears when it is complete. Who has it can read what was said. */
    public suspend fun save(path: String): Unit = work { NativeSessionState.save(it, path.encodeToByteArray()) }

    /** The same to memory. */
    public suspend fun save(): ByteArray = work(block = NativeSessionState::saveMemory)

    /**
     * Goes on from what [save] wrote, in place of what was said here. It must be of the same model, and of a session with
     * the same type of cache and window.
     */
    public suspend fun restore(path: String): Unit =
        begin { NativeSessionState.restore(it, path.encodeToByteArray()) }

    /** The same from memory. */
    public suspend fun restore(bytes: ByteArray): Unit =
        begin { NativeSessionState.restoreMemory(it, bytes) }

    /** Gives memory back to the system, which gives it again as it is needed. A running call is waited for. */
    public suspend fun trim(level: Trim): Unit = work { pointer ->
        NativeSessionState.trim(pointer, level.ordinal + 1)
        if (level == Trim.ALL) kept = null
    }

    /**
     * Holds the session, for when an app goes to the background: a running call ends within milliseconds, and nothing is
     * lost. [next], [prompt] and the flows wait and go on once it is resumed; [promptRaw] and [promptTokens] throw
     * [SiskinException.Suspended]. It can be saved and trimmed meanwhile.
     */
    public fun suspend() {
        held.value = true
        owner.lend(NativeSessionState::suspend)
    }

    /** Lets the session work again. */
    public fun resume() {
        owner.lend(NativeSessionState::resume)
        held.value = false
    }

    /** What begins or drops an answer, and with it the piece that nobody got. */
    private suspend fun begin(call: (Long) -> Unit): Unit = work { pointer ->
        call(pointer)
        kept = null
        ended = null
    }

    /** Makes a call that suspension ended or refused again when the session is resumed. */
    private suspend inline fun <T> again(call: () -> T): T {
        while (true) {
            try {
                return call()
            } catch (error: SiskinException) {
                val isHeld = error is SiskinException.Cancelled || error is SiskinException.Suspended
                if (!isHeld || !held.value) throw error
            }
            held.first { !it }
        }
    }
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

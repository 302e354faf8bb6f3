// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock

/**
 * The response to a request of an [Engine]. Close it, which cancels the request unless it has ended.
 *
 * Chunks are kept until they are taken; while 256 are not, the request is paused.
 */
public class Generation internal constructor(pointer: Long) :
    Handle(NativePointer("generation", pointer, NativeGeneration.cancelHandle(pointer), NativeGeneration::free)) {
    private val mutex = Mutex()

    /** Why the response ended; `null` while it is being generated. */
    @Volatile
    public var finishReason: FinishReason? = null
        private set

    /**
     * Returns the next token of the response and its text, or `null` if the response has ended: [finishReason] says
     * why. If the coroutine is canceled, so is the request.
     */
    public suspend fun next(): TextChunk? = mutex.withLock {
        runInBackground(::cancel, undelivered = {}) {
            val next = native.withPointer { NextChunk.read(NativeGeneration.next(it)) }
            if (native.isClosed) throw SiskinException.Closed(native.name)
            if (next.chunk == null) finishReason = next.finishReason
            next.chunk
        }
    }

    /** Blocking variant of [next], for Java. Interrupting the thread cancels the request. */
    @Throws(InterruptedException::class)
    public fun nextBlocking(): TextChunk? = runBlocking { next() }

    /**
     * Returns the assistant's message as far as it was generated after [ServedModel.submitChat]: a JSON object in
     * OpenAI's form, with `content`, `reasoning_content` and `tool_calls`.
     */
    public suspend fun message(): String =
        mutex.withLock { native.withPointer(NativeGeneration::message).decodeToString() }

    /** Returns the number of tokens. */
    public suspend fun usage(): GenerationUsage =
        mutex.withLock { GenerationUsage.read(native.withPointer(NativeGeneration::usage)) }

    /**
     * Cancels the request for good, from any thread. [next] first returns tokens that were already generated, and then
     * `null`: within milliseconds, unless its thread computes for other requests as well.
     */
    public fun cancel(): Unit = native.cancel()

    /** Throws if the response ended before its end. */
    internal fun throwIfCut() {
        val reason = when (finishReason) {
            FinishReason.TIMEOUT -> "the timeout of the request expired"
            FinishReason.CANCELED -> "the request was canceled"
            else -> return
        }
        throw SiskinException.Canceled(native.name, reason, isByCaller = false)
    }
}

/** The tokens of a request. */
@ConsistentCopyVisibility
public data class GenerationUsage internal constructor(
    /** Tokens of the prompt. */
    public val promptTokens: Long,
    /** How many of these were found in the prefix cache; 0 before the end. */
    public val cachedTokens: Long,
    /** Generated tokens that [Generation.next] has returned; at the end, all. */
    public val generatedTokens: Long,
) {
    internal companion object {
        fun read(bytes: ByteArray): GenerationUsage =
            Unpacker(bytes).run { GenerationUsage(long(), long(), long()) }
    }
}

internal object NativeGeneration {
    @JvmStatic external fun cancelHandle(generation: Long): Long

    @JvmStatic external fun next(generation: Long): ByteArray

    @JvmStatic external fun message(generation: Long): ByteArray

    @JvmStatic external fun usage(generation: Long): ByteArray

    @JvmStatic external fun free(generation: Long)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Session statistics. */
@ConsistentCopyVisibility
public data class SessionStats internal constructor(
    /** The number of tokens in the KV cache. */
    public val position: Long,
    /** The number of prompt tokens that were processed, excluding those already in the KV cache. */
    public val promptTokens: Long,
    /** The time spent in prefill. */
    public val promptNanoseconds: Long,
    /** The number of generated tokens. */
    public val generatedTokens: Long,
    /** The time spent in decode. */
    public val generationNanoseconds: Long,
) {
    internal companion object {
        fun read(bytes: ByteArray): SessionStats =
            Unpacker(bytes).run { SessionStats(long(), long(), long(), long(), long()) }
    }
}

/** The memory that a session uses or would use, in bytes. */
@ConsistentCopyVisibility
public data class MemoryUsage internal constructor(
    /** Activations and small weights: allocated up front. */
    public val activations: Long,
    /** The KV cache: reserved up front, committed as it fills. */
    public val kvCache: Long,
    /** The mapped model file: clean pages, which the system may evict and read again. */
    public val mappedFile: Long,
) {
    internal companion object {
        fun read(bytes: ByteArray): MemoryUsage = Unpacker(bytes).run { MemoryUsage(long(), long(), long()) }
    }
}

internal object NativeSessionState {
    @JvmStatic external fun stats(session: Long): ByteArray

    @JvmStatic external fun memory(session: Long): ByteArray

    @JvmStatic external fun logits(session: Long): FloatArray

    @JvmStatic external fun reset(session: Long)

    @JvmStatic external fun rewind(session: Long, position: Int)

    @JvmStatic external fun save(session: Long, path: ByteArray)

    @JvmStatic external fun saveMemory(session: Long): ByteArray

    @JvmStatic external fun restore(session: Long, path: ByteArray)

    @JvmStatic external fun restoreMemory(session: Long, bytes: ByteArray)

    @JvmStatic external fun pause(session: Long)

    @JvmStatic external fun resume(session: Long)

    @JvmStatic external fun trim(session: Long, level: Int)
}

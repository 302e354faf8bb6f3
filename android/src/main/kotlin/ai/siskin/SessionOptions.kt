// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Options of a session. `null` is the default. */
public class SessionOptions {
    /**
     * The context length: the maximum number of tokens of the conversation or sequence. Default: the model's own,
     * capped at 2048.
     */
    public var context: Int? = null

    /** The maximum number of tokens of one prefill batch. Default: 256. */
    public var maxBatchTokens: Int? = null

    /**
     * The maximum size of activations and KV cache together, in bytes. A session that needs more is rejected with
     * [SiskinException.Memory]. Default: no limit.
     */
    public var memoryBudget: Long? = null

    /**
     * Sliding window: attention is limited to this many of the newest tokens, and to [attentionSinks] of the oldest.
     * Default: the model's own attention mask.
     */
    public var slidingWindow: Int? = null

    /**
     * Attention sinks: how many of the oldest tokens remain visible beside [slidingWindow]. Default: none, unlike
     * `siskin --attention-sinks`, whose default is 4.
     */
    public var attentionSinks: Int? = null

    /** The dtype of the KV cache. Default: f16, or f32 for models with f32 weights. */
    public var kvCacheType: KvCacheType? = null

    /** The maximum number of tokens of an answer. Default: as many as the context has room for. */
    public var maxTokens: Int? = null

    /** Sampling options. */
    public var sampler: Sampler? = null

    /** Stop strings: an answer ends where one occurs, and does not include it. */
    public var stopStrings: List<String> = emptyList()

    internal fun <T> withNative(use: (Long) -> T): T =
        useNative(NativeSessionOptions.create(), NativeSessionOptions::free) { options ->
            copyTo(options)
            use(options)
        }

    private fun copyTo(options: Long) {
        context?.let { NativeSessionOptions.setContext(options, positive("context", it)) }
        maxBatchTokens?.let { NativeSessionOptions.setMaxBatchTokens(options, positive("maxBatchTokens", it)) }
        memoryBudget?.let { NativeSessionOptions.setMemoryBudget(options, positive("memoryBudget", it)) }
        val window = slidingWindow?.let { positive("slidingWindow", it) } ?: 0
        val sinks = attentionSinks?.let { nonNegative("attentionSinks", it) } ?: 0
        NativeSessionOptions.setWindow(options, window, sinks)
        kvCacheType?.let { NativeSessionOptions.setKvCacheType(options, it.code) }
        maxTokens?.let { NativeSessionOptions.setMaxTokens(options, positive("maxTokens", it)) }
        sampler?.withNative { NativeSessionOptions.setSampler(options, it) }
        stopStrings.forEach { NativeSessionOptions.addStopString(options, it.encodeToByteArray()) }
    }
}

/** The dtype of the KV cache. */
public enum class KvCacheType {
    /** int8 with scales: half the memory of [F16]. */
    INT8,

    /** f16. */
    F16,

    /** f32. */
    F32,
    ;

    /** The native constant. */
    internal val code: Int
        get() = ordinal + 1
}

internal object NativeSessionOptions {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun setContext(options: Long, tokens: Int)

    @JvmStatic external fun setMaxBatchTokens(options: Long, tokens: Int)

    @JvmStatic external fun setMemoryBudget(options: Long, bytes: Long)

    @JvmStatic external fun setWindow(options: Long, window: Int, sinks: Int)

    @JvmStatic external fun setKvCacheType(options: Long, type: Int)

    @JvmStatic external fun setMaxTokens(options: Long, tokens: Int)

    @JvmStatic external fun setSampler(options: Long, sampler: Long)

    @JvmStatic external fun addStopString(options: Long, text: ByteArray)

    @JvmStatic external fun free(options: Long)
}

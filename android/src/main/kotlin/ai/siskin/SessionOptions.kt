// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Options of a session. */
public class SessionOptions {
    /**
     * The context length: the maximum number of tokens of the conversation or sequence; 0: the model's own, but no more
     * than 2048.
     */
    public var context: Int = 0

    /** The maximum number of tokens of one prefill batch; `null`: the default, 256. */
    public var batch: Int? = null

    /**
     * The maximum size of activations and KV cache together, in bytes; 0: no limit. A session that takes more is
     * rejected.
     */
    public var budget: Long = 0

    /**
     * Sliding window: attention is limited to this many of the newest tokens and [windowFirst] of the oldest; 0: the
     * model's own attention mask.
     */
    public var windowRecent: Int = 0

    /** Attention sinks: how many of the oldest tokens remain visible if [windowRecent] is set. */
    public var windowFirst: Int = 0

    /** The type of the KV cache. */
    public var cacheType: CacheType = CacheType.AUTO

    /** The maximum number of tokens of an answer; 0: as many as the context has room for. */
    public var maxTokens: Int = 0

    /** The sampling options; `null`: the defaults. */
    public var sampler: Sampler? = null

    /** Stop strings: they end an answer where they occur, and are not a part of it. */
    public var stops: List<String> = emptyList()

    internal fun <T> lend(use: (Long) -> T): T =
        lent(NativeSessionOptions.create(), NativeSessionOptions::free) { options ->
            fill(options)
            use(options)
        }

    private fun fill(options: Long) {
        NativeSessionOptions.setContext(options, natural("context", context))
        batch?.let { NativeSessionOptions.setBatch(options, natural("batch", it)) }
        NativeSessionOptions.setBudget(options, natural("budget", budget))
        NativeSessionOptions.setWindow(
            options,
            natural("windowRecent", windowRecent),
            natural("windowFirst", windowFirst),
        )
        NativeSessionOptions.setCacheType(options, cacheType.ordinal)
        NativeSessionOptions.setMaxTokens(options, natural("maxTokens", maxTokens))
        sampler?.lend { NativeSessionOptions.setSampler(options, it) }
        stops.forEach { NativeSessionOptions.addStop(options, it.encodeToByteArray()) }
    }
}

/** The type of the KV cache. */
public enum class CacheType {
    /** The default of the model. */
    AUTO,

    /** int8 with scales: half the memory of [F16]. */
    INT8,

    /** f16. */
    F16,

    /** f32. */
    F32,
}

internal object NativeSessionOptions {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun setContext(options: Long, tokens: Int)

    @JvmStatic external fun setBatch(options: Long, tokens: Int)

    @JvmStatic external fun setBudget(options: Long, bytes: Long)

    @JvmStatic external fun setWindow(options: Long, recent: Int, first: Int)

    @JvmStatic external fun setCacheType(options: Long, kind: Int)

    @JvmStatic external fun setMaxTokens(options: Long, tokens: Int)

    @JvmStatic external fun setSampler(options: Long, sampler: Long)

    @JvmStatic external fun addStop(options: Long, stop: ByteArray)

    @JvmStatic external fun free(options: Long)
}

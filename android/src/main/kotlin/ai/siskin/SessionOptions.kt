// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How a session is opened. */
public class SessionOptions {
    /** The most tokens of the conversation or text; 0: the model's own, but no more than 2048. */
    public var context: Int = 0

    /** The most tokens of a prompt that go through the model at once; `null`: as usual, 256. */
    public var batch: Int? = null

    /** The most bytes of activations, keys and values together; 0: no limit. What takes more is refused. */
    public var budget: Long = 0

    /** Tokens see so many of the newest alone, and [windowFirst] of the oldest; 0: all that the model sees. */
    public var windowRecent: Int = 0

    /** How many of the oldest tokens are seen where [windowRecent] is set. */
    public var windowFirst: Int = 0

    /** The type of keys and values. */
    public var cacheType: CacheType = CacheType.AUTO

    /** The most tokens of an answer; 0: as many as there is room for. */
    public var maxTokens: Int = 0

    /** How tokens are chosen; `null`: the usual way. */
    public var sampler: Sampler? = null

    /** Texts that end an answer where they come; they are not a part of it. */
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

/** The type of keys and values. */
public enum class CacheType {
    /** What suits the model. */
    AUTO,

    /** Bytes with a scale: half the memory of [F16]. */
    INT8,

    /** Halves. */
    F16,

    /** Floats. */
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

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Options of opening a model. */
public class ModelOptions {
    /** The number of worker threads; 0: one for each core that is about as fast as the fastest. */
    public var threads: Int = 0

    /** CPU features that are not used, by name, such as `avx512`. Results are bit-identical. */
    public var without: List<String> = emptyList()

    /** Computes with the scalar reference kernels on one thread, slowly: for comparison. */
    public var reference: Boolean = false

    /** Layers to skip, by index from 0. */
    public var skip: List<Int> = emptyList()

    /** The path of a LoRA or DoRA adapter that `siskin train` wrote. */
    public var adapter: String? = null

    /** Whether to accept the adapter for other base weights than those that it was trained on. */
    public var anyBase: Boolean = false

    /** Whether the packed form of a model in another format is cached. */
    public var cache: Cache = Cache.AUTO

    /** The packed cache folder, such as one in `Context.getCacheDir()`; created if it does not exist. */
    public var cacheFolder: String? = null

    /**
     * The weight types that the matrices of a model in another format are converted to, such as `w4i`; empty: those of
     * the source.
     */
    public var recipe: String = ""

    /** Receives packing progress. */
    public var progress: ProgressListener? = null

    /** Where the packed form of a model in another format is kept. */
    public enum class Cache {
        /** In the user's cache folder. */
        AUTO,

        /** No cache: the model is packed each time. */
        OFF,
    }

    /** Calls [open] with the native form of these options; progress callbacks also poll [isWanted]. */
    internal fun open(isWanted: () -> Boolean, open: (Long) -> Long): Long {
        val sink = ProgressSink(progress, isWanted)
        val answer = lent(NativeModelOptions.create(), NativeModelOptions::free) { options ->
            fill(options, sink)
            runCatching { open(options) }
        }
        sink.thrown?.let { thrown ->
            answer.onSuccess(NativeModel::free)
            throw thrown
        }
        return answer.getOrThrow()
    }

    private fun fill(options: Long, sink: ProgressSink) {
        NativeModelOptions.setThreads(options, natural("threads", threads))
        NativeModelOptions.setWithout(options, without.joinToString(",").encodeToByteArray())
        NativeModelOptions.setReference(options, reference)
        NativeModelOptions.setSkip(options, IntArray(skip.size) { natural("skip", skip[it]) })
        adapter?.let { NativeModelOptions.setAdapter(options, it.encodeToByteArray(), anyBase) }
        NativeModelOptions.setCache(options, cache.ordinal)
        cacheFolder?.let { NativeModelOptions.setCacheFolder(options, it.encodeToByteArray()) }
        NativeModelOptions.setRecipe(options, recipe.encodeToByteArray())
        NativeModelOptions.setProgress(options, sink)
    }
}

/** Receives progress while a model is opened. */
public fun interface ProgressListener {
    /**
     * Receives the number of bytes of the packed form written so far; [total] is 0 while it is unknown. Returns whether
     * to continue. Calls come one at a time, from threads of the library, and must not use the library. An exception
     * ends the opening, which rethrows it.
     */
    public fun progress(done: Long, total: Long): Boolean
}

/** Receives the bridge's progress callbacks. */
internal class ProgressSink(private val listener: ProgressListener?, private val isWanted: () -> Boolean) {
    @Volatile
    var thrown: Throwable? = null

    fun progress(done: Long, total: Long): Boolean = Callbacks.inside {
        try {
            isWanted() && listener?.progress(done, total) != false
        } catch (error: Throwable) {
            thrown = error
            false
        }
    }
}

internal object NativeModelOptions {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun setThreads(options: Long, threads: Int)

    @JvmStatic external fun setWithout(options: Long, names: ByteArray)

    @JvmStatic external fun setReference(options: Long, reference: Boolean)

    @JvmStatic external fun setSkip(options: Long, layers: IntArray)

    @JvmStatic external fun setAdapter(options: Long, path: ByteArray, anyBase: Boolean)

    @JvmStatic external fun setCache(options: Long, cache: Int)

    @JvmStatic external fun setCacheFolder(options: Long, path: ByteArray)

    @JvmStatic external fun setRecipe(options: Long, recipe: ByteArray)

    @JvmStatic external fun setProgress(options: Long, sink: ProgressSink?)

    @JvmStatic external fun free(options: Long)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How a model is opened. */
public class ModelOptions {
    /** How many threads compute; 0: one for each core that keeps up with the fastest. */
    public var threads: Int = 0

    /** Features of the processor that are not used, by name, such as `avx512`. The same bits come out. */
    public var without: List<String> = emptyList()

    /** Computes in plain words on one thread, slowly: to compare with. */
    public var reference: Boolean = false

    /** Layers that are left out, by their numbers from 0 on. */
    public var skip: List<Int> = emptyList()

    /** The path of an adapter that `siskin train` wrote, which is put beside the model's matrices. */
    public var adapter: String? = null

    /** Whether the adapter is taken beside other weights than those that it was trained beside. */
    public var anyBase: Boolean = false

    /** Whether the packed form of a model of another format is kept. */
    public var cache: Cache = Cache.AUTO

    /** The folder in which it is kept, such as one of `Context.getCacheDir()`; made where it is absent. */
    public var cacheFolder: String? = null

    /** Which types the matrices of a model of another format get, such as `w4i`; empty: those of its source. */
    public var recipe: String = ""

    /** Is told how far packing is. */
    public var progress: ProgressListener? = null

    /** Where the packed form of a model of another format is kept. */
    public enum class Cache {
        /** In the user's cache folder. */
        AUTO,

        /** Nowhere: the model is packed each time. */
        OFF,
    }

    /** The model that [open] opens with the library's form of these, whose progress also asks [isWanted]. */
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

/** Whom opening tells how far it is. */
public fun interface ProgressListener {
    /**
     * Is told how many bytes of the packed form are written; [total] is 0 while it is not known. Returns whether to go
     * on. Calls come one at a time, from threads of the library's, and must not use the library. What this throws ends
     * the opening, which throws it again.
     */
    public fun progress(done: Long, total: Long): Boolean
}

/** What the bridge calls with progress. */
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

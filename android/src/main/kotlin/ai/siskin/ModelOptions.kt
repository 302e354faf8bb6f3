// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Options for opening a model. `null` is the default. */
public class ModelOptions {
    /** The number of worker threads. Default: one per performance core. */
    public var threads: Int? = null

    /** CPU features that are not used, by name, such as `avx512`. Results are bit-identical without them. */
    public var disabledCpuFeatures: List<String> = emptyList()

    /** The device that the model runs on. */
    public var device: Device = Device.AUTO

    /** Layers to skip, by index from 0. */
    public var skipLayers: List<Int> = emptyList()

    /** The path of a LoRA or DoRA adapter that `siskin train` wrote. */
    public var adapter: String? = null

    /** Whether to accept the adapter for base weights other than those that it was trained on. */
    public var allowAnyBase: Boolean = false

    /**
     * Whether the packed copy of a non-`.siskin` model is kept in [packedCacheFolder]. Otherwise the model is packed
     * each time it is opened.
     */
    public var usePackedCache: Boolean = true

    /**
     * The folder of the packed cache, which is created if it does not exist. Default: the user's cache folder, which
     * apps do not have: set a folder in `Context.getCacheDir()`.
     */
    public var packedCacheFolder: String? = null

    /**
     * The recipe: the weight types that the matrices of a non-`.siskin` model are converted to, such as `w4i`. Default:
     * those of the source.
     */
    public var recipe: String? = null

    /** Receives progress while a non-`.siskin` model is packed. */
    public var progressListener: ProgressListener? = null

    /** Calls [open] with the native form of these options. Opening ends early when [isActive] becomes false. */
    internal fun open(isActive: () -> Boolean, open: (Long) -> Long): Long {
        val sink = ProgressSink(progressListener, isActive)
        val model = useNative(NativeModelOptions.create(), NativeModelOptions::free) { options ->
            copyTo(options, sink)
            runCatching { open(options) }
        }
        sink.exception?.let { exception ->
            model.onSuccess(NativeModel::free)
            throw exception
        }
        return model.getOrThrow()
    }

    private fun copyTo(options: Long, sink: ProgressSink) {
        threads?.let { NativeModelOptions.setThreads(options, positive("threads", it)) }
        val features = disabledCpuFeatures.joinToString(",")
        NativeModelOptions.setDisabledCpuFeatures(options, features.encodeToByteArray())
        NativeModelOptions.setDevice(options, device.code)
        val layers = IntArray(skipLayers.size) { nonNegative("skipLayers", skipLayers[it]) }
        NativeModelOptions.setSkipLayers(options, layers)
        adapter?.let { NativeModelOptions.setAdapter(options, it.encodeToByteArray(), allowAnyBase) }
        NativeModelOptions.setCache(options, if (usePackedCache) CACHE_AUTO else CACHE_OFF)
        val folder = packedCacheFolder.takeIf { usePackedCache }
        folder?.let { NativeModelOptions.setCacheFolder(options, it.encodeToByteArray()) }
        recipe?.let { NativeModelOptions.setRecipe(options, it.encodeToByteArray()) }
        NativeModelOptions.setProgress(options, sink)
    }

    private companion object {
        const val CACHE_AUTO = 0
        const val CACHE_OFF = 1
    }
}

/** Receives progress while a model is opened. */
public fun interface ProgressListener {
    /**
     * Receives the number of bytes of the packed copy written so far; [total] is 0 while it is unknown. Returns whether
     * to continue. Calls come one at a time, from threads of the library, and must not use the library. An exception
     * aborts opening, which then throws it.
     */
    public fun onProgress(done: Long, total: Long): Boolean
}

/** Receives the progress callbacks of the JNI bridge. */
internal class ProgressSink(private val listener: ProgressListener?, private val isActive: () -> Boolean) {
    /** What the listener threw. */
    @Volatile
    var exception: Throwable? = null

    fun onProgress(done: Long, total: Long): Boolean = Callbacks.enter {
        try {
            isActive() && listener?.onProgress(done, total) != false
        } catch (error: Throwable) {
            exception = error
            false
        }
    }
}

/** A device that runs models. */
public enum class Device {
    /** The fastest device that this build supports. */
    AUTO,

    /** The CPU. */
    CPU,

    /** Scalar code on one thread of the CPU, slow, for comparison. */
    REFERENCE,
    ;

    /** The native constant. */
    internal val code: Int
        get() = ordinal
}

internal object NativeModelOptions {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun setThreads(options: Long, threads: Int)

    @JvmStatic external fun setDisabledCpuFeatures(options: Long, names: ByteArray)

    @JvmStatic external fun setDevice(options: Long, device: Int)

    @JvmStatic external fun setSkipLayers(options: Long, layers: IntArray)

    @JvmStatic external fun setAdapter(options: Long, path: ByteArray, anyBase: Boolean)

    @JvmStatic external fun setCache(options: Long, cache: Int)

    @JvmStatic external fun setCacheFolder(options: Long, path: ByteArray)

    @JvmStatic external fun setRecipe(options: Long, recipe: ByteArray)

    @JvmStatic external fun setProgress(options: Long, sink: ProgressSink?)

    @JvmStatic external fun free(options: Long)
}

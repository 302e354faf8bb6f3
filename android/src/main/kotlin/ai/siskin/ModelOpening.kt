// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Calls [open] with the native form of these options. Opening ends early when [isActive] becomes false. */
internal fun ModelOptions.open(isActive: () -> Boolean, open: (Long) -> Long): Long {
    val sink = ProgressSink(progressListener, isActive)
    val model = useNative(NativeModelOptions.create(), NativeModelOptions::free) { options ->
        copyTo(options)
        NativeProgress.set(options, sink)
        runCatching { open(options) }
    }
    sink.exception?.let { exception ->
        model.onSuccess(NativeModel::free)
        throw exception
    }
    return model.getOrThrow()
}

internal fun ModelOptions.copyDisabledCpuFeatures(options: Long) {
    NativeModelOptions.setDisabledCpuFeatures(options, disabledCpuFeatures.joinToString(",").encodeToByteArray())
}

internal fun ModelOptions.copyAdapter(options: Long) {
    adapter?.let { NativeModelOptions.setAdapter(options, it.encodeToByteArray(), allowAnyBase) }
    for ((name, path) in adapters) {
        NativeModelOptions.addAdapter(options, name.encodeToByteArray(), path.encodeToByteArray(), allowAnyBase)
    }
}

internal fun ModelOptions.copyCacheMode(options: Long) {
    NativeModelOptions.setCacheMode(options, if (usePackedCache) CACHE_AUTO else CACHE_OFF)
    val folder = packedCacheFolder.takeIf { usePackedCache }
    folder?.let { NativeModelOptions.setCacheFolder(options, it.encodeToByteArray()) }
}

private const val CACHE_AUTO = 0
private const val CACHE_OFF = 1

/** Receives progress while a model is opened. */
public fun interface ProgressListener {
    /**
     * Receives the number of bytes of the packed copy written so far; [total] is 0 while it is unknown. Returns whether
     * to continue. Calls come one at a time, from library threads, and must not use the library. An exception aborts
     * opening and is rethrown.
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

internal object NativeProgress {
    @JvmStatic external fun set(options: Long, sink: ProgressSink?)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Functions of the whole library. */
public object Siskin {
    /** Its version, such as `0.1.0`. */
    @JvmStatic
    public val version: String
        get() {
            Library.load()
            return NativeVersion.version().decodeToString()
        }

    /** The version of the interface that it implements, which only grows. */
    @JvmStatic
    public val abiVersion: Int
        get() {
            Library.load()
            return NativeVersion.abiVersion()
        }

    /**
     * Sends the messages of the library to [listener], replacing the previous one; `null` disables logging. The library
     * prints nothing by itself. Calls come from the calling and worker threads, possibly several at once, and the
     * listener must not use the library.
     */
    @JvmStatic
    public fun setLog(listener: LogListener?) {
        Library.load()
        NativeLog.set(listener?.let(::LogSink))
    }
}

/** Receives log messages of the library. */
public fun interface LogListener {
    /** Receives one message. Exceptions are ignored. */
    public fun message(level: LogLevel, text: String)
}

/** The severity of a message. */
public enum class LogLevel {
    /** Progress. */
    INFO,

    /** Something that could be better. */
    WARNING,
}

/** Receives the bridge's log callbacks. */
internal class LogSink(private val listener: LogListener) {
    fun message(level: Int, text: ByteArray): Unit = Callbacks.inside {
        val grave = if (level >= 2) LogLevel.WARNING else LogLevel.INFO
        runCatching { listener.message(grave, text.decodeToString()) }
    }
}

/** Loads the bridge, once. */
internal object Library {
    init {
        // Desktop tests give the path of the library; apps load it by name.
        when (val path = System.getProperty("siskin.library")) {
            null -> System.loadLibrary("siskin_jni")
            else -> System.load(path)
        }
    }

    /**
     * Called first by everything that creates handles. The native classes must not call it: the bridge looks them up
     * while it loads.
     */
    fun load() {}
}

internal object NativeVersion {
    @JvmStatic external fun abiVersion(): Int

    @JvmStatic external fun version(): ByteArray
}

internal object NativeLog {
    @JvmStatic external fun set(sink: LogSink?)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** Library-wide functions. */
public object Siskin {
    /** The version of the library, such as `0.1.0`. */
    @JvmStatic
    public val version: String
        get() {
            Library.load()
            return NativeVersion.version().decodeToString()
        }

    /** The version of the C interface that the library implements. */
    @JvmStatic
    public val abiVersion: Int
        get() {
            Library.load()
            return NativeVersion.abiVersion()
        }

    /**
     * Sends the library's log messages to [listener], replacing the previous one; `null` disables logging. The library
     * prints nothing by itself. Calls come from calling and worker threads, possibly several at once, and the listener
     * must not use the library.
     */
    @JvmStatic
    public fun setLogListener(listener: LogListener?) {
        Library.load()
        NativeLog.set(listener?.let(::LogSink))
    }
}

/** Receives log messages from the library. */
public fun interface LogListener {
    /** Receives one message. Exceptions are ignored. */
    public fun onLogMessage(level: LogLevel, message: String)
}

/** The severity of a log message. */
public enum class LogLevel {
    /** Progress. */
    INFO,

    /** A condition that makes the library slower or less accurate than it could be. */
    WARNING,
}

/** Receives the log callbacks of the JNI bridge. */
internal class LogSink(private val listener: LogListener) {
    fun onLogMessage(level: Int, message: ByteArray): Unit = Callbacks.enter {
        val severity = if (level >= WARNING) LogLevel.WARNING else LogLevel.INFO
        runCatching { listener.onLogMessage(severity, message.decodeToString()) }
    }

    private companion object {
        const val WARNING = 2
    }
}

/** Loads the native library, once. */
internal object Library {
    init {
        // Tests on a desktop JVM set the path of the library; apps load it by name.
        when (val path = System.getProperty("siskin.library")) {
            null -> System.loadLibrary("siskin_jni")
            else -> System.load(path)
        }
    }

    /**
     * Must be called before any native function. The `Native...` objects cannot call it themselves: `JNI_OnLoad` looks
     * them up.
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

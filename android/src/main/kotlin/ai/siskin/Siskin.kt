// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** The library as a whole. */
public object Siskin {
    /** Its version, such as `0.1.0`. */
    @JvmStatic
    public val version: String
        get() {
            Library.load()
            return NativeVersion.version().decodeToString()
        }

    /** The version of the interface that it has, which only grows. */
    @JvmStatic
    public val abiVersion: Int
        get() {
            Library.load()
            return NativeVersion.abiVersion()
        }

    /**
     * Sends messages of the library to [listener], in place of who got them before; `null`: to nobody. The library
     * prints nothing by itself. Calls come from the threads that work, perhaps from several at once, and the listener
     * must not use the library.
     */
    @JvmStatic
    public fun setLog(listener: LogListener?) {
        Library.load()
        NativeLog.set(listener?.let(::LogSink))
    }
}

/** Whom the library tells its messages. */
public fun interface LogListener {
    /** Is told one message. What this throws is dropped. */
    public fun message(level: LogLevel, text: String)
}

/** How grave a message is. */
public enum class LogLevel {
    /** What is being done. */
    INFO,

    /** What could be better. */
    WARNING,
}

/** What the bridge calls with messages. */
internal class LogSink(private val listener: LogListener) {
    fun message(level: Int, text: ByteArray): Unit = Callbacks.inside {
        val grave = if (level >= 2) LogLevel.WARNING else LogLevel.INFO
        runCatching { listener.message(grave, text.decodeToString()) }
    }
}

/** Loads the bridge, once. */
internal object Library {
    init {
        // Tests on a desktop name the file; apps find it by its name.
        when (val path = System.getProperty("siskin.library")) {
            null -> System.loadLibrary("siskin_jni")
            else -> System.load(path)
        }
    }

    /** What makes handles calls this first. The native classes must not: the bridge looks them up while it loads. */
    fun load() {}
}

internal object NativeVersion {
    @JvmStatic external fun abiVersion(): Int

    @JvmStatic external fun version(): ByteArray
}

internal object NativeLog {
    @JvmStatic external fun set(sink: LogSink?)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/**
 * An error reported by the library. [code] is stable, [location] says where it occurred (a file, section and field, or
 * the name of an argument), and [message] says what is wrong and, where possible, what to do.
 */
public sealed class SiskinException(
    /** The stable error code. */
    public val code: Int,
    /** The location of the error; may be empty. */
    public val location: String,
    override val message: String,
) : RuntimeException(message) {
    /** A file or folder could not be read or written. */
    public class Io internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_IO, location, message)

    /** The data is malformed. */
    public class Corrupt internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_CORRUPT, location, message)

    /** The format or the request is valid, but unsupported by this version or this model. */
    public class Unsupported internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_UNSUPPORTED, location, message)

    /** The file's major version is unknown. */
    public class Version internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_VERSION, location, message)

    /** A file does not exist, or lacks something that the model needs. */
    public class Missing internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_MISSING, location, message)

    /** A tensor has a shape or type that the architecture does not allow. */
    public class Shape internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_SHAPE, location, message)

    /** A hash mismatch: the file was modified or damaged. */
    public class Integrity internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_INTEGRITY, location, message)

    /** A value is out of range or contradicts another. */
    public class Argument internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_ARGUMENT, location, message)

    /** The text or tokens are longer than the context. */
    public class TooLong internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_TOO_LONG, location, message)

    /** The chat template failed or rejected the messages. */
    public class Template internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_TEMPLATE, location, message)

    /** A pointer is null or misaligned. */
    public class Null internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_NULL, location, message)

    /** A handle has the wrong type. */
    public class WrongHandle internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_HANDLE, location, message)

    /** A string is not valid UTF-8. */
    public class Utf8 internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_UTF8, location, message)

    /** The size of a struct was not set. */
    public class StructSize internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_STRUCT_SIZE, location, message)

    /** The handle is in a state that does not allow the call. */
    public open class State internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_STATE, location, message)

    /** The handle is closed. */
    public class Closed internal constructor(location: String) :
        State(location, "closed; create a new one")

    /**
     * The call was canceled by [CancellableHandle.cancel], or by a [ProgressListener]; it can be retried. A call
     * whose coroutine is canceled throws a `CancellationException` instead.
     */
    public class Canceled internal constructor(
        location: String,
        message: String,
        /** Whether [CancellableHandle.cancel] is known to be the cause. The library reports pauses as canceled too. */
        internal val isByCaller: Boolean = false,
    ) : SiskinException(SISKIN_ERROR_CANCELED, location, message)

    /** The model produced NaN or infinity. */
    public class Numeric internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_NUMERIC, location, message)

    /** Another call is using the handle, or the call came from a listener. */
    public class Busy internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_BUSY, location, message)

    /** An earlier call panicked inside the handle: close it. */
    public class Poisoned internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_POISONED, location, message)

    /** The session is paused: resume it first. */
    public class Paused internal constructor(
        location: String,
        message: String,
        /** Whether the session is unchanged, so that the call can be retried once the session is resumed. */
        internal val isRepeatable: Boolean = true,
    ) : SiskinException(SISKIN_ERROR_PAUSED, location, message)

    /** The request exceeds a memory limit. */
    public class Memory internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_MEMORY, location, message)

    /** There was not enough memory to allocate an error. */
    public class OutOfMemory internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_OUT_OF_MEMORY, location, message)

    /** Too many requests are waiting; the call can be retried later. */
    public class Overloaded internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_OVERLOADED, location, message)

    /** An internal error: please report it. */
    public class Panic internal constructor(location: String, message: String) :
        SiskinException(SISKIN_ERROR_PANIC, location, message)

    /** An error code from a newer library that this class does not know. */
    public class Unknown internal constructor(code: Int, location: String, message: String) :
        SiskinException(code, location, message)

    override fun toString(): String =
        javaClass.name + " ($code): " + (if (location.isEmpty()) "" else "$location: ") + message
}

internal const val SISKIN_ERROR_IO: Int = 100
internal const val SISKIN_ERROR_CORRUPT: Int = 101
internal const val SISKIN_ERROR_UNSUPPORTED: Int = 102
internal const val SISKIN_ERROR_VERSION: Int = 103
internal const val SISKIN_ERROR_MISSING: Int = 104
internal const val SISKIN_ERROR_SHAPE: Int = 105
internal const val SISKIN_ERROR_INTEGRITY: Int = 106
internal const val SISKIN_ERROR_ARGUMENT: Int = 200
internal const val SISKIN_ERROR_TOO_LONG: Int = 201
internal const val SISKIN_ERROR_TEMPLATE: Int = 202
internal const val SISKIN_ERROR_NULL: Int = 210
internal const val SISKIN_ERROR_HANDLE: Int = 211
internal const val SISKIN_ERROR_UTF8: Int = 212
internal const val SISKIN_ERROR_STRUCT_SIZE: Int = 213
internal const val SISKIN_ERROR_STATE: Int = 300
internal const val SISKIN_ERROR_CANCELED: Int = 301
internal const val SISKIN_ERROR_NUMERIC: Int = 302
internal const val SISKIN_ERROR_BUSY: Int = 310
internal const val SISKIN_ERROR_POISONED: Int = 311
internal const val SISKIN_ERROR_PAUSED: Int = 312
internal const val SISKIN_ERROR_MEMORY: Int = 400
internal const val SISKIN_ERROR_OUT_OF_MEMORY: Int = 401
internal const val SISKIN_ERROR_OVERLOADED: Int = 402
internal const val SISKIN_ERROR_PANIC: Int = 999

/** Called by the JNI bridge to create exceptions. */
internal object NativeErrors {
    @JvmStatic
    fun create(code: Int, location: ByteArray, message: ByteArray): Throwable =
        create(code, location.decodeToString(), message.decodeToString())

    private fun create(code: Int, location: String, message: String): SiskinException = when (code) {
        SISKIN_ERROR_IO -> SiskinException.Io(location, message)
        SISKIN_ERROR_CORRUPT -> SiskinException.Corrupt(location, message)
        SISKIN_ERROR_UNSUPPORTED -> SiskinException.Unsupported(location, message)
        SISKIN_ERROR_VERSION -> SiskinException.Version(location, message)
        SISKIN_ERROR_MISSING -> SiskinException.Missing(location, message)
        SISKIN_ERROR_SHAPE -> SiskinException.Shape(location, message)
        SISKIN_ERROR_INTEGRITY -> SiskinException.Integrity(location, message)
        SISKIN_ERROR_ARGUMENT -> SiskinException.Argument(location, message)
        SISKIN_ERROR_TOO_LONG -> SiskinException.TooLong(location, message)
        SISKIN_ERROR_TEMPLATE -> SiskinException.Template(location, message)
        SISKIN_ERROR_NULL -> SiskinException.Null(location, message)
        SISKIN_ERROR_HANDLE -> SiskinException.WrongHandle(location, message)
        SISKIN_ERROR_UTF8 -> SiskinException.Utf8(location, message)
        SISKIN_ERROR_STRUCT_SIZE -> SiskinException.StructSize(location, message)
        SISKIN_ERROR_STATE -> SiskinException.State(location, message)
        SISKIN_ERROR_CANCELED -> SiskinException.Canceled(location, message)
        SISKIN_ERROR_NUMERIC -> SiskinException.Numeric(location, message)
        SISKIN_ERROR_BUSY -> SiskinException.Busy(location, message)
        SISKIN_ERROR_POISONED -> SiskinException.Poisoned(location, message)
        SISKIN_ERROR_PAUSED -> SiskinException.Paused(location, message)
        SISKIN_ERROR_MEMORY -> SiskinException.Memory(location, message)
        SISKIN_ERROR_OUT_OF_MEMORY -> SiskinException.OutOfMemory(location, message)
        SISKIN_ERROR_OVERLOADED -> SiskinException.Overloaded(location, message)
        SISKIN_ERROR_PANIC -> SiskinException.Panic(location, message)
        else -> SiskinException.Unknown(code, location, message)
    }
}

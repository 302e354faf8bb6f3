// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Reads the values that `struct packer` of the JNI bridge wrote, in the same order. */
internal class Unpacker(bytes: ByteArray) {
    private val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder())

    fun int(): Int = buffer.getInt()

    fun boolean(): Boolean = int() != 0

    fun long(): Long = buffer.getLong()

    fun float(): Float = buffer.getFloat()

    fun double(): Double = buffer.getDouble()

    fun bytes(): ByteArray = ByteArray(int()).also(buffer::get)

    fun string(): String = bytes().decodeToString()

    fun ints(): IntArray = IntArray(int()) { int() }

    inline fun <T> list(read: () -> T): List<T> = List(int()) { read() }
}

/** Encodes the strings as UTF-8. */
internal fun List<String>.encodeToByteArrays(): Array<ByteArray> = Array(size) { this[it].encodeToByteArray() }

/** Returns a value of at least 1, or throws; the library takes 0 for the default, which is `null` here. */
internal fun positive(name: String, value: Int): Int = atLeast(1, name, value.toLong()).toInt()

internal fun positive(name: String, value: Long): Long = atLeast(1, name, value)

/** Returns a value of at least 0, or throws. */
internal fun nonNegative(name: String, value: Int): Int = atLeast(0, name, value.toLong()).toInt()

internal fun nonNegative(name: String, value: Long): Long = atLeast(0, name, value)

private fun atLeast(minimum: Long, name: String, value: Long): Long {
    if (value < minimum) throw SiskinException.Argument(name, "must be at least $minimum, got $value")
    return value
}

internal fun Boolean.toInt(): Int = if (this) 1 else 0

/** Calls [use] with a native object that is created for a single call, and frees the object. */
internal inline fun <T> useNative(pointer: Long, free: (Long) -> Unit, use: (Long) -> T): T {
    try {
        return use(pointer)
    } finally {
        free(pointer)
    }
}

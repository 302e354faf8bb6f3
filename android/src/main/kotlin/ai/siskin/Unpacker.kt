// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Reads what the bridge's `packer` wrote. */
internal class Unpacker(bytes: ByteArray) {
    private val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder())

    fun int(): Int = buffer.getInt()

    fun flag(): Boolean = int() != 0

    fun long(): Long = buffer.getLong()

    fun float(): Float = buffer.getFloat()

    fun double(): Double = buffer.getDouble()

    fun bytes(): ByteArray = ByteArray(int()).also(buffer::get)

    fun text(): String = bytes().decodeToString()

    fun ints(): IntArray = IntArray(int()) { int() }

    inline fun <T> list(read: () -> T): List<T> = List(int()) { read() }
}

/** Bytes of many texts. */
internal fun List<String>.encoded(): Array<ByteArray> = Array(size) { this[it].encodeToByteArray() }

/** A number that the library counts with, which is never below 0. */
internal fun natural(name: String, value: Int): Int {
    if (value < 0) throw SiskinException.Argument(name, "is $value; give 0 or more")
    return value
}

/** The same of a large number. */
internal fun natural(name: String, value: Long): Long {
    if (value < 0) throw SiskinException.Argument(name, "is $value; give 0 or more")
    return value
}

/** Lends something of the library's that is made for one call alone. */
internal inline fun <T> lent(pointer: Long, free: (Long) -> Unit, use: (Long) -> T): T {
    try {
        return use(pointer)
    } finally {
        free(pointer)
    }
}

/** What the library holds in memory, or would hold, in bytes. */
public class Memory internal constructor(
    /** Activations and small weights: taken at once. */
    public val activations: Long,
    /** Keys and values: reserved, and taken as they fill. */
    public val cache: Long,
    /** The model's file: pages of it that the system may drop and read again. */
    public val mapped: Long,
) {
    override fun toString(): String = "Memory(activations=$activations, cache=$cache, mapped=$mapped)"

    internal companion object {
        fun read(bytes: ByteArray): Memory = Unpacker(bytes).run { Memory(long(), long(), long()) }
    }
}

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

/** Encodes the texts as UTF-8. */
internal fun List<String>.encoded(): Array<ByteArray> = Array(size) { this[it].encodeToByteArray() }

/** Validates a native count, which is never negative. */
internal fun natural(name: String, value: Int): Int {
    if (value < 0) throw SiskinException.Argument(name, "is $value; give 0 or more")
    return value
}

/** The same for a `Long`. */
internal fun natural(name: String, value: Long): Long {
    if (value < 0) throw SiskinException.Argument(name, "is $value; give 0 or more")
    return value
}

/** Uses a native object that is created for a single call, and frees it. */
internal inline fun <T> lent(pointer: Long, free: (Long) -> Unit, use: (Long) -> T): T {
    try {
        return use(pointer)
    } finally {
        free(pointer)
    }
}

/** The memory that a session uses or would use, in bytes. */
public class Memory internal constructor(
    /** Activations and small weights: allocated up front. */
    public val activations: Long,
    /** The KV cache: reserved up front, committed as it fills. */
    public val cache: Long,
    /** The mapped model file: clean pages, which the system may evict and read again. */
    public val mapped: Long,
) {
    override fun toString(): String = "Memory(activations=$activations, cache=$cache, mapped=$mapped)"

    internal companion object {
        fun read(bytes: ByteArray): Memory = Unpacker(bytes).run { Memory(long(), long(), long()) }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** The tensors of a safetensors file with PyTorch's results. */
internal class Tensors(file: File) {
    private val bytes = ByteBuffer.wrap(file.readBytes()).order(ByteOrder.LITTLE_ENDIAN)
    private val header = String(bytes.array(), 8, bytes.getLong(0).toInt())
    private val data = 8 + bytes.getLong(0).toInt()

    fun floats(name: String): FloatArray = slice(name).asFloatBuffer().let { FloatArray(it.remaining()).also(it::get) }

    fun longs(name: String): LongArray = slice(name).asLongBuffer().let { LongArray(it.remaining()).also(it::get) }

    private fun slice(name: String): ByteBuffer {
        val place = Regex("\"$name\":\\{[^}]*\"data_offsets\":\\[(\\d+),(\\d+)]").find(header.replace(" ", ""))!!
        val (start, end) = place.destructured
        return ByteBuffer.wrap(bytes.array(), data + start.toInt(), end.toInt() - start.toInt()).slice()
            .order(ByteOrder.LITTLE_ENDIAN)
    }
}

/** Parses a list of strings or numbers in simple JSON. */
internal fun jsonStrings(json: String): List<String> =
    Regex("\"((?:[^\"\\\\]|\\\\.)*)\"").findAll(json).map { unescaped(it.groupValues[1]) }.toList()

private fun unescaped(text: String): String =
    Regex("\\\\(u[0-9a-fA-F]{4}|.)").replace(text) { found ->
        val what = found.groupValues[1]
        if (what.length > 1) what.drop(1).toInt(16).toChar().toString() else if (what == "n") "\n" else what
    }

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** The tensors of a safetensors file with results of PyTorch. */
internal class Tensors(file: File) {
    private val bytes = ByteBuffer.wrap(file.readBytes()).order(ByteOrder.LITTLE_ENDIAN)
    private val header = String(bytes.array(), 8, bytes.getLong(0).toInt())
    private val data = 8 + bytes.getLong(0).toInt()

    fun floats(name: String): FloatArray = slice(name).asFloatBuffer().let { FloatArray(it.remaining()).also(it::get) }

    fun longs(name: String): LongArray = slice(name).asLongBuffer().let { LongArray(it.remaining()).also(it::get) }

    private fun slice(name: String): ByteBuffer {
        val offsets = Regex("\"$name\":\\{[^}]*\"data_offsets\":\\[(\\d+),(\\d+)]").find(header.replace(" ", ""))!!
        val (start, end) = offsets.destructured
        return ByteBuffer.wrap(bytes.array(), data + start.toInt(), end.toInt() - start.toInt()).slice()
            .order(ByteOrder.LITTLE_ENDIAN)
    }
}

/** Parses a JSON list of strings. */
internal fun jsonStrings(json: String): List<String> =
    Regex("\"((?:[^\"\\\\]|\\\\.)*)\"").findAll(json).map { unescape(it.groupValues[1]) }.toList()

private fun unescape(text: String): String =
    Regex("\\\\(u[0-9a-fA-F]{4}|.)").replace(text) { match ->
        val escape = match.groupValues[1]
        if (escape.length > 1) escape.drop(1).toInt(16).toChar().toString() else if (escape == "n") "\n" else escape
    }

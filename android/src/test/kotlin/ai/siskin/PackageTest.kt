// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.ByteArrayInputStream
import java.io.DataInputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.zip.ZipFile
import java.util.zip.ZipInputStream
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test

/** Checks the contents of the package. */
class PackageTest {
    private val files: Map<String, ByteArray> = ZipFile(resource("siskin.package")!!).use { zip ->
        zip.entries().asSequence().filterNot { it.isDirectory }.associate { it.name to zip.getInputStream(it).readBytes() }
    }

    @Test
    fun `it contains the files of an AAR`() {
        val expected = setOf(
            "AndroidManifest.xml", "R.txt", "classes.jar", "proguard.txt",
            "META-INF/com/android/build/gradle/aar-metadata.properties",
        )
        assertEquals(expected, files.keys.filterNot { it.startsWith("jni/") }.toSet())
        assertTrue("minSdkVersion=\"21\"" in files.getValue("AndroidManifest.xml").decodeToString())
        assertTrue(files.keys.any { it.startsWith("jni/") && it.endsWith("/libsiskin_jni.so") })
    }

    @Test
    fun `its classes are in our package and target Java 8`() {
        val classes = classes()
        assertTrue(classes.size > 50)
        for ((name, bytes) in classes) {
            if (!name.endsWith(".class")) continue
            assertTrue(name, name.startsWith("ai/siskin/"))
            val input = DataInputStream(ByteArrayInputStream(bytes))
            assertEquals(0xCAFEBABE.toInt(), input.readInt())
            input.readShort()
            assertEquals("class file version of $name", 52, input.readShort().toInt())
        }
        assertFalse(classes.keys.any { "Testing" in it })
        // Kotlin callers need this metadata for top-level functions.
        assertTrue("META-INF/siskin.kotlin_module" in classes)
    }

    private fun classes(): Map<String, ByteArray> {
        val classes = mutableMapOf<String, ByteArray>()
        ZipInputStream(ByteArrayInputStream(files.getValue("classes.jar"))).use { zip ->
            while (true) {
                val entry = zip.nextEntry ?: break
                if (!entry.isDirectory) classes[entry.name] = zip.readBytes()
            }
        }
        return classes
    }

    @Test
    fun `shrinker rules keep the names that the JNI bridge looks up`() {
        val rules = files.getValue("proguard.txt").decodeToString()
        for (name in listOf("Native*", "NativeErrors", "LogSink", "ProgressSink")) {
            assertTrue(name, "class ai.siskin.$name {" in rules)
        }
    }

    @Test
    fun `its libraries are aligned to 16 KB pages and export one symbol`() {
        val libraries = files.filterKeys { it.endsWith(".so") }
        for ((name, bytes) in libraries) {
            val elf = Elf(bytes)
            assertTrue(name, elf.alignments.isNotEmpty() && elf.alignments.all { it >= 16384 })
            assertEquals(name, listOf("JNI_OnLoad"), elf.exports)
            println("$name: ${bytes.size shr 10} KiB, aligned to ${elf.alignments.min()}, exports ${elf.exports}")
        }
    }
}

/** Reads segments and symbols of a 32-bit or 64-bit ELF library. */
internal class Elf(bytes: ByteArray) {
    private val data = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
    private val is64Bit = bytes[4].toInt() == 2

    private fun word(offset: Int): Long =
        if (is64Bit) data.getLong(offset) else data.getInt(offset).toLong() and 0xffffffff

    private fun half(offset: Int): Int = data.getShort(offset).toInt() and 0xffff

    /** The alignments of the loadable segments. */
    val alignments: List<Long>
        get() {
            val (table, size, count) =
                if (is64Bit) Triple(word(32), half(54), half(56)) else Triple(word(28), half(42), half(44))
            return List(count) { table.toInt() + it * size }.filter { data.getInt(it) == 1 }
                .map { word(it + if (is64Bit) 48 else 28) }
        }

    /** The offsets of the section headers. */
    private val sections: List<Int>
        get() {
            val (table, size, count) =
                if (is64Bit) Triple(word(40), half(58), half(60)) else Triple(word(32), half(46), half(48))
            return List(count) { table.toInt() + it * size }
        }

    private fun start(section: Int): Int = word(section + if (is64Bit) 24 else 16).toInt()

    private fun length(section: Int): Int = word(section + if (is64Bit) 32 else 20).toInt()

    /** The names of the defined dynamic symbols. */
    val exports: List<String>
        get() {
            val symbols = sections.single { data.getInt(it + 4) == 11 }
            val names = start(sections[data.getInt(symbols + if (is64Bit) 40 else 24)])
            val size = if (is64Bit) 24 else 16
            return List(length(symbols) / size) { start(symbols) + it * size }
                .filter { half(it + if (is64Bit) 6 else 14) != 0 }
                .map { text(names + data.getInt(it)) }
                .filter { it.isNotEmpty() }
        }

    private fun text(offset: Int): String = buildString {
        var next = offset
        while (data.get(next).toInt() != 0) append(data.get(next++).toInt().toChar())
    }
}

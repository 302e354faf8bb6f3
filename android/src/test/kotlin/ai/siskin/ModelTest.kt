// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.channels.FileChannel.MapMode
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

class ModelTest {
    private suspend fun says(model: Model): List<String> = model.greedy(8).use { it.chat("hello").toList() }

    @Test
    fun `a model opens from anywhere`() = test {
        val expected = with("chat") { says(it) }
        val bytes = File(small("chat")).readBytes()
        Model.openCopy(bytes).use { assertEquals(expected, says(it)) }
        var buffer: ByteBuffer? = ByteBuffer.allocateDirect(bytes.size + 64)
        buffer!!.position(64)
        val start = buffer.slice()
        start.put(bytes).flip()
        val model = Model.openMemory(start)
        buffer = null
        repeat(3) { System.gc() }
        model.use { assertEquals(expected, says(it)) }
        fails<IllegalArgumentException> { Model.openMemory(ByteBuffer.wrap(bytes)) }
        fails<SiskinException.Corrupt> { Model.openMemory(ByteBuffer.allocateDirect(0)) }
        RandomAccessFile(small("chat"), "r").channel.use { channel ->
            val mapped = channel.map(MapMode.READ_ONLY, 0, channel.size())
            Model.openMemory(mapped).use { assertEquals(expected, says(it)) }
        }
    }

    @Test
    fun `a model opens inside another file`() = test {
        val expected = with("chat") { says(it) }
        val file = File.createTempFile("package", ".apk")
        val bytes = File(small("chat")).readBytes()
        file.writeBytes(ByteArray(16384) + bytes + ByteArray(100))
        val opened = RandomAccessFile(file, "r")
        val model = Model.openDescriptor(number(opened), 16384, bytes.size.toLong())
        opened.close()
        file.delete()
        model.use { assertEquals(expected, says(it)) }
        fails<SiskinException.Io> { Model.openDescriptor(4711) }
        fails<SiskinException.Argument> { Model.openDescriptor(0, -1) }
    }

    /** Returns the file descriptor number, which Java does not expose. */
    private fun number(file: RandomAccessFile): Int =
        file.fd.javaClass.getDeclaredField("fd").apply { isAccessible = true }.getInt(file.fd)

    @Test
    fun `progress is reported, and may abort`() = test {
        val source = given("siskin.models")!!.resolve("chat").path
        val calls = AtomicInteger()
        val quiet = ModelOptions().apply { cache = ModelOptions.Cache.OFF; recipe = "w4i" }
        quiet.progress = ProgressListener { done, total ->
            assertTrue(done >= 0 && total >= 0)
            calls.incrementAndGet()
            true
        }
        Model.open(source, quiet).use { assertEquals("llama", it.info.family) }
        assertTrue(calls.get() > 0)
        quiet.progress = ProgressListener { _, _ -> false }
        fails<SiskinException.Cancelled> { Model.open(source, quiet) }
        quiet.progress = ProgressListener { _, _ -> throw IllegalStateException("no room") }
        assertEquals("no room", fails<IllegalStateException> { Model.open(source, quiet) }.message)
        quiet.progress = ProgressListener { _, _ -> calls.decrementAndGet() > 0 || throw IllegalStateException("at the end") }
        assertEquals("at the end", fails<IllegalStateException> { Model.open(source, quiet) }.message)
        val folder = kotlin.io.path.createTempDirectory("cache").toFile()
        Model.open(source) { cacheFolder = folder.resolve("packed").path }.close()
        assertEquals(1, folder.resolve("packed").listFiles()!!.size)
        folder.deleteRecursively()
    }

    @Test
    fun `opening can be cancelled`() = test {
        val source = given("siskin.models")!!.resolve("chat").path
        val calls = AtomicInteger()
        val job = launch(Dispatchers.IO) {
            Model.open(source) {
                cache = ModelOptions.Cache.OFF
                progress = ProgressListener { _, _ -> calls.incrementAndGet(); Thread.sleep(20); true }
            }.close()
        }
        while (calls.get() == 0) delay(1)
        val before = calls.get()
        job.cancelAndJoin()
        assertTrue("${calls.get() - before} calls more", calls.get() - before <= 1)
    }

    @Test
    fun `tokens are what the text is`() = test {
        with("chat") { model ->
            val text = "né 日 \uD83D\uDE00"
            val ids = model.tokenize(text)
            assertArrayEquals(text.encodeToByteArray(), ids.flatMap { model.tokenBytes(it).asList() }.toByteArray())
            val long = "abc".repeat(1000)
            assertEquals(3000, model.tokenize(long, special = false).size)
            model.verify()
        }
    }

    @Test
    fun `options go in`() = test {
        val expected = with("chat") { says(it) }
        Model.open(small("chat")) { threads = 1; without = listOf("avx512", "avx2") }.use {
            assertEquals(1, it.info.threads)
            assertEquals(expected, says(it))
        }
        Model.open(small("chat")) { reference = true }.use { assertEquals(expected, says(it)) }
        Model.open(small("chat")) { skip = listOf(1) }.use { assertTrue(expected != says(it)) }
        fails<SiskinException.Argument> { Model.open(small("chat")) { skip = listOf(99) } }
    }

    @Test
    fun `an adapter changes what its base says`() = test {
        val plain = with("chat") { says(it) }
        Model.open(small("chat")) { adapter = small("adapter") }.use { assertTrue(plain != says(it)) }
        fails<SiskinException.Argument> { Model.open(small("vectors")) { adapter = small("adapter") } }
        // Another base model of the same family is accepted with `anyBase`.
        val source = given("siskin.models")!!.resolve("chat").path
        val other = ModelOptions().apply { cache = ModelOptions.Cache.OFF; recipe = "w8r"; adapter = small("adapter") }
        fails<SiskinException.Argument> { Model.open(source, other) }
        other.anyBase = true
        Model.open(source, other).close()
        fails<SiskinException.Missing> { Model.open(small("chat")) { adapter = small("chat") } }
    }

    @Test
    fun `a pace changes when, and not what`() = test {
        with("chat") { model ->
            val expected = says(model)
            model.setHeat(2)
            model.setPower(saving = false, onBattery = true)
            model.setPace(Pace.Background)
            assertEquals(expected, says(model))
            val stats = model.paceStats()
            assertEquals(1, stats.threads)
            assertEquals(0.25f, stats.duty)
            assertTrue(stats.passes > 0 && stats.waitedNanoseconds > 0)
            fails<SiskinException.Argument> { model.setPace(Pace.Duty(0f)) }
            model.setPace(Pace.Off)
        }
    }

    @Test
    fun `messages are heard`() = test {
        val heard = java.util.concurrent.ConcurrentLinkedQueue<String>()
        Siskin.setLog { level, text -> heard += "$level: $text"; error("dropped") }
        val folder = kotlin.io.path.createTempDirectory("cache").toFile()
        val source = given("siskin.models")!!.resolve("chat").path
        Model.open(source) { cacheFolder = folder.path }.close()
        Siskin.setLog(null)
        println("messages: ${heard.size}, such as ${heard.firstOrNull()}")
        folder.deleteRecursively()
        assertTrue(Siskin.version.startsWith("0.") && Siskin.abiVersion >= 1)
    }
}

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
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test

class ModelTest {
    private suspend fun answer(model: Model, adapter: String? = null): List<String> = model.session {
        sampler = Sampler.greedy()
        maxTokens = 8
        this.adapter = adapter
    }.use { it.chat("hello").toList() }

    @Test
    fun `a model opens from memory`() = runTest {
        val expected = withModel("chat") { answer(it) }
        val bytes = File(smallModel("chat")).readBytes()
        Model.open(bytes).use { assertEquals(expected, answer(it)) }
        var buffer: ByteBuffer? = ByteBuffer.allocateDirect(bytes.size + 64)
        buffer!!.position(64)
        val start = buffer.slice()
        start.put(bytes).flip()
        val model = Model.open(start)
        buffer = null
        repeat(3) { System.gc() }
        model.use { assertEquals(expected, answer(it)) }
        assertThrows<IllegalArgumentException> { Model.open(ByteBuffer.wrap(bytes)) }
        assertThrows<SiskinException.Corrupt> { Model.open(ByteBuffer.allocateDirect(0)) }
        RandomAccessFile(smallModel("chat"), "r").channel.use { channel ->
            val mapped = channel.map(MapMode.READ_ONLY, 0, channel.size())
            Model.open(mapped).use { assertEquals(expected, answer(it)) }
        }
    }

    @Test
    fun `a model opens from a part of a file`() = runTest {
        val expected = withModel("chat") { answer(it) }
        val file = File.createTempFile("package", ".apk")
        val bytes = File(smallModel("chat")).readBytes()
        file.writeBytes(ByteArray(16384) + bytes + ByteArray(100))
        val opened = RandomAccessFile(file, "r")
        val model = Model.openFileDescriptor(number(opened), 16384, bytes.size.toLong())
        opened.close()
        file.delete()
        model.use { assertEquals(expected, answer(it)) }
        assertThrows<SiskinException.Io> { Model.openFileDescriptor(4711) }
        assertThrows<SiskinException.Argument> { Model.openFileDescriptor(0, -1) }
        assertThrows<SiskinException.Argument> { Model.openFileDescriptor(0, length = 0) }
    }

    /** Returns the file descriptor number, which Java does not expose. */
    private fun number(file: RandomAccessFile): Int =
        file.fd.javaClass.getDeclaredField("fd").apply { isAccessible = true }.getInt(file.fd)

    @Test
    fun `a progress listener receives progress and can abort`() = runTest {
        val source = resource("siskin.models")!!.resolve("chat").path
        val calls = AtomicInteger()
        val options = ModelOptions().apply { usePackedCache = false; quantization = "w4i" }
        options.progressListener = ProgressListener { done, total ->
            assertTrue(done >= 0 && total >= 0)
            calls.incrementAndGet()
            true
        }
        Model.open(source, options).use { assertEquals("llama", it.info.family) }
        assertTrue(calls.get() > 0)
        options.progressListener = ProgressListener { _, _ -> false }
        assertThrows<SiskinException.Canceled> { Model.open(source, options) }
        options.progressListener = ProgressListener { _, _ -> throw IllegalStateException("disk full") }
        assertEquals("disk full", assertThrows<IllegalStateException> { Model.open(source, options) }.message)
        options.progressListener = ProgressListener { _, _ -> calls.decrementAndGet() > 0 || throw IllegalStateException("at the end") }
        assertEquals("at the end", assertThrows<IllegalStateException> { Model.open(source, options) }.message)
        val folder = kotlin.io.path.createTempDirectory("cache").toFile()
        Model.open(source) { packedCacheFolder = folder.resolve("packed").path }.close()
        assertEquals(1, folder.resolve("packed").listFiles()!!.size)
        folder.deleteRecursively()
    }

    @Test
    fun `opening can be canceled`() = runTest {
        val source = resource("siskin.models")!!.resolve("chat").path
        val calls = AtomicInteger()
        val job = launch(Dispatchers.IO) {
            Model.open(source) {
                usePackedCache = false
                progressListener = ProgressListener { _, _ -> calls.incrementAndGet(); Thread.sleep(20); true }
            }.close()
        }
        while (calls.get() == 0) delay(1)
        val before = calls.get()
        job.cancelAndJoin()
        assertTrue("${calls.get() - before} more calls", calls.get() - before <= 1)
    }

    @Test
    fun `the bytes of tokens are the text`() = runTest {
        withModel("chat") { model ->
            val text = "né 日 \uD83D\uDE00"
            val ids = model.tokenize(text)
            assertArrayEquals(text.encodeToByteArray(), ids.flatMap { model.tokenBytes(it).asList() }.toByteArray())
            val long = "abc".repeat(1000)
            assertEquals(3000, model.tokenize(long, addSpecial = false).size)
            model.verify()
        }
    }

    @Test
    fun `options take effect`() = runTest {
        val expected = withModel("chat") { answer(it) }
        Model.open(smallModel("chat")) { threads = 1; disabledCpuFeatures = listOf("avx512", "avx2") }.use {
            assertEquals(1, it.info.threads)
            assertEquals(expected, answer(it))
        }
        Model.open(smallModel("chat")) { device = Device.REFERENCE }.use { assertEquals(expected, answer(it)) }
        Model.open(smallModel("chat")) { skipLayers = listOf(1) }.use { assertTrue(expected != answer(it)) }
        assertThrows<SiskinException.Argument> { Model.open(smallModel("chat")) { skipLayers = listOf(99) } }
        assertThrows<SiskinException.Argument> { Model.open(smallModel("chat")) { threads = 0 } }
    }

    @Test
    fun `an adapter changes the output of its base model`() = runTest {
        val base = withModel("chat") { answer(it) }
        Model.open(smallModel("chat")) { adapter = smallModel("adapter") }.use { assertTrue(base != answer(it)) }
        assertThrows<SiskinException.Argument> { Model.open(smallModel("vectors")) { adapter = smallModel("adapter") } }
        // Sessions of one model choose the same adapter by its name.
        Model.open(smallModel("chat")) { adapters = mapOf("a" to smallModel("adapter")) }.use { model ->
            val adapted = Model.open(smallModel("chat")) { adapter = smallModel("adapter") }.use { answer(it) }
            assertEquals(base, answer(model))
            assertEquals(adapted, answer(model, "a"))
            assertThrows<SiskinException.Argument> { answer(model, "b") }
        }
        // A base model with other weights needs `allowAnyBase`.
        val source = resource("siskin.models")!!.resolve("chat").path
        val other = ModelOptions().apply { usePackedCache = false; quantization = "w8r"; adapter = smallModel("adapter") }
        assertThrows<SiskinException.Argument> { Model.open(source, other) }
        other.allowAnyBase = true
        Model.open(source, other).close()
        assertThrows<SiskinException.Missing> { Model.open(smallModel("chat")) { adapter = smallModel("chat") } }
    }

    @Test
    fun `throttling changes the speed and not the output`() = runTest {
        withModel("chat") { model ->
            val expected = answer(model)
            assertEquals(Throttle.Off, model.throttle)
            assertNull(model.throttleStats().threads)
            model.updateThermalState(ThermalState.MODERATE)
            model.updatePowerState(PowerState(isPowerSaveMode = false, isOnBattery = true))
            model.throttle = Throttle.Background
            assertEquals(expected, answer(model))
            val stats = model.throttleStats()
            assertEquals(1, stats.threads)
            assertEquals(0.25f, stats.dutyCycle)
            assertTrue(stats.forwardPasses > 0 && stats.waitNanoseconds > 0)
            assertThrows<SiskinException.Argument> { model.throttle = Throttle.DutyCycle(0f) }
            assertEquals(Throttle.Background, model.throttle)
            model.throttle = Throttle.Off
        }
    }

    @Test
    fun `a log listener receives messages and its exceptions are ignored`() = runTest {
        val messages = java.util.concurrent.ConcurrentLinkedQueue<String>()
        Siskin.setLogListener { level, message -> messages += "$level: $message"; error("ignored") }
        val folder = kotlin.io.path.createTempDirectory("cache").toFile()
        val source = resource("siskin.models")!!.resolve("chat").path
        Model.open(source) { packedCacheFolder = folder.path }.close()
        Siskin.setLogListener(null)
        println("log: ${messages.size} messages, such as ${messages.firstOrNull()}")
        folder.deleteRecursively()
        assertTrue(Siskin.version.startsWith("0.") && Siskin.abiVersion >= 1)
    }
}

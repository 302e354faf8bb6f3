// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import ai.siskin.android.MemoryCallbacks
import android.content.ComponentCallbacks2
import kotlinx.coroutines.coroutineScope
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test

class ErrorTest {
    @Test
    fun `every error code of the header has an exception class`() = runTest {
        Siskin.version
        val codes = Regex("(SISKIN_ERROR_\\w+) = (\\d+),").findAll(resource("siskin.header")!!.readText())
            .map { it.groupValues[1] to it.groupValues[2].toInt() }.toList()
        assertTrue(codes.size >= 23)
        val classes = codes.map { (name, code) ->
            val error = assertThrows<SiskinException> { NativeTesting.error(code) }
            assertEquals(name, code, error.code)
            if (error is SiskinException.Canceled || error is SiskinException.Busy ||
                error is SiskinException.OutOfMemory
            ) {
                // These errors are static: they have a fixed message and no location.
                assertEquals("", error.location)
            } else {
                assertEquals("testing", error.location)
                assertEquals("requested by the test", error.message)
            }
            assertFalse(name, error is SiskinException.Unknown)
            val actual = error.javaClass.simpleName
            val expected = name.removePrefix("SISKIN_ERROR_").replace("_", "")
            assertEquals(name, RENAMED[expected] ?: expected, actual.uppercase())
            actual
        }
        assertEquals(codes.size, classes.toSet().size)
        val later = assertThrows<SiskinException.Unknown> { NativeTesting.error(4711) }
        assertEquals(4711, later.code)
        assertEquals("ai.siskin.SiskinException\$Unknown (4711): testing: requested by the test", later.toString())
        NativeTesting.error(0)
    }

    @Test
    fun `errors of the library are thrown as exceptions`() = runTest {
        assertThrows<SiskinException.Io> { Model.open("/nowhere/at/all") }
        assertThrows<SiskinException.Corrupt> { Model.open(ByteArray(64)) }
        assertThrows<SiskinException.Argument> { Model.open(smallModel("chat")) { threads = -1 } }
        assertThrows<SiskinException.Argument> { Model.open(smallModel("chat")) { disabledCpuFeatures = listOf("mmx") } }
        withModel("chat") { model ->
            assertThrows<SiskinException.Unsupported> { model.encoder { useHead = true } }
            assertThrows<SiskinException.Unsupported> { model.transcriber() }
            assertThrows<SiskinException.Argument> { model.session { sampler = Sampler().apply { topP = 2.0 } } }
            assertThrows<SiskinException.Argument> { model.session { context = 0 } }
            assertThrows<SiskinException.Argument> { model.session { maxTokens = 0 } }
            assertThrows<SiskinException.Argument> { model.session { memoryBudget = -1 } }
            assertThrows<SiskinException.Argument> { model.tokenBytes(4711) }
            model.greedySession(4).use { session ->
                assertThrows<SiskinException.State> { session.next() }
                assertThrows<SiskinException.Argument> { session.rewind(1000) }
                assertThrows<SiskinException.Corrupt> { session.restore(ByteArray(5)) }
                assertThrows<SiskinException.TooLong> { session.promptRaw("x".repeat(100_000)) }
                assertThrows<SiskinException.Argument> { session.promptTokens(intArrayOf(-1)) }
                // A poisoned handle can only be closed.
                assertThrows<SiskinException.Panic> { session.call { NativeTesting.panic(it) } }
                assertThrows<SiskinException.Poisoned> { session.promptRaw("a") }
                coroutineScope {
                    val memory = MemoryCallbacks(this).apply { add(session) }
                    memory.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
                }
            }
            model.greedySession(4).use { assertTrue(it.apply { promptRaw("a") }.next() != null) }
        }
    }

    private companion object {
        /** Exception classes whose names differ from the constants of the header. */
        val RENAMED = mapOf("HANDLE" to "WRONGHANDLE")
    }
}

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
    fun `every code of the header has its exception`() = test {
        Siskin.version
        val codes = Regex("#define (SISKIN_ERROR_\\w+) (\\d+)").findAll(given("siskin.header")!!.readText())
            .map { it.groupValues[1] to it.groupValues[2].toInt() }.toList()
        assertTrue(codes.size >= 23)
        val kinds = codes.map { (name, code) ->
            val error = fails<SiskinException> { NativeTesting.error(code) }
            assertEquals(name, code, error.code)
            assertEquals("testing", error.place)
            assertEquals("as asked for", error.message)
            assertFalse(name, error is SiskinException.Unknown)
            val kind = error.javaClass.simpleName
            val like = name.removePrefix("SISKIN_ERROR_").replace("_", "")
            assertTrue("$kind is not $name", kind.uppercase() == like || kind == "WrongHandle" && like == "HANDLE")
            kind
        }
        assertEquals(codes.size, kinds.toSet().size)
        println("errors: ${codes.size} codes have an exception each")
        val later = fails<SiskinException.Unknown> { NativeTesting.error(4711) }
        assertEquals(4711, later.code)
        assertEquals("ai.siskin.SiskinException\$Unknown (4711): testing: as asked for", later.toString())
        NativeTesting.error(0)
    }

    @Test
    fun `errors of all kinds arrive`() = test {
        fails<SiskinException.Io> { Model.open("/nowhere/at/all") }
        fails<SiskinException.Corrupt> { Model.openCopy(ByteArray(64)) }
        fails<SiskinException.Argument> { Model.open(small("chat")) { threads = -1 } }
        fails<SiskinException.Argument> { Model.open(small("chat")) { without = listOf("mmx") } }
        with("chat") { model ->
            fails<SiskinException.Unsupported> { model.encoder { head = true } }
            fails<SiskinException.Unsupported> { model.transcriber() }
            fails<SiskinException.Argument> { model.session { sampler = Sampler().apply { topP = 2.0 } } }
            fails<SiskinException.Argument> { model.session { context = -1 } }
            fails<SiskinException.Argument> { model.setHeat(7) }
            fails<SiskinException.Argument> { model.tokenBytes(4711) }
            model.greedy(4).use { session ->
                fails<SiskinException.State> { session.next() }
                fails<SiskinException.Argument> { session.rewind(1000) }
                fails<SiskinException.Corrupt> { session.restore(ByteArray(5)) }
                fails<SiskinException.TooLong> { session.promptRaw("x".repeat(100_000)) }
                fails<SiskinException.Argument> { session.promptTokens(intArrayOf(-1)) }
                // A poisoned handle can only be closed.
                fails<SiskinException.Panic> { session.work { NativeTesting.panic(it) } }
                fails<SiskinException.Poisoned> { session.promptRaw("a") }
                coroutineScope {
                    val memory = MemoryCallbacks(this).apply { add(session) }
                    memory.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
                }
            }
            model.greedy(4).use { assertTrue(it.apply { promptRaw("a") }.next() != null) }
        }
    }
}

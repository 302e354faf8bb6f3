// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Assume.assumeNotNull
import org.junit.Test

class CloseTest {
    @Test
    fun `closing cancels an answer and waits`() = runTest {
        withModel("chat") { model ->
            repeat(50) { round ->
                val session = model.greedySession(null)
                val begun = CountDownLatch(1)
                val answer = async(Dispatchers.IO) {
                    runCatching {
                        while (true) {
                            session.reset()
                            session.complete("go on").collect { begun.countDown() }
                        }
                    }
                }
                begun.await()
                delay((round % 4).toLong())
                List(2) { launch(Dispatchers.IO) { session.close() } }.joinAll()
                val error = answer.await().exceptionOrNull()
                assertTrue("$error", error is SiskinException.Closed)
                assertEquals(SISKIN_ERROR_STATE, (error as SiskinException).code)
            }
        }
    }

    @Test
    fun `closing cancels a long prompt`() = runTest {
        assumeNotNull(resource("siskin.smollm2"))
        Model.open(resource("siskin.smollm2")!!.path).use { model ->
            val session = model.session { context = 4096 + 64 }
            val prompt = async(Dispatchers.IO) { runCatching { session.promptTokens(IntArray(4096) { 1000 + it }) } }
            delay(100)
            val start = System.nanoTime()
            session.close()
            val milliseconds = (System.nanoTime() - start) / 1e6
            assertTrue("${prompt.await()}", prompt.await().exceptionOrNull() is SiskinException.Closed)
            println("close: closing during a prompt of 4096 tokens took %.1f ms".format(milliseconds))
            assertTrue("$milliseconds ms", milliseconds < 500)
        }
    }

    @Test
    fun `closing does not wait for calls that cannot be canceled`() = runTest {
        val model = Model.open(smallModel("chat"))
        val (begun, end) = List(2) { CountDownLatch(1) }
        val use = async(Dispatchers.IO) { model.native.withPointer { begun.countDown(); end.await(5, TimeUnit.SECONDS) } }
        begun.await()
        model.close()
        end.countDown()
        assertTrue("closing waited", use.await())
        assertThrows<SiskinException.Closed> { model.verify() }
    }

    @Test
    fun `calls on closed handles throw`() = runTest {
        val model = Model.open(smallModel("chat"))
        val session = model.greedySession(8)
        model.close()
        model.close()
        assertTrue(model.isClosed)
        assertThrows<SiskinException.Closed> { model.session() }
        assertThrows<SiskinException.Closed> { model.tokenize("a") }
        assertThrows<SiskinException.Closed> { model.throttle = Throttle.Adaptive }
        // Objects created from a model outlive it.
        assertTrue(session.chat("hello").toList().isNotEmpty())
        session.close()
        assertThrows<SiskinException.Closed> { session.next() }
        assertThrows<SiskinException.Closed> { session.pause() }
        assertThrows<SiskinException.Closed> { session.stats() }
        session.cancel()
    }

    @Test
    fun `an unreachable handle is freed`() = runTest {
        withModel("chat") { model ->
            val native = model.greedySession(8).native
            // The session is unreachable, but its native pointer is not.
            val deadline = System.nanoTime() + 20_000_000_000
            while (!native.isClosed && System.nanoTime() < deadline) {
                System.gc()
                delay(20)
                model.greedySession(8).close()
            }
            assertTrue(native.isClosed)
        }
    }

    /** A leak grows with every thousand; memory of the JIT compilers only with the first few. */
    @Test
    fun `opening and closing a thousand times leaks no memory`() = runTest {
        val growth = mutableListOf<Long>()
        var before = residentBytes()
        do {
            repeat(1000) {
                withModel("chat") { model ->
                    model.greedySession(4).use { session -> assertTrue(session.chat("hello").toList().size <= 4) }
                }
            }
            val after = residentBytes()
            growth += (after - before) shr 10
            before = after
        } while (growth.last() > 400 && growth.size < 12)
        println("memory: growth for each thousand, in KiB: $growth")
        assertTrue("$growth KiB", growth.last() <= 400)
    }

    /** Returns the resident memory of the process, after a garbage collection. */
    private suspend fun residentBytes(): Long {
        repeat(3) {
            System.gc()
            delay(50)
        }
        return File("/proc/self/statm").readText().split(' ')[1].toLong() * 4096
    }
}

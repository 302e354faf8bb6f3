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
    fun `closing stops an answer and waits`() = test {
        with("chat") { model ->
            repeat(50) { round ->
                val session = model.greedy(0)
                val begun = CountDownLatch(1)
                val answer = async(Dispatchers.IO) {
                    runCatching {
                        while (true) {
                            session.forget()
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
    fun `closing stops a long prompt`() = test {
        assumeNotNull(given("siskin.chat"))
        Model.open(given("siskin.chat")!!.path).use { model ->
            val session = model.session { context = 4096 + 64 }
            val prompt = async(Dispatchers.IO) { runCatching { session.promptTokens(IntArray(4096) { 1000 + it }) } }
            delay(100)
            val before = System.nanoTime()
            session.close()
            val took = (System.nanoTime() - before) / 1e6
            assertTrue("${prompt.await()}", prompt.await().exceptionOrNull() is SiskinException.Closed)
            println("close: a prompt of 4096 tokens took %.1f ms to close".format(took))
            assertTrue("$took ms", took < 500)
        }
    }

    @Test
    fun `what cannot be stopped is not waited for`() = test {
        val model = Model.open(small("chat"))
        val (begun, over) = List(2) { CountDownLatch(1) }
        val use = async(Dispatchers.IO) { model.owner.lend { begun.countDown(); over.await(5, TimeUnit.SECONDS) } }
        begun.await()
        model.close()
        over.countDown()
        assertTrue("closing waited", use.await())
        fails<SiskinException.Closed> { model.verify() }
    }

    @Test
    fun `what is closed refuses`() = test {
        val model = Model.open(small("chat"))
        val session = model.greedy(8)
        model.close()
        model.close()
        assertTrue(model.isClosed)
        fails<SiskinException.Closed> { model.session() }
        fails<SiskinException.Closed> { model.tokenize("a") }
        fails<SiskinException.Closed> { model.setHeat(1) }
        // Objects created from a model outlive it.
        assertTrue(session.chat("hello").toList().isNotEmpty())
        session.close()
        fails<SiskinException.Closed> { session.next() }
        fails<SiskinException.Closed> { session.suspend() }
        fails<SiskinException.Closed> { session.stats() }
        session.stop()
    }

    @Test
    fun `an unreachable handle is freed`() = test {
        with("chat") { model ->
            val owner = model.greedy(8).owner
            // The session is unreachable, but its owner is observed from here.
            val end = System.nanoTime() + 20_000_000_000
            while (!owner.isClosed && System.nanoTime() < end) {
                System.gc()
                delay(20)
                model.greedy(8).close()
            }
            assertTrue(owner.isClosed)
        }
    }

    /** A leak of the library grows with every thousand; memory of the JIT compilers only with the first few. */
    @Test
    fun `a thousand rounds take no memory`() = test {
        val taken = mutableListOf<Long>()
        var before = resident()
        do {
            repeat(1000) {
                with("chat") { model ->
                    model.greedy(4).use { session -> assertTrue(session.chat("hello").toList().size <= 4) }
                }
            }
            val after = resident()
            taken += (after - before) shr 10
            before = after
        } while (taken.last() > 400 && taken.size < 12)
        println("memory: each thousand rounds took so many KiB more: $taken")
        assertTrue("$taken KiB", taken.last() <= 400)
    }

    /** Returns the resident memory of the process, after a garbage collection. */
    private suspend fun resident(): Long {
        repeat(3) {
            System.gc()
            delay(50)
        }
        return File("/proc/self/statm").readText().split(' ')[1].toLong() * 4096
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout

/** A file or folder whose path is a system property of the test JVM; `null` if it does not exist. */
internal fun resource(name: String): File? {
    val file = System.getProperty(name)?.let(::File)?.takeIf(File::exists)
    // `cargo xtask test` counts such lines; JUnit leaves the previous line unterminated.
    if (file == null) println("\nskipped: $name does not exist; `cargo xtask model` downloads it")
    return file
}

/** The path of one of the small models. */
internal fun smallModel(name: String): String = File(resource("siskin.models")!!, "$name.siskin").path

/** Runs a test with a time limit of two minutes. */
internal fun runTest(context: CoroutineContext = Dispatchers.Default, block: suspend CoroutineScope.() -> Unit) {
    runBlocking(context) { withTimeout(120_000, block) }
}

/** Opens one of the small models for a test. */
internal suspend fun <T> withModel(name: String, block: suspend (Model) -> T): T =
    Model.open(smallModel(name)) { threads = 2 }.use { block(it) }

/** Creates a session with greedy decoding. */
internal suspend fun Model.greedySession(maxTokens: Int?): Session = session {
    sampler = Sampler.greedy()
    this.maxTokens = maxTokens
}

/** Runs a call that must throw a [T], and returns the exception. */
internal suspend inline fun <reified T : Throwable> assertThrows(crossinline call: suspend () -> Unit): T {
    try {
        call()
    } catch (error: Throwable) {
        if (error is T) return error
        throw AssertionError("expected ${T::class.simpleName}", error)
    }
    throw AssertionError("expected ${T::class.simpleName}, but nothing was thrown")
}

/** Fails if cancellation is slower than the limit that the build sets. */
internal fun assertFast(milliseconds: Double) {
    val limit = System.getProperty("siskin.cancel.milliseconds", "100").toDouble()
    org.junit.Assert.assertTrue("$milliseconds ms", milliseconds <= limit)
}

/** Native functions that panic, fail and block. */
internal object NativeTesting {
    @JvmStatic external fun panic(session: Long)

    @JvmStatic external fun error(code: Int)

    @JvmStatic external fun hold(session: Long, milliseconds: Int)
}

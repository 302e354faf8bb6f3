// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import java.io.File
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout

/** A file or folder that is passed to the tests as a Java system property; `null` if it is absent. */
internal fun given(name: String): File? {
    val file = System.getProperty(name)?.let(::File)?.takeIf(File::exists)
    // `cargo xtask test` counts such lines; JUnit leaves the previous line unterminated.
    if (file == null) println("\nskipped: $name is not there; `cargo xtask model` brings it")
    return file
}

/** The path of one of the small models. */
internal fun small(name: String): String = File(given("siskin.models")!!, "$name.siskin").path

/** Runs a test with a time limit of two minutes. */
internal fun test(context: CoroutineContext = Dispatchers.Default, block: suspend CoroutineScope.() -> Unit) {
    runBlocking(context) { withTimeout(120_000, block) }
}

/** Opens one of the small models for a test. */
internal suspend fun <T> with(name: String, block: suspend (Model) -> T): T =
    Model.open(small(name)) { threads = 2 }.use { block(it) }

/** Creates a session with greedy decoding and a token limit. */
internal suspend fun Model.greedy(most: Int): Session = session {
    sampler = Sampler.greedy()
    maxTokens = most
}

/** Returns the exception of a call, which must be a [T]. */
internal suspend inline fun <reified T : Throwable> fails(crossinline call: suspend () -> Unit): T {
    try {
        call()
    } catch (error: Throwable) {
        if (error is T) return error
        throw AssertionError("not a ${T::class.simpleName}", error)
    }
    throw AssertionError("did not throw a ${T::class.simpleName}")
}

/** Functions that panic, fail and block. */
internal object NativeTesting {
    @JvmStatic external fun panic(session: Long)

    @JvmStatic external fun error(code: Int)

    @JvmStatic external fun hold(session: Long, milliseconds: Int)
}

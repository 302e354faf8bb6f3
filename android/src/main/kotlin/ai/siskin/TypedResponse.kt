// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.withContext
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.json.Json
import kotlinx.serialization.serializer

/**
 * Adds a user message and returns the response as a [T]: `session.generateAs<Recipe>("A recipe for pancakes")`.
 *
 * The response must be JSON of [StructuredOutput.jsonSchema], whatever [Session.setStructuredOutput] says. The model does
 * not see the schema: describe the properties in the prompt. Throws [SiskinException.TooLong] if the response reaches
 * the maximum number of tokens or the end of the context, [SiskinException.Canceled] after [Session.cancel], and
 * [SiskinException.Corrupt] if [T] rejects the response.
 */
public suspend inline fun <reified T> Session.generateAs(text: String): T = generateAs(serializer<T>(), text)

/** Returns the response to a conversation, which replaces the previous one, as a [T]. */
public suspend inline fun <reified T> Session.generateAs(messages: List<Message>): T =
    generateAs(serializer<T>(), messages)

/** Adds a user message and returns the response as what [deserializer] returns. */
public suspend fun <T> Session.generateAs(deserializer: DeserializationStrategy<T>, text: String): T =
    generateAs(deserializer) { prompt(text) }

/** Returns the response to a conversation, which replaces the previous one, as what [deserializer] returns. */
public suspend fun <T> Session.generateAs(deserializer: DeserializationStrategy<T>, messages: List<Message>): T =
    generateAs(deserializer) { prompt(messages) }

private suspend fun <T> Session.generateAs(
    deserializer: DeserializationStrategy<T>,
    prompt: suspend () -> Unit,
): T {
    val response = StringBuilder()
    withStructuredOutput(StructuredOutput.jsonSchema(deserializer)) {
        prompt()
        while (true) response.append((next() ?: break).text)
    }
    return decode(deserializer, response.toString(), finishReason)
}

private suspend fun Session.withStructuredOutput(output: StructuredOutput, block: suspend () -> Unit) {
    val previous = structuredOutput
    setStructuredOutput(output)
    try {
        block()
    } finally {
        withContext(NonCancellable) {
            // A session that is closed or poisoned reports it in its next call.
            runCatching { setStructuredOutput(previous) }
        }
    }
}

/**
 * Submits a prompt and returns the response as a [T]: `served.generateAs<Recipe>("A recipe for pancakes")`.
 *
 * The response must be JSON of [StructuredOutput.jsonSchema], whatever [RequestOptions.structuredOutput] is. The model
 * does not see the schema: describe the properties in the prompt. Throws [SiskinException.TooLong] if the response
 * reaches the maximum number of tokens or the end of the context, [SiskinException.Canceled] if its timeout expires or
 * [Engine.drain] cancels it, and [SiskinException.Corrupt] if [T] rejects the response.
 */
public suspend inline fun <reified T> ServedModel.generateAs(
    text: String,
    options: RequestOptions = RequestOptions(),
): T = generateAs(serializer<T>(), text, options)

/** Submits a conversation and returns the response as a [T]. */
public suspend inline fun <reified T> ServedModel.generateAs(
    messages: List<Message>,
    options: RequestOptions = RequestOptions(),
): T = generateAs(serializer<T>(), messages, options)

/** Submits a prompt and returns the response as what [deserializer] returns. */
public suspend fun <T> ServedModel.generateAs(
    deserializer: DeserializationStrategy<T>,
    text: String,
    options: RequestOptions = RequestOptions(),
): T = submit(text, options, StructuredOutput.jsonSchema(deserializer)).use { it.decode(deserializer) }

/** Submits a conversation and returns the response as what [deserializer] returns. */
public suspend fun <T> ServedModel.generateAs(
    deserializer: DeserializationStrategy<T>,
    messages: List<Message>,
    options: RequestOptions = RequestOptions(),
): T = submit(messages, options, StructuredOutput.jsonSchema(deserializer)).use { it.decode(deserializer) }

private suspend fun <T> Generation.decode(deserializer: DeserializationStrategy<T>): T {
    val response = StringBuilder()
    while (true) response.append((next() ?: break).text)
    throwIfCut()
    return decode(deserializer, response.toString(), finishReason)
}

private fun <T> decode(deserializer: DeserializationStrategy<T>, response: String, reason: FinishReason?): T {
    when (reason) {
        FinishReason.LENGTH, FinishReason.CONTEXT -> throw SiskinException.TooLong(
            "response",
            "ended before its JSON was complete; allow more tokens, or use a type with fewer or shorter values",
        )
        FinishReason.CANCELED, FinishReason.TIMEOUT, null ->
            throw SiskinException.Canceled("response", "was canceled before its JSON was complete", isByCaller = true)
        FinishReason.EOS, FinishReason.STOP -> {}
    }
    try {
        return Json.decodeFromString(deserializer, response)
    } catch (error: IllegalArgumentException) {
        // Of the deserializer, or of a constructor that checks its arguments.
        throw SiskinException.Corrupt("response", "the type rejected it: ${error.message}").apply { initCause(error) }
    }
}

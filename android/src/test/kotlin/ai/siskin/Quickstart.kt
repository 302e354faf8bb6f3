// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.toList
import kotlinx.serialization.Serializable

suspend fun printAnswer(path: String, question: String) {
    Model.open(path).use { model ->
        model.session { context = 4096 }.use { session ->
            session.chat(question).collect { print(it) }
        }
    }
}

suspend fun nearest(encoder: Encoder, texts: List<String>, query: String): List<String> {
    val vectors = encoder.embed(texts)
    return vectors.topK(encoder.embed(query), k = 3).map { texts[it.index] }
}

suspend fun translate(model: Model, text: String): String = model.seq2Seq().use { seq2Seq ->
    seq2Seq.generate(text) { task = Seq2SeqTask.Translate(from = "en", to = "de") }.text
}

suspend fun askBoth(path: String, first: String, second: String): List<String> = coroutineScope {
    Model.open(path).use { model ->
        Engine.create().use { engine ->
            val served = engine.add(model) { maxRunning = 2 }
            listOf(first, second).map { async { served.generate(it).toList().joinToString("") } }.awaitAll()
        }
    }
}

suspend fun askInStyle(path: String, style: String, question: String): List<String> =
    Model.open(path) { adapters = mapOf("style" to style) }.use { model ->
        listOf(null, "style").map { name ->
            model.session { adapter = name }.use { it.chat(question).toList().joinToString("") }
        }
    }

@Serializable
enum class Difficulty { EASY, MEDIUM, HARD }

@Serializable
data class Recipe(
    val title: String,
    val minutes: Int,
    val difficulty: Difficulty,
    val ingredients: List<String>,
    val hint: String? = null,
)

suspend fun recipe(session: Session, dish: String): Recipe =
    session.generateAs("Write a recipe for $dish as JSON: title, minutes, difficulty, ingredients, and maybe a hint.")

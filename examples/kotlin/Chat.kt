/** A conversation in the terminal: `Chat MODEL`. An app collects the same flow in its view model. */

import ai.siskin.Model
import kotlinx.coroutines.runBlocking

fun main(arguments: Array<String>) = runBlocking {
    require(arguments.isNotEmpty()) { "usage: Chat MODEL" }
    Model.open(arguments[0]).use { model ->
        model.session().use { session ->
            generateSequence(::readLine).forEach { line ->
                session.chat(line).collect { print(it) }
                println()
            }
        }
    }
}

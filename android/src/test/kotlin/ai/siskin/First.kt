// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

suspend fun first(path: String, question: String) {
    Model.open(path).use { model ->
        model.session().use { session ->
            session.chat(question).collect { print(it) }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** A message of a conversation. */
public data class Message(
    /** The role, such as `system`, `user` or `assistant`. */
    public val role: String,
    /** The text. */
    public val content: String,
)

/** Serializes the messages as JSON. */
internal fun List<Message>.json(): String = joinToString(",", "[", "]") {
    "{\"role\":${it.role.quoted()},\"content\":${it.content.quoted()}}"
}

/** Serializes texts as JSON. */
internal fun List<String>.jsonTexts(): String = joinToString(",", "[", "]") { it.quoted() }

private fun String.quoted(): String = buildString {
    append('"')
    for (character in this@quoted) {
        when {
            character == '"' || character == '\\' -> append('\\').append(character)
            character < ' ' -> append("\\u").append(character.code.toString(16).padStart(4, '0'))
            else -> append(character)
        }
    }
    append('"')
}

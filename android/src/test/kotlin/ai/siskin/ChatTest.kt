// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.flow.toList
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

class ChatTest {
    @Test
    fun `an answer streams`() = test {
        with("chat") { model ->
            assertEquals("llama", model.info.family)
            assertEquals(setOf(Ability.WRITES, Ability.CHATS, Ability.TAKES_TEXT), model.info.abilities)
            model.greedy(24).use { session ->
                val texts = session.chat("Why is the sky blue? \uD83D\uDE00").toList()
                println("streamed ${texts.size} texts: ${texts.joinToString("|")}")
                assertTrue(texts.isNotEmpty())
                assertEquals(24, session.stats().tokens)
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import org.junit.Assert.assertEquals
import org.junit.Assert.assertNotEquals
import org.junit.Test

/** Results and messages are values: equal if their contents are. */
class ValueTest {
    private fun assertValues(create: () -> Any, other: Any) {
        assertEquals(create(), create())
        assertEquals(create().hashCode(), create().hashCode())
        assertEquals("${create()}", "${create()}")
        assertNotEquals(create(), other)
    }

    @Test
    fun `equal contents are equal values`() {
        assertValues({ Message("user", "a") }, Message("user", "b"))
        assertValues({ Prediction("PER", 0..3, 0.5f, null) }, Prediction("PER", 0..4, 0.5f, null))
        assertValues({ Segment("a", 0.0, 1.0, -0.5f, 0f) }, Segment("a", 0.0, 2.0, -0.5f, 0f))
        val chunk = { last: Byte ->
            TextChunk("a", byteArrayOf(97, last), 7, -0.5f, listOf(TokenLogProbability(7, -0.5f)))
        }
        assertValues({ chunk(98) }, chunk(99))
        val text = { last: Int -> GeneratedText("a", intArrayOf(1, last), 0.5, FinishReason.EOS) }
        assertValues({ text(2) }, text(3))
    }

    @Test
    fun `messages are serialized as JSON`() {
        val messages = listOf(Message("system", "a \"b\" \\ \n"), Message("user", "é"))
        val expected = """[{"role":"system","content":"a \"b\" \\ \u000a"},{"role":"user","content":"é"}]"""
        assertEquals(expected, messages.json())
    }

    @Test
    fun `byte offsets map to offsets in strings`() {
        val text = "日本 \uD83D\uDE00 anna"
        val offsets = Utf16Offsets(text)
        for (index in text.indices.filter { !text[it].isLowSurrogate() }) {
            assertEquals(index, offsets[text.substring(0, index).encodeToByteArray().size])
        }
        assertEquals(text.length, offsets[text.encodeToByteArray().size])
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

class Seq2SeqTest {
    @Test
    fun `each input gives the best texts of beam search`() = runTest {
        withModel("translates") { model ->
            model.seq2Seq(maxSequences = 8, context = 64).use { seq2Seq ->
                val options = Seq2SeqOptions().apply {
                    task = Seq2SeqTask.Translate()
                    beams = 3
                    nBest = 2
                    maxTokens = 8
                    onOverflow = OverflowMode.Truncate
                    prefix = ""
                }
                val outputs = seq2Seq.generate(listOf("good morning", "a"), options)
                assertEquals(2, outputs.size)
                for (texts in outputs) {
                    assertEquals(2, texts.size)
                    assertTrue(texts[0].score >= texts[1].score && texts.all { it.tokens.size <= 9 })
                    assertTrue(texts.all { it.finishReason in setOf(FinishReason.EOS, FinishReason.LENGTH) })
                }
                assertEquals(outputs, seq2Seq.generateBlocking(listOf("good morning", "a"), options))
            }
        }
    }

    @Test
    fun `tasks and sampling options are accepted`() = runTest {
        withModel("translates") { model ->
            model.seq2Seq().use { seq2Seq ->
                seq2Seq.generate("good morning")
                seq2Seq.generate("good morning") {
                    task = Seq2SeqTask.Summarize
                    maxTokens = 4
                    beams = 1
                    sampler = Sampler().apply { seed = 1 }
                }
                assertThrows<SiskinException.Argument> { seq2Seq.generate("a") { beams = 0 } }
            }
            assertThrows<SiskinException.Argument> { model.seq2Seq(maxSequences = 0) }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import org.junit.Assert.assertEquals
import org.junit.Test

class VectorsTest {
    @Test
    fun `cosine similarity depends on the angle alone`() {
        val east = floatArrayOf(1f, 0f)
        assertEquals(1f, east.cosineSimilarity(floatArrayOf(5f, 0f)), 0f)
        assertEquals(0f, east.cosineSimilarity(floatArrayOf(0f, 3f)), 0f)
        assertEquals(-1f, east.cosineSimilarity(floatArrayOf(-2f, 0f)), 0f)
        assertEquals(0.70710677f, east.cosineSimilarity(floatArrayOf(4f, 4f)), 1e-6f)
        // Squares that overflow f32.
        assertEquals(1f, floatArrayOf(1e30f, 1e30f).cosineSimilarity(floatArrayOf(1e30f, 1e30f)), 1e-6f)
    }

    @Test
    fun `the similarity of a zero vector is zero`() {
        assertEquals(0f, floatArrayOf(0f, 0f).cosineSimilarity(floatArrayOf(1f, 2f)), 0f)
        assertEquals(0f, floatArrayOf().cosineSimilarity(floatArrayOf()), 0f)
    }

    @Test
    fun `top-k returns the most similar first and equal ones in order`() {
        val vectors = listOf(
            floatArrayOf(0f, 1f), floatArrayOf(1f, 1f), floatArrayOf(2f, 0f), floatArrayOf(-1f, 0f),
            floatArrayOf(3f, 3f),
        )
        val query = floatArrayOf(1f, 0f)
        assertEquals(listOf(2, 1, 4), vectors.topK(query, 3).map { it.index })
        assertEquals(listOf(2, 1, 4, 0, 3), vectors.topK(query, 99).map { it.index })
        assertEquals(Similarity(2, 1f), vectors.topK(query, 1).single())
        assertEquals(emptyList<Similarity>(), emptyList<FloatArray>().topK(query, 1))
    }

    @Test
    fun `invalid arguments are rejected`() = runTest {
        assertThrows<SiskinException.Argument> { floatArrayOf(1f).cosineSimilarity(floatArrayOf(1f, 2f)) }
        assertThrows<SiskinException.Argument> { listOf(floatArrayOf(1f)).topK(floatArrayOf(1f, 2f), 1) }
        assertThrows<SiskinException.Argument> { listOf(floatArrayOf(1f)).topK(floatArrayOf(1f), 0) }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
@file:JvmName("Vectors")

package ai.siskin

import kotlin.math.sqrt

/**
 * Returns the cosine similarity of two embeddings, from -1 to 1; 0 if one of them is all zeros. They must have the same
 * number of dimensions.
 */
public fun FloatArray.cosineSimilarity(other: FloatArray): Float {
    if (size != other.size) {
        throw SiskinException.Argument("other", "${other.size} dimensions; must have $size, like the first vector")
    }
    var product = 0.0
    var squares = 0.0
    var otherSquares = 0.0
    for (i in indices) {
        val a = this[i].toDouble()
        val b = other[i].toDouble()
        product += a * b
        squares += a * a
        otherSquares += b * b
    }
    val norms = sqrt(squares) * sqrt(otherSquares)
    return if (norms == 0.0) 0f else (product / norms).coerceIn(-1.0, 1.0).toFloat()
}

/**
 * Returns the [k] embeddings of the list that are most similar to [query] by cosine similarity, the most similar first;
 * of equally similar ones, the one with the lower index. Returns all if there are fewer than [k].
 */
public fun List<FloatArray>.topK(query: FloatArray, k: Int): List<Similarity> {
    positive("k", k)
    return mapIndexed { index, vector -> Similarity(index, query.cosineSimilarity(vector)) }
        .sortedByDescending(Similarity::score)
        .take(k)
}

/** An embedding that was found by [topK]. */
public data class Similarity(
    /** The index of the embedding in the list. */
    public val index: Int,
    /** The cosine similarity to the query, from -1 to 1. */
    public val score: Float,
)

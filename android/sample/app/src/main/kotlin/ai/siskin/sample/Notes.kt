// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.Encoder

/** Texts that are found by what they mean. */
class Notes(private val encoder: Encoder, private val texts: List<String>, private val vectors: List<FloatArray>) {
    /** The texts and how near each is to what is looked for, the nearest first. */
    suspend fun find(wanted: String): List<Pair<String, Float>> {
        val vector = encoder.embed(wanted)
        return texts.indices.map { texts[it] to vectors[it].dot(vector) }.sortedByDescending { it.second }
    }

    companion object {
        private val EXAMPLES = listOf(
            "The spare key is under the blue flower pot.",
            "Grandmother's soup: leeks, potatoes, a little cream.",
            "The train to the coast leaves at ten past eight.",
            "Water the tomatoes every evening in July.",
            "The dentist moved to the house beside the library.",
        )

        suspend fun read(encoder: Encoder, texts: List<String> = EXAMPLES): Notes =
            Notes(encoder, texts, encoder.embed(texts))
    }
}

/** Vectors have length one, so that this is the cosine of the angle between them. */
private fun FloatArray.dot(other: FloatArray): Float = indices.sumOf { (this[it] * other[it]).toDouble() }.toFloat()

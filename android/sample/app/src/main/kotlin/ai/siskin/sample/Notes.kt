// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.sample

import ai.siskin.Encoder
import ai.siskin.topK

/** Texts that are searched by meaning: by the similarity of their embeddings to that of a query. */
class Notes(private val encoder: Encoder, private val texts: List<String>, private val vectors: List<FloatArray>) {
    /** Returns the texts and their similarity to the query, the most similar first. */
    suspend fun search(query: String): List<Pair<String, Float>> =
        vectors.topK(encoder.embed(query), k = texts.size).map { match -> texts[match.index] to match.score }

    companion object {
        private val EXAMPLES = listOf(
            "The spare key is under the blue flower pot.",
            "Grandmother's soup: leeks, potatoes, a little cream.",
            "The train to the coast leaves at ten past eight.",
            "Water the tomatoes every evening in July.",
            "The dentist moved to the house beside the library.",
        )

        suspend fun embed(encoder: Encoder, texts: List<String> = EXAMPLES): Notes =
            Notes(encoder, texts, encoder.embed(texts))
    }
}

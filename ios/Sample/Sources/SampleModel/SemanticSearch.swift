import Foundation
import Siskin

/// Search by meaning in a list of texts.
public actor SemanticSearch {
    /// A search result.
    public struct Result: Sendable, Equatable {
        /// The text.
        public let text: String
        /// The cosine similarity to the query, from -1 to 1.
        public let similarity: Float
    }

    private let encoder: TextEncoder
    private var texts: [String] = []
    private var embeddings: [[Float]] = []

    /// Creates an empty index for an embedding model.
    public init(model: Model) async throws {
        encoder = try await TextEncoder(model: model)
    }

    /// Adds texts to the index.
    public func add(_ newTexts: [String]) async throws {
        let newEmbeddings = try await encoder.embed(newTexts)
        texts += newTexts
        embeddings += newEmbeddings
    }

    /// Returns the texts most similar to the query, most similar first.
    public func results(for query: String, limit: Int = 5) async throws -> [Result] {
        let target = try await encoder.embed(query)
        let results = zip(texts, embeddings).map { text, embedding in
            // Embeddings have unit length: the dot product is the cosine similarity.
            Result(text: text, similarity: zip(target, embedding).reduce(0) { $0 + $1.0 * $1.1 })
        }
        return Array(results.sorted { $0.similarity > $1.similarity }.prefix(limit))
    }
}

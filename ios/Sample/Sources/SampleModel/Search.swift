import Foundation
import Siskin

/// Semantic search over texts.
public actor Search {
    /// A search result.
    public struct Hit: Sendable, Equatable {
        /// The text.
        public let text: String
        /// The cosine similarity to the query, from -1 to 1.
        public let score: Float
    }

    private let encoder: Encoder
    private var texts: [String] = []
    private var vectors: [[Float]] = []

    /// Creates a search with an embedding model.
    public init(_ model: Model) async throws {
        encoder = try await Encoder(model)
    }

    /// Adds texts to the index.
    public func add(_ more: [String]) async throws {
        let read = try await encoder.embed(more)
        texts += more
        vectors += read
    }

    /// Returns the texts closest to the query, closest first.
    public func find(_ question: String, count: Int = 5) async throws -> [Hit] {
        let asked = try await encoder.embed(question)
        let hits = zip(texts, vectors).map { text, vector in
            // Vectors are normalized, so the dot product is the cosine.
            Hit(text: text, score: zip(asked, vector).reduce(0) { $0 + $1.0 * $1.1 })
        }
        return Array(hits.sorted { $0.score > $1.score }.prefix(count))
    }
}

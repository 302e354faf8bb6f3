import Foundation
import Siskin

/// Finds texts by what they mean.
public actor Search {
    /// A text that was found.
    public struct Hit: Sendable, Equatable {
        /// The text.
        public let text: String
        /// How near it is to what was asked, from -1 to 1.
        public let score: Float
    }

    private let encoder: Encoder
    private var texts: [String] = []
    private var vectors: [[Float]] = []

    /// A search with a model that makes vectors.
    public init(_ model: Model) async throws {
        encoder = try await Encoder(model)
    }

    /// Adds texts to what is searched.
    public func add(_ more: [String]) async throws {
        let read = try await encoder.embed(more)
        texts += more
        vectors += read
    }

    /// The texts that are nearest to what is asked, the nearest first.
    public func find(_ question: String, count: Int = 5) async throws -> [Hit] {
        let asked = try await encoder.embed(question)
        let hits = zip(texts, vectors).map { text, vector in
            // Vectors have length one, so that this is the cosine.
            Hit(text: text, score: zip(asked, vector).reduce(0) { $0 + $1.0 * $1.1 })
        }
        return Array(hits.sorted { $0.score > $1.score }.prefix(count))
    }
}

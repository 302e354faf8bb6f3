import Foundation
import XCTest

@testable import Siskin

final class TextEncoderTests: XCTestCase {
    private func encoder(_ name: String, _ options: EncoderOptions = EncoderOptions()) async throws -> TextEncoder {
        try await TextEncoder(model: Model(contentsOf: try smallModelURL(name)), options: options)
    }

    private func classifier(_ name: String, onOverflow: OverflowMode = .error) async throws -> TextEncoder {
        try await encoder(name, EncoderOptions(useHead: true, onOverflow: onOverflow))
    }

    private func cosine(_ a: some Collection<Float>, _ b: some Collection<Float>) -> Double {
        func dot(_ a: some Collection<Float>, _ b: some Collection<Float>) -> Double {
            zip(a, b).reduce(0) { $0 + Double($1.0) * Double($1.1) }
        }
        return dot(a, b) / (dot(a, a) * dot(b, b)).squareRoot()
    }

    func testEmbeddingsMatchPyTorch() async throws {
        let encoder = try await TextEncoder(model: try await realModel("minilm"))
        let sentences = try JSONDecoder().decode([String].self, from: try testData("embeddings/minilm.json"))
        let golden = try Tensors(try testData("embeddings/minilm.safetensors"))
        let (dimensions, expected) = (golden.shape("embeddings")[1], golden.values("embeddings", as: Float.self))
        let embeddings = try await encoder.embed(sentences)
        XCTAssertEqual(embeddings.count, golden.shape("embeddings")[0])
        var minimum = 1.0
        for (index, embedding) in embeddings.enumerated() {
            XCTAssertEqual(embedding.count, dimensions)
            minimum = min(minimum, cosine(embedding, expected[index * dimensions..<(index + 1) * dimensions]))
        }
        print("MiniLM: minimum cosine similarity with PyTorch \(minimum)")
        XCTAssertGreaterThan(minimum, 0.99999)
    }

    func testEmbeddings() async throws {
        let encoder = try await encoder("vectors")
        let batch = try await encoder.embed(["the sky is blue", "a"])
        XCTAssertEqual(batch.map(\.count), [32, 32])
        XCTAssertEqual(batch[0].reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        // The embedding of a text is bit-identical in every batch.
        let single = try await encoder.embed("the sky is blue")
        XCTAssertEqual(single, batch[0])
        let empty = try await encoder.embed([])
        XCTAssertEqual(empty, [])
        await assertThrows(.unsupported) { try await encoder.classify(["x"]) }
    }

    func testEarlyExit() async throws {
        func exits(_ earlyExit: EarlyExit?) async throws -> TextEncoder {
            try await encoder("exits", EncoderOptions(useHead: true, earlyExit: earlyExit))
        }
        let texts = ["good", "bad and long"]
        let whole = try await exits(nil).classify(texts)
        let patient = try await exits(.entropy(0))
        let same = try await patient.classify(texts)
        XCTAssertEqual(same.map { $0.map(\.score) }, whole.map { $0.map(\.score) })
        let layers = try await patient.layers()
        XCTAssertTrue(layers.allSatisfy { $0 > 2 })
        let hasty = try await exits(.confidence(0))
        _ = try await hasty.classify(texts)
        let first = try await hasty.layers()
        XCTAssertEqual(first, [1, 1])
        await assertThrows(.argument) { try await exits(.patience(0)) }
    }

    func testPooling() async throws {
        func embed(_ pooling: Pooling?) async throws -> [Float] {
            try await encoder("vectors", EncoderOptions(pooling: pooling)).embed("the sky is blue")
        }
        let short = try await embed(Pooling(.cls, normalize: false, dimensions: 8))
        XCTAssertEqual(short.count, 8)
        XCTAssertNotEqual(short.reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        let operations: [Pooling.Operation] = [.mean, .cls, .lastToken, .max, .weightedMean]
        var embeddings: Set<[Float]> = []
        for operation in operations { embeddings.insert(try await embed(Pooling(operation))) }
        XCTAssertEqual(embeddings.count, operations.count)
        let (automatic, standard) = (try await embed(Pooling()), try await embed(nil))
        XCTAssertEqual(automatic, standard)
        await assertThrows(.argument) { try await embed(Pooling(dimensions: -1)) }
    }

    func testClassification() async throws {
        let encoder = try await classifier("classes")
        let predictions = try await encoder.classify(["good", "bad"])
        XCTAssertEqual(predictions.count, 2)
        for classes in predictions {
            XCTAssertEqual(classes.count, 3)
            XCTAssertEqual(classes.map(\.score), classes.map(\.score).sorted(by: >))
            XCTAssertEqual(classes.map(\.score).reduce(0, +), 1, accuracy: 1e-4)
            XCTAssertEqual(Set(classes.map(\.text)).count, 3)
            XCTAssertNil(classes[0].token)
            XCTAssertNil(classes[0].utf8Range)
            XCTAssertNil(classes[0].range(in: "good"))
        }
        await assertThrows(.unsupported) { try await encoder.tag(["x"]) }
        await assertThrows(.unsupported) { try await encoder.answer("who", in: ["x"]) }
        await assertThrows(.unsupported) { try await encoder.fillMasks(in: "a [MASK]") }
    }

    func testReranking() async throws {
        let encoder = try await classifier("classes")
        let scores = try await encoder.rerank(["good", "bad"], for: "how is it")
        XCTAssertEqual(scores.count, 2)
        XCTAssertTrue(scores.allSatisfy(\.isFinite))
        XCTAssertNotEqual(scores[0], scores[1])
        // Scores are in the order of the documents.
        let reversed = try await encoder.rerank(["bad", "good"], for: "how is it")
        XCTAssertEqual(reversed, scores.reversed())
    }

    func testOverflow() async throws {
        let text = String(repeating: "a ", count: 2000)
        let rejecting = try await classifier("classes")
        await assertThrows(.tooLong) { try await rejecting.classify([text]) }
        let truncated = try await classifier("classes", onOverflow: .truncate).classify([text])
        XCTAssertEqual(truncated[0].count, 3)
        let windowed = try await encoder("vectors", EncoderOptions(onOverflow: .window(overlap: 4)))
        let embeddings = try await windowed.embed([text, "a"])
        XCTAssertEqual(embeddings.map(\.count), [32, 32])
        await assertThrows(.argument) { try await self.classifier("classes", onOverflow: .window(overlap: -1)) }
        await assertThrows(.argument) { try await self.encoder("vectors", EncoderOptions(maxBatchTokens: -1)) }
    }

    func testSpansOfLabelsAndAnswers() async throws {
        let text = "anna lives in rome"
        for label in try await classifier("labels").tag([text])[0] {
            let range = try XCTUnwrap(label.utf8Range)
            XCTAssertTrue(range.upperBound <= text.utf8.count && !range.isEmpty)
            XCTAssertNotNil(label.range(in: text))
        }
        let answers = try await classifier("answers").answer("where does anna live", in: [text, text])
        XCTAssertEqual(answers.count, 2)
        let answer = try XCTUnwrap(answers[0])
        XCTAssertEqual(text[try XCTUnwrap(answer.range(in: text))], answer.text[...])
        XCTAssertNil(answer.range(in: "x"))
    }

    func testFillMask() async throws {
        let masks = try await classifier("vectors").fillMasks(in: "a [MASK] b [MASK]", count: 3)
        XCTAssertEqual(masks.map(\.count), [3, 3])
        for tokens in masks {
            XCTAssertTrue(tokens.allSatisfy { $0.token != nil })
            XCTAssertEqual(tokens.map(\.score), tokens.map(\.score).sorted(by: >))
        }
        await assertThrows(.argument) { try await self.classifier("vectors").fillMasks(in: "a b") }
    }

    func testCancellation() async throws {
        let encoder = try await TextEncoder(model: try await realModel("minilm"))
        let texts = (0..<400).map { "This is sentence number \($0) of very many, each of which is indexed for search." }
        let clock = ContinuousClock()
        var latencies: [Duration] = []
        for round in 0..<6 {
            let embedding = Task { try await encoder.embed(texts) }
            try await Task.sleep(for: .milliseconds(60 + 10 * round))
            let start = clock.now
            if round % 2 == 0 { embedding.cancel() } else { encoder.cancel() }
            await assertThrows(.canceled) { try await embedding.value }
            latencies.append(clock.now - start)
        }
        XCTAssertLessThan(report("canceled embeddings", latencies).median, maxCancellationLatency)
        let embedding = try await encoder.embed("the next call")
        XCTAssertEqual(embedding.count, 384)
    }
}

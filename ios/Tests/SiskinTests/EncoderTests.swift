import Foundation
import XCTest

@testable import Siskin

final class EncoderTests: XCTestCase {
    private func encoder(_ name: String, _ options: EncoderOptions = .withHead) async throws -> Encoder {
        try await Encoder(try await Model.open(try small(name)), options: options)
    }

    private func cosine(_ a: some Collection<Float>, _ b: some Collection<Float>) -> Double {
        func dot(_ a: some Collection<Float>, _ b: some Collection<Float>) -> Double {
            zip(a, b).reduce(0) { $0 + Double($1.0) * Double($1.1) }
        }
        return dot(a, b) / (dot(a, a) * dot(b, b)).squareRoot()
    }

    func testEmbeddingsAreThoseOfPyTorch() async throws {
        let encoder = try await Encoder(try await realModel("minilm"))
        let sentences = try JSONDecoder().decode([String].self, from: try data("embeddings/minilm.json"))
        let truth = try Tensors(try data("embeddings/minilm.safetensors"))
        let (columns, expected) = (truth.shape("embeddings")[1], truth.values("embeddings", as: Float.self))
        let vectors = try await encoder.embed(sentences)
        XCTAssertEqual(vectors.count, truth.shape("embeddings")[0])
        var least = 1.0
        for (index, vector) in vectors.enumerated() {
            XCTAssertEqual(vector.count, columns)
            least = min(least, cosine(vector, expected[index * columns..<(index + 1) * columns]))
        }
        print("MiniLM: the least cosine with PyTorch is \(least)")
        XCTAssertGreaterThan(least, 0.99999)
    }

    func testVectors() async throws {
        let encoder = try await encoder("vectors", EncoderOptions())
        let both = try await encoder.embed(["the sky is blue", "a"])
        XCTAssertEqual(both.map(\.count), [32, 32])
        XCTAssertEqual(both[0].reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        // The embedding of a text is bit-identical in every batch.
        let alone = try await encoder.embed("the sky is blue")
        XCTAssertEqual(alone, both[0])
        let none = try await encoder.embed([])
        XCTAssertEqual(none, [])
        await assertFails(.unsupported) { try await encoder.classify(["x"]) }

        var options = EncoderOptions()
        options.pooling = Pooling(.first, normalize: false, columns: 8)
        let short = try await self.encoder("vectors", options).embed("the sky is blue")
        XCTAssertEqual(short.count, 8)
        let kinds: [Pooling.Kind] = [.mean, .first, .last, .max, .weighted]
        var all: [[Float]] = []
        for kind in kinds {
            options.pooling = Pooling(kind)
            all.append(try await self.encoder("vectors", options).embed("the sky is blue"))
        }
        XCTAssertEqual(Set(all).count, kinds.count)
        options.pooling = Pooling(.auto)
        let auto = try await self.encoder("vectors", options).embed("the sky is blue")
        XCTAssertEqual(auto, alone)
    }

    func testClassesAndScores() async throws {
        let encoder = try await encoder("classes")
        let found = try await encoder.classify(["good", "bad"])
        XCTAssertEqual(found.count, 2)
        for classes in found {
            XCTAssertEqual(classes.count, 3)
            XCTAssertEqual(classes.map(\.score), classes.map(\.score).sorted(by: >))
            XCTAssertEqual(classes.map(\.score).reduce(0, +), 1, accuracy: 1e-4)
            XCTAssertEqual(Set(classes.map(\.text)).count, 3)
            XCTAssertNil(classes[0].token)
        }
        let scores = try await encoder.rerank("how is it", ["good", "bad"])
        XCTAssertEqual(scores.count, 2)
        XCTAssertTrue(scores.allSatisfy(\.isFinite))
        await assertFails(.unsupported) { try await encoder.tag(["x"]) }
        await assertFails(.unsupported) { try await encoder.answer("who", in: ["x"]) }
        await assertFails(.unsupported) { try await encoder.fillMask("a [MASK]") }
    }

    func testTextsThatAreTooLong() async throws {
        let text = String(repeating: "a ", count: 2000)
        let refuses = try await encoder("classes")
        await assertFails(.tooLong) { try await refuses.classify([text]) }
        var options = EncoderOptions.withHead
        options.long = .cut
        let found = try await encoder("classes", options).classify([text])
        XCTAssertEqual(found[0].count, 3)
        options = EncoderOptions()
        options.long = .parts(overlap: 4)
        let vectors = try await encoder("vectors", options).embed([text, "a"])
        XCTAssertEqual(vectors.map(\.count), [32, 32])
        options = EncoderOptions.withHead
        options.long = .parts(overlap: -1)
        await assertFails(.argument) { [options] in try await self.encoder("classes", options) }
        options = EncoderOptions()
        options.batch = -1
        await assertFails(.argument) { [options] in try await self.encoder("vectors", options) }
    }

    func testLabelsAndAnswersStandInTheText() async throws {
        let text = "anna lives in rome"
        for found in try await encoder("labels").tag([text])[0] {
            XCTAssertTrue(text.utf8.count >= found.bytes.upperBound && !found.bytes.isEmpty)
            XCTAssertNotNil(found.range(in: text))
        }
        let answers = try await encoder("answers").answer("where does anna live", in: [text, text])
        XCTAssertEqual(answers.count, 2)
        let answer = try XCTUnwrap(answers[0])
        XCTAssertEqual(text[try XCTUnwrap(answer.range(in: text))], answer.text[...])
        XCTAssertNil(answer.range(in: "x"))
    }

    func testMasksAreFilled() async throws {
        let places = try await encoder("vectors").fillMask("a [MASK] b [MASK]", count: 3)
        XCTAssertEqual(places.map(\.count), [3, 3])
        for place in places {
            XCTAssertTrue(place.allSatisfy { $0.token != nil })
            XCTAssertEqual(place.map(\.score), place.map(\.score).sorted(by: >))
        }
        await assertFails(.argument) { try await self.encoder("vectors").fillMask("a b") }
    }

    func testTheCancellationOfItsTaskStopsAnEncoder() async throws {
        let encoder = try await Encoder(try await realModel("minilm"))
        let texts = (0..<400).map { "This is sentence number \($0) of very many that somebody wants to find again." }
        let clock = ContinuousClock()
        var took: [Duration] = []
        for round in 0..<6 {
            let reading = Task { try await encoder.embed(texts) }
            try await Task.sleep(for: .milliseconds(60 + 10 * round))
            let begun = clock.now
            if round % 2 == 0 { reading.cancel() } else { encoder.stop() }
            await assertFails(.cancelled) { try await reading.value }
            took.append(clock.now - begun)
        }
        XCTAssertLessThan(report("cancelled embeddings", took).middle, patience)
        let vector = try await encoder.embed("and on")
        XCTAssertEqual(vector.count, 384)
    }
}

import Foundation
import XCTest

@testable import Siskin

final class Seq2SeqTests: XCTestCase {
    private func makeSeq2Seq() async throws -> Seq2Seq {
        let model = try await Model(contentsOf: try smallModelURL("translates"))
        return try await Seq2Seq(model: model, maxSequences: 8, context: 64)
    }

    func testBeamSearch() async throws {
        let seq2seq = try await makeSeq2Seq()
        var options = Seq2SeqOptions(
            task: .translate(),
            beams: 3,
            nBest: 2,
            maxTokens: 8,
            lengthPenalty: 1,
            onOverflow: .truncate,
            prefix: ""
        )
        let batch = try await seq2seq.generate(["good morning", "a"], options: options)
        XCTAssertEqual(batch.map(\.count), [2, 2])
        for texts in batch {
            XCTAssertGreaterThanOrEqual(texts[0].score, texts[1].score)
            XCTAssertNotEqual(texts[0].tokens, texts[1].tokens)
            XCTAssertTrue(texts.allSatisfy { $0.tokens.count <= 9 && !$0.tokens.isEmpty })
            XCTAssertTrue(texts.allSatisfy { [.eos, .length].contains($0.finishReason) })
        }
        // The result is the same in every batch.
        let single = try await seq2seq.generate(["a"], options: options)
        XCTAssertEqual(single[0], batch[1])
        (options.beams, options.nBest, options.beamGroups, options.diversityPenalty) = (4, 1, 2, 0.5)
        let diverse = try await seq2seq.generate(["a"], options: options)
        XCTAssertEqual(diverse[0].count, 1)
    }

    func testDefaults() async throws {
        let seq2seq = try await makeSeq2Seq()
        let implicit = try await seq2seq.generate(["a"])
        XCTAssertEqual(implicit[0].count, 1)
        let explicit = try await seq2seq.generate(["a"], options: Seq2SeqOptions())
        XCTAssertEqual(explicit, implicit)
        let empty = try await seq2seq.generate([])
        XCTAssertEqual(empty, [])
    }

    func testGreedySummary() async throws {
        let options = Seq2SeqOptions(task: .summarize, beams: 1, maxTokens: 4, sampler: .greedy)
        let summary = try await makeSeq2Seq().generate(["good morning"], options: options)
        XCTAssertLessThanOrEqual(summary[0][0].tokens.count, 5)
    }

    func testInvalidArguments() async throws {
        let model = try await Model(contentsOf: try smallModelURL("translates"))
        await assertThrows(.unsupported) { try await Transcriber(model: model) }
        await assertThrows(.argument) { try await Seq2Seq(model: model, maxSequences: -1) }
        await assertThrows(.argument) {
            try await Seq2Seq(model: model).generate(["a"], options: Seq2SeqOptions(beams: 0))
        }
        let encoder = try await Model(contentsOf: try smallModelURL("vectors"))
        await assertThrows(.unsupported) { try await Seq2Seq(model: encoder).generate(["a"]) }
    }
}

import Foundation
import XCTest

@testable import Siskin

final class WriterTests: XCTestCase {
    func testTextsAreWrittenForTexts() async throws {
        let writer = try await Writer(try await Model.open(try small("translates")), rows: 8, context: 64)
        var writing = Writing(.translation(from: "", to: ""))
        (writing.beams, writing.best, writing.maxTokens) = (3, 2, 8)
        (writing.long, writing.before, writing.lengthPenalty) = (.cut, "", 1)
        let all = try await writer.write(["good morning", "a"], writing)
        XCTAssertEqual(all.map(\.count), [2, 2])
        for written in all {
            XCTAssertGreaterThanOrEqual(written[0].score, written[1].score)
            XCTAssertNotEqual(written[0].tokens, written[1].tokens)
            XCTAssertTrue(written.allSatisfy { $0.tokens.count <= 9 && !$0.tokens.isEmpty })
        }
        // The result is the same in every batch.
        let alone = try await writer.write(["a"], writing)
        XCTAssertEqual(alone[0], all[1])
        let usual = try await writer.write(["a"])
        XCTAssertEqual(usual[0].count, 1)
        (writing.beams, writing.best, writing.groups, writing.diversity) = (4, 1, 2, 0.5)
        let diverse = try await writer.write(["a"], writing)
        XCTAssertEqual(diverse[0].count, 1)
        writing = Writing(.summary)
        (writing.beams, writing.sampler, writing.maxTokens) = (1, .greedy, 4)
        let summary = try await writer.write(["good morning"], writing)
        XCTAssertLessThanOrEqual(summary[0][0].tokens.count, 5)
        writing.beams = 0
        await assertFails(.argument) { [writing] in try await writer.write(["a"], writing) }
        let none = try await writer.write([])
        XCTAssertEqual(none, [])
    }

    func testWhatAModelCannotDoIsRefused() async throws {
        let model = try await Model.open(try small("translates"))
        await assertFails(.unsupported) { try await Transcriber(model) }
        let vectors = try await Model.open(try small("vectors"))
        await assertFails(.unsupported) { try await Writer(vectors).write(["a"]) }
        await assertFails(.argument) { try await Writer(model, rows: -1) }
    }
}

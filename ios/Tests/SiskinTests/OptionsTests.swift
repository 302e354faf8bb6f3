import Foundation
import XCTest

@testable import Siskin

final class OptionsTests: XCTestCase {
    /// Collects the chunks of an answer to a fixed prompt.
    private func chunks(_ model: Model, _ options: SessionOptions) async throws -> [TextChunk] {
        var chunks: [TextChunk] = []
        for try await chunk in try await Session(model: model, options: options).chat("abc") {
            chunks.append(chunk)
        }
        return chunks
    }

    private func answer(_ model: Model, _ options: SessionOptions) async throws -> Answer {
        var answer = Answer()
        for chunk in try await chunks(model, options) { answer.append(chunk) }
        return answer
    }

    func testLengthLimits() async throws {
        let model = try await chatModel()
        let limited = try await answer(model, greedy(12))
        XCTAssertEqual(limited.tokens.count, 12)
        XCTAssertEqual(limited.finishReason, .length)
        let unlimited = try await answer(model, greedy(nil))
        XCTAssertEqual(unlimited.finishReason, .context)
        let session = try await Session(model: model, options: greedy(12))
        try await session.setMaxTokens(3)
        let short = try await collect(session.chat("abc"))
        XCTAssertEqual(short.tokens, Array(limited.tokens[..<3]))
        try await session.reset()
        try await session.setMaxTokens(nil)
        let long = try await collect(session.chat("abc"))
        XCTAssertEqual(long, unlimited)
    }

    func testStructuredOutput() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(nil))
        try await session.setStructuredOutput(.choice(["a \"yes\"", "no"]))
        let answer = try await collect(session.chat("abc"))
        XCTAssert(["a \"yes\"", "no"].contains(answer.text))
        XCTAssertEqual(answer.finishReason, .eos)
        try await session.setStructuredOutput(nil)
    }

    func testMessageOfChat() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(12))
        try await session.prompt(chat: "[{\"role\": \"user\", \"content\": \"abc\"}]", options: "{\"tool_choice\": \"none\"}")
        var content = ""
        while let chunk = try await session.next() { content += chunk.text }
        let message = try await session.message()
        XCTAssert(message.contains("\"role\":\"assistant\"") && message.contains("\"content\":\""), message)
        XCTAssertFalse(content.isEmpty)
    }

    func testLogProbabilities() async throws {
        let model = try await chatModel()
        let sampler = Sampler(temperature: 0, logProbabilities: true, topLogProbabilities: 3)
        let reported = try await chunks(model, SessionOptions(maxTokens: 12, sampler: sampler))
        XCTAssertEqual(reported.count { $0.token != nil }, 12)
        for chunk in reported where chunk.token != nil {
            let top = chunk.topLogProbabilities
            XCTAssertEqual(top.count, 3)
            XCTAssertEqual(top.first?.token, chunk.token)
            XCTAssertEqual(top.first?.logProbability ?? 1, chunk.logProbability ?? 2, accuracy: 1e-6)
            XCTAssertLessThanOrEqual(top.map { exp($0.logProbability) }.reduce(0, +), 1.0001)
        }
        let standard = try await chunks(model, greedy(12))
        XCTAssertNil(standard[0].logProbability)
        XCTAssertEqual(standard[0].topLogProbabilities, [])
    }

    func testLogitBiasAndStopStrings() async throws {
        let model = try await chatModel()
        let expected = try await answer(model, greedy(12)).tokens[0]
        var options = greedy(12)
        options.sampler.logitBias = [expected: -.infinity]
        let biased = try await answer(model, options).tokens
        XCTAssertNotEqual(biased[0], expected)
        // The bias makes the model generate the letter A only.
        let sampler = Sampler(temperature: 0, repetitionPenalty: 1, logitBias: [65: 1000, 66: 999])
        let stopped = try await answer(model, SessionOptions(maxTokens: 100, sampler: sampler, stopStrings: ["AA"]))
        XCTAssertEqual(stopped.text, "")
        XCTAssertEqual(stopped.finishReason, .stop)
    }

    func testSeedDeterminesAnswer() async throws {
        let model = try await chatModel()
        var options = SessionOptions(maxTokens: 12, sampler: Sampler(temperature: 2, seed: 7))
        let (first, second) = (try await answer(model, options), try await answer(model, options))
        XCTAssertEqual(first, second)
        options.sampler.seed = 8
        let other = try await answer(model, options)
        XCTAssertNotEqual(first.tokens, other.tokens)
    }

    func testSlidingWindow() async throws {
        let model = try await chatModel()
        var logits: Set<[Float]> = []
        for window in [nil, SlidingWindow(recent: 8), SlidingWindow(recent: 8, sinks: 1)] {
            let session = try await Session(model: model, options: SessionOptions(window: window))
            try await session.prompt(raw: "a text that is longer than the window")
            logits.insert(try await session.logits())
        }
        XCTAssertEqual(logits.count, 3)
    }

    func testMemoryUsageIsPredicted() async throws {
        let model = try await chatModel()
        var options = SessionOptions(context: 128, maxBatchTokens: 32, kvCacheType: .f16)
        let predicted = try model.sessionMemory(for: options)
        XCTAssertGreaterThan(predicted.activations, 0)
        // Two layers, two heads of size 16, keys and values, in f16.
        XCTAssertGreaterThanOrEqual(predicted.kvCache, 128 * 2 * 2 * 16 * 2 * 2)
        let actual = try await Session(model: model, options: options).memoryUsage()
        XCTAssertEqual(actual, predicted)
        options.kvCacheType = .f32
        XCTAssertEqual(try model.sessionMemory(for: options).kvCache, predicted.kvCache * 2)
        options.kvCacheType = .f16
        let needed = predicted.activations + predicted.kvCache
        options.memoryBudget = needed - 1
        await assertThrows(.memory) { [options] in try await Session(model: model, options: options) }
        options.memoryBudget = needed
        _ = try await Session(model: model, options: options)
    }

    func testNegativeOptionsAreRejected() async throws {
        let model = try await chatModel()
        let invalid = [
            SessionOptions(context: -1), SessionOptions(maxBatchTokens: -1), SessionOptions(memoryBudget: -1),
            SessionOptions(window: SlidingWindow(recent: -1)), SessionOptions(maxTokens: -1),
        ]
        for options in invalid { await assertThrows(.argument) { try await Session(model: model, options: options) } }
    }

    func testEverySamplerOptionReachesLibrary() async throws {
        // The defaults of the header, or values that disable the option.
        let sampler = Sampler(
            temperature: 0.8,
            topK: 40,
            topP: 0.95,
            minP: 0.05,
            typicalP: 1,
            xtcProbability: 0,
            xtcThreshold: 0.1,
            dynamicTemperatureRange: 0,
            dynamicTemperatureExponent: 1,
            repetitionPenalty: 1,
            frequencyPenalty: 0,
            presencePenalty: 0,
            penaltyLastN: 64,
            dryMultiplier: 0,
            dryBase: 1.75,
            dryAllowedLength: 2,
            dryLastN: 64,
            mirostat: false,
            mirostatTau: 5,
            mirostatEta: 0.1,
            logProbabilities: false,
            topLogProbabilities: 0,
            seed: 3
        )
        XCTAssertNoThrow(try sampler.makeNative())
        // Each option out of its range.
        let changes: [(inout Sampler) -> Void] = [
            { $0.temperature = -1 }, { $0.topK = -1 }, { $0.topP = 2 }, { $0.minP = 2 }, { $0.typicalP = 2 },
            { $0.xtcProbability = 2 }, { $0.xtcThreshold = 2 }, { $0.dynamicTemperatureRange = -1 },
            { $0.dynamicTemperatureExponent = .nan }, { $0.repetitionPenalty = 0 }, { $0.frequencyPenalty = .nan },
            { $0.presencePenalty = .nan }, { $0.penaltyLastN = -1 }, { $0.dryMultiplier = -1 }, { $0.dryBase = .nan },
            { $0.dryAllowedLength = -1 }, { $0.dryLastN = -1 }, { $0.mirostatTau = -1 }, { $0.mirostatEta = .nan },
            { $0.topLogProbabilities = -1 },
        ]
        for (index, change) in changes.enumerated() {
            var invalid = sampler
            change(&invalid)
            XCTAssertThrowsError(try invalid.makeNative(), "option \(index)") { error in
                XCTAssertEqual((error as? SiskinError)?.code, .argument)
            }
        }
    }
}

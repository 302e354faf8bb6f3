import Foundation
import XCTest

@testable import Siskin

final class SessionTests: XCTestCase {
    func testLogitsAndTokensAreThoseOfPyTorch() async throws {
        let golden = try Tensors(try data("golden/llama/io.safetensors"))
        let ids = golden.values("input_ids", as: Int64.self).map(UInt32.init)
        let logits = golden.values("logits", as: Float.self)
        let (columns, vocabulary) = (golden.shape("input_ids")[1], golden.shape("logits")[2])
        let session = try await Session(try await chatModel(), options: greedy(1))
        for row in 0..<golden.shape("input_ids")[0] {
            try await session.forget()
            try await session.prompt(tokens: Array(ids[row * columns..<(row + 1) * columns]))
            let ours = try await session.logits()
            let theirs = Array(logits[(row * columns + columns - 1) * vocabulary..<(row + 1) * columns * vocabulary])
            XCTAssertEqual(ours.count, vocabulary)
            let largest = theirs.map(abs).max() ?? 0
            for (our, their) in zip(ours, theirs) { XCTAssertEqual(our, their, accuracy: largest * 1e-4) }
            let first = try await session.next()
            XCTAssertEqual(first?.token, UInt32(theirs.firstIndex(of: theirs.max() ?? 0) ?? 0))
            XCTAssertNil(first?.ended)
            let last = try await session.next()
            XCTAssertEqual(last?.ended, .length)
            XCTAssertNil(last?.token)
            for _ in 0..<2 {
                let nothing = try await session.next()
                XCTAssertNil(nothing)
            }
        }
    }

    func testAConversationIsTheSameSaidOneByOneOrAsAList() async throws {
        let model = try await chatModel()
        let (one, list) = (try await Session(model, options: greedy()), try await Session(model, options: greedy()))
        try await one.say("Be brief.")
        let first = try await whole(one.answer(to: "Why is the sky blue? 😀"))
        let stats = try await one.stats()
        XCTAssertEqual(stats.tokens, first.tokens.count)
        XCTAssertGreaterThan(stats.promptTokens, 0)
        XCTAssertGreaterThan(stats.position, stats.promptTokens)
        XCTAssertGreaterThan(stats.time, .zero)
        XCTAssertGreaterThan(stats.promptTime, .zero)
        let messages = [
            Message(role: "system", content: "Be brief."), Message(role: "user", content: "Why is the sky blue? 😀"),
        ]
        let second = try await whole(list.answer(to: messages))
        XCTAssertEqual(first, second)
        // As rendered by the model's chat template.
        let spelled = try await Session(model, options: greedy())
        let third = try await whole(spelled.answer(raw: "[system]Be brief.[user]Why is the sky blue? 😀[assistant]"))
        XCTAssertEqual(third.tokens, first.tokens)
        let fourth = try await Session(model, options: greedy())
        let ids = try model.tokenize("[system]Be brief.[user]Why is the sky blue? 😀[assistant]", special: false)
        let tokens = try await whole(fourth.answer(tokens: ids)).tokens
        XCTAssertEqual(tokens, first.tokens)
        await assertFails(.argument) { try await fourth.prompt(tokens: [4_000_000_000]) }
    }

    func testWhatFollowsASavedSessionIsWhatWouldHaveFollowed() async throws {
        let model = try await chatModel()
        let folder = try scratch("saved")
        defer { try? FileManager.default.removeItem(at: folder) }
        let file = folder.appending(path: "Größe 世界.session")
        let first = try await Session(model, options: greedy(6))
        _ = try await whole(first.answer(raw: "A long story"))
        let bytes = try await first.saved()
        try await first.save(to: file)
        let expected = try await whole(first.answer(raw: " and"))
        let (second, third) = (try await Session(model, options: greedy(6)), try await Session(model, options: greedy(6)))
        try await second.restore(from: bytes)
        try await third.restore(from: file)
        for session in [second, third] {
            let answer = try await whole(session.answer(raw: " and"))
            XCTAssertEqual(answer, expected)
        }
        await assertFails(.corrupt) { try await second.restore(from: bytes.prefix(5)) }
        await assertFails(.io) { try await third.restore(from: URL(fileURLWithPath: "/nowhere/at/all")) }
    }

    func testGoingBackAndForgetting() async throws {
        let session = try await Session(try await chatModel(), options: greedy(4))
        await assertFails(.state) { try await session.next() }
        try await session.prompt(raw: "abcdef")
        _ = try await session.next()
        try await session.rewind(to: 3)
        var position = try await session.stats().position
        XCTAssertEqual(position, 3)
        await assertFails(.state) { try await session.next() }
        await assertFails(.argument) { try await session.rewind(to: 1000) }
        await assertFails(.argument) { try await session.rewind(to: -1) }
        try await session.trim(.unused)
        position = try await session.stats().position
        XCTAssertEqual(position, 3)
        try await session.trim(.all)
        position = try await session.stats().position
        XCTAssertEqual(position, 0)
        try await session.prompt(raw: "abc")
        try await session.forget()
        position = try await session.stats().position
        XCTAssertEqual(position, 0)
    }

    func testAPlanIsWhatIsHeld() async throws {
        let model = try await chatModel()
        var options = SessionOptions()
        options.context = 128
        options.batch = 32
        options.cacheType = .f16
        let plan = try model.plan(options)
        XCTAssertGreaterThan(plan.activations, 0)
        // Two layers, two heads of size 16, keys and values, in f16.
        XCTAssertGreaterThanOrEqual(plan.cache, 128 * 2 * 2 * 16 * 2 * 2)
        let held = try await Session(model, options: options).memory()
        XCTAssertEqual(held, plan)
        options.cacheType = .f32
        XCTAssertEqual(try model.plan(options).cache, plan.cache * 2)
        options.cacheType = .f16
        options.budget = plan.activations + plan.cache - 1
        await assertFails(.memory) { [options] in try await Session(model, options: options) }
        options.budget += 1
        _ = try await Session(model, options: options)
    }

    func testOptionsDoWhatTheySay() async throws {
        let model = try await chatModel()
        func answer(_ options: SessionOptions) async throws -> (whole: Whole, pieces: [Piece]) {
            var (all, pieces) = (Whole(), [Piece]())
            for try await piece in try await Session(model, options: options).answer(to: "abc") {
                all.add(piece)
                pieces.append(piece)
            }
            return (all, pieces)
        }
        let usual = try await answer(greedy(12))
        XCTAssertEqual(usual.whole.tokens.count, 12)
        XCTAssertEqual(usual.whole.ended, .length)

        var options = greedy(12)
        options.sampler?.logProbabilities = true
        options.sampler?.topLogProbabilities = 3
        for piece in try await answer(options).pieces where piece.token != nil {
            XCTAssertEqual(piece.top.count, 3)
            XCTAssertEqual(piece.top.first?.token, piece.token)
            XCTAssertEqual(piece.top.first?.logProbability ?? 1, piece.logProbability ?? 2, accuracy: 1e-6)
            XCTAssertLessThanOrEqual(piece.top.map { exp($0.logProbability) }.reduce(0, +), 1.0001)
        }
        XCTAssertNil(usual.pieces[0].logProbability)

        options = greedy(12)
        options.sampler?.bias = [usual.whole.tokens[0]: -.infinity]
        let other = try await answer(options).whole.tokens
        XCTAssertNotEqual(other[0], usual.whole.tokens[0])

        // The first occurrence of the letter ends it.
        options = greedy(100)
        options.sampler?.bias = [65: 1000, 66: 999]
        options.sampler?.repetitionPenalty = 1
        options.stops = ["AA"]
        let stopped = try await answer(options).whole
        XCTAssertEqual(stopped.text, "")
        XCTAssertEqual(stopped.ended, .stop)

        options = greedy()
        options.maxTokens = 0
        let full = try await answer(options).whole
        XCTAssertEqual(full.ended, .context)

        options = SessionOptions()
        options.maxTokens = 12
        options.sampler = Sampler()
        options.sampler?.seed = 7
        options.sampler?.temperature = 2
        let (first, again) = (try await answer(options).whole, try await answer(options).whole)
        XCTAssertEqual(first, again)
        options.sampler?.seed = 8
        let elsewhere = try await answer(options).whole
        XCTAssertNotEqual(first.tokens, elsewhere.tokens)

        options = greedy(12)
        options.window = SessionOptions.Window(recent: 8, first: 1)
        let windowed = try await answer(options).whole
        XCTAssertEqual(windowed.tokens.count, 12)

        let session = try await Session(model, options: greedy(12))
        try await session.setMaxTokens(3)
        let short = try await whole(session.answer(to: "abc"))
        XCTAssertEqual(short.tokens, Array(usual.whole.tokens[..<3]))
    }

    func testEveryOptionOfTheSamplerReachesTheLibrary() async throws {
        var sampler = Sampler()
        // The header's defaults, or disabled.
        (sampler.temperature, sampler.topK, sampler.topP, sampler.minP) = (0.8, 40, 0.95, 0.05)
        (sampler.typicalP, sampler.xtcProbability, sampler.xtcThreshold) = (1, 0, 0.1)
        (sampler.dynamicRange, sampler.dynamicExponent) = (0, 1)
        (sampler.repetitionPenalty, sampler.frequencyPenalty, sampler.presencePenalty) = (1, 0, 0)
        (sampler.penaltyLast, sampler.dryMultiplier, sampler.dryBase) = (64, 0, 1.75)
        (sampler.dryAllowed, sampler.dryLast) = (2, 64)
        (sampler.mirostat, sampler.mirostatTau, sampler.mirostatEta) = (false, 5, 0.1)
        (sampler.logProbabilities, sampler.topLogProbabilities, sampler.seed) = (false, 0, 3)
        XCTAssertNoThrow(try sampler.native())
        // Each option on its own, out of its range.
        let spoil: [(inout Sampler) -> Void] = [
            { $0.temperature = -1 }, { $0.topK = -1 }, { $0.topP = 2 }, { $0.minP = 2 }, { $0.typicalP = 2 },
            { $0.xtcProbability = 2 }, { $0.xtcThreshold = 2 }, { $0.dynamicRange = -1 }, { $0.dynamicExponent = .nan },
            { $0.repetitionPenalty = 0 }, { $0.frequencyPenalty = .nan }, { $0.presencePenalty = .nan },
            { $0.penaltyLast = -1 }, { $0.dryMultiplier = -1 }, { $0.dryBase = .nan }, { $0.dryAllowed = -1 },
            { $0.dryLast = -1 }, { $0.mirostatTau = -1 }, { $0.mirostatEta = .nan }, { $0.topLogProbabilities = -1 },
        ]
        for (index, spoil) in spoil.enumerated() {
            var spoilt = sampler
            spoil(&spoilt)
            XCTAssertThrowsError(try spoilt.native(), "option \(index)") { error in
                XCTAssertEqual((error as? SiskinError)?.code, .argument)
            }
        }
    }
}

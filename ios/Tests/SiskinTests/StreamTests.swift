import Foundation
import XCTest

@testable import Siskin

final class StreamTests: XCTestCase {
    /// A model restricted to the bytes of one character samples that character again and again.
    private func written(of character: String, seed: UInt64) async throws -> [Piece] {
        var sampler = Sampler()
        (sampler.seed, sampler.temperature, sampler.repetitionPenalty) = (seed, 50, 1)
        (sampler.topK, sampler.topP, sampler.minP) = (0, 1, 0)
        let bytes = Set(character.utf8.map(UInt32.init))
        for token in 0..<UInt32(256) where !bytes.contains(token) { sampler.bias[token] = -.infinity }
        var options = SessionOptions()
        options.sampler = sampler
        var pieces: [Piece] = []
        for try await piece in try await Session(try await chatModel(), options: options).answer(to: "x") {
            pieces.append(piece)
        }
        return pieces
    }

    func testCharactersComeWhole() async throws {
        for character in ["漢", "😀", "é"] {
            var whole = 0
            for seed in 0..<UInt64(12) {
                let pieces = try await written(of: character, seed: seed)
                // Swift's own UTF-8 decoder is the reference.
                let bytes = pieces.flatMap(\.bytes)
                XCTAssertEqual(pieces.map(\.text).joined(), String(decoding: bytes, as: UTF8.self))
                whole += pieces.count { $0.text.unicodeScalars.contains { $0 == character.unicodeScalars.first } }
                for piece in pieces where piece.text.contains(character) {
                    XCTAssertEqual(piece.bytes.last, Array(character.utf8).last, "it comes with its last byte")
                }
            }
            print("\(character) came whole \(whole) times")
            XCTAssertGreaterThan(whole, 0, character)
        }
    }

    func testARealModelWritesEmojiAndChineseWhole() async throws {
        let model = try await realModel("smollm2.gguf")
        for character in ["😀", "漢", "한"] {
            // Tokens are parts of characters; restricted to these, sampling produces a whole character at random.
            var options = SessionOptions()
            var sampler = Sampler()
            (sampler.seed, sampler.temperature, sampler.repetitionPenalty) = (1, 50, 1)
            (sampler.topK, sampler.topP, sampler.minP) = (0, 1, 0)
            for token in try model.tokenize(character, special: false) { sampler.bias[token] = 10_000 }
            XCTAssertGreaterThan(sampler.bias.count, 1, "\(character) has several tokens")
            (options.sampler, options.maxTokens, options.context) = (sampler, 100, 512)
            let session = try await Session(model, options: options)
            var pieces: [Piece] = []
            for try await piece in session.answer(raw: "x") { pieces.append(piece) }
            XCTAssertEqual(pieces.map(\.text).joined(), String(decoding: pieces.flatMap(\.bytes), as: UTF8.self))
            let whole = pieces.count { $0.text.contains(character) }
            print("SmolLM2: \(character) of \(sampler.bias.count) tokens came whole \(whole) times")
            XCTAssertGreaterThan(whole, 0, character)
        }
    }

    func testWhoStopsTakingLeavesTheAnswerWhereItIs() async throws {
        let model = try await chatModel()
        let expected = try await whole(try await Session(model, options: greedy()).answer(to: "Why?"))
        let session = try await Session(model, options: greedy())
        var taken = Whole()
        for try await piece in session.answer(to: "Why?") {
            taken.add(piece)
            if taken.tokens.count == 5 { break }
        }
        let written = try await session.stats().tokens
        XCTAssertEqual(written, 5, "tokens are computed on demand")
        while let piece = try await session.next() { taken.add(piece) }
        XCTAssertEqual(taken, expected)
        // The next prompt works as usual.
        let next = try await whole(session.answer(to: "And?"))
        XCTAssertFalse(next.tokens.isEmpty)
    }

    func testAStreamEndsWhereAnotherPromptBegins() async throws {
        let session = try await Session(try await chatModel(), options: greedy())
        var first = session.answer(to: "Why?").makeAsyncIterator()
        _ = try await first.next()
        try await session.prompt("And?")
        await assertFails(.state) { try await first.next() }
        // The other answer is complete.
        var other = Whole()
        while let piece = try await session.next() { other.add(piece) }
        XCTAssertEqual(other.tokens.count, 24)
    }

    func testAStreamGoesOnWhereAnotherPromptWasRefused() async throws {
        _ = try Testing.error(0)
        let model = try await chatModel()
        let expected = try await whole(try await Session(model, options: greedy()).answer(to: "Why?"))
        let session = try await Session(model, options: greedy())
        var taken = Whole()
        var pieces = session.answer(to: "Why?").makeAsyncIterator()
        if let piece = try await pieces.next() { taken.add(piece) }
        try session.suspend()
        await assertFails(.suspended) { try await session.prompt("no") }
        try session.resume()
        if let piece = try await pieces.next() { taken.add(piece) }
        // Cancelled while still queued.
        let holding = Task { try await session.hold(100) }
        try await Task.sleep(for: .milliseconds(20))
        let waiting = Task { try await session.prompt("no") }
        waiting.cancel()
        await assertFails(.cancelled) { try await waiting.value }
        try await holding.value
        while let piece = try await pieces.next() { taken.add(piece) }
        XCTAssertEqual(taken, expected)
    }

    func testTheCancellationOfItsTaskEndsAStreamAndLeavesTheSession() async throws {
        let session = try await Session(try await chatModel(), options: greedy(100))
        let count = Shared(0)
        let taking = Task {
            for try await _ in session.answer(to: "Why?") {
                count.change { $0 += 1 }
                if count.value == 3 { withUnsafeCurrentTask { $0?.cancel() } }
            }
        }
        // In cancelled tasks, streams end without an error or throw a cancellation error.
        do { try await taking.value } catch let error as SiskinError { XCTAssertEqual(error.code, .cancelled) }
        XCTAssertEqual(count.value, 3)
        let answer = try await whole(session.answer(to: "And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testAStreamWaitsInTheBackgroundAndGoesOn() async throws {
        let model = try await chatModel()
        let expected = try await whole(try await Session(model, options: greedy()).answer(to: "Why?"))
        let session = try await Session(model, options: greedy())
        // Suspended before the prompt, and again in the middle.
        try session.suspend()
        await assertFails(.suspended) { try await session.prompt("no") }
        let count = Shared(0)
        let taking = Task {
            var all = Whole()
            for try await piece in session.answer(to: "Why?") {
                all.add(piece)
                if count.change({ $0 += 1; return $0 }) == 5 { try session.suspend() }
            }
            return all
        }
        for at in [0, 5] {
            while count.value < at { try await Task.sleep(for: .milliseconds(1)) }
            try await Task.sleep(for: .milliseconds(50))
            XCTAssertEqual(count.value, at)
            try session.resume()
        }
        let answer = try await taking.value
        XCTAssertEqual(answer, expected)
    }

    /// Tokens that are not part of the new conversation are dropped once its prefill has begun.
    func testAPromptThatTakesTheOldOnesPlaceIsReadAgainAfterTheBackground() async throws {
        let model = try await realModel("smollm2.gguf")
        let options = greedy(4, context: 1024)
        let long = (0..<90).map { "\($0) birds sing. " }.joined()
        let edited = [Message(role: "system", content: "Be brief."), Message(role: "user", content: long)]
        let expected = try await whole(try await Session(model, options: options).answer(to: edited))
        var stopped = 0
        for round in 0..<3 {
            let session = try await Session(model, options: options)
            _ = try await whole(session.answer(to: "What do birds do all day?"))
            let before = try await session.stats().position
            let answering = Task { try await whole(session.answer(to: edited)) }
            try await Task.sleep(for: .milliseconds(60 + 40 * round))
            try session.suspend()
            let middle = try await session.stats().position
            stopped += middle < before ? 1 : 0
            try session.resume()
            let answer = try await answering.value
            XCTAssertEqual(answer, expected)
        }
        XCTAssertGreaterThan(stopped, 0, "a prompt was stopped in the middle")
    }

    func testATextThatTakesTheOldOnesPlaceIsReadAgainAfterTheBackground() async throws {
        let model = try await Model.open(try small("translates"))
        let text = String(repeating: "abc", count: 10)
        let expected = try await whole(try await Session(model, options: greedy(8)).answer(to: text))
        let session = try await Session(model, options: greedy(8))
        for round in 0..<200 {
            let answering = Task { try await whole(session.answer(to: text)) }
            try await Task.sleep(for: .microseconds(round * 10))
            try session.suspend()
            try session.resume()
            let answer = try await answering.value
            XCTAssertEqual(answer, expected)
        }
    }

    func testAStreamThatWaitsEndsWithItsTaskOrItsSession() async throws {
        let session = try await Session(try await chatModel(), options: greedy())
        try session.suspend()
        let cancelled = Task { try await whole(session.answer(to: "Why?")) }
        try await Task.sleep(for: .milliseconds(20))
        cancelled.cancel()
        await assertFails(.cancelled) { try await cancelled.value }
        let closed = Task { try await whole(session.answer(to: "Why?")) }
        try await Task.sleep(for: .milliseconds(20))
        await session.close()
        await assertFails(.state) { try await closed.value }
    }

    func testAStopEndsAStreamInTheBackground() async throws {
        let session = try await Session(try await chatModel(), options: greedy())
        var pieces = session.answer(to: "Why?").makeAsyncIterator()
        _ = try await pieces.next()
        // Cancelled between two pieces, before entering the background.
        session.stop()
        try session.suspend()
        await assertFails(.cancelled) { try await pieces.next() }
        // And while it is suspended in the background.
        let waiting = Task { try await whole(session.answer(to: "And?")) }
        try await Task.sleep(for: .milliseconds(50))
        session.stop()
        await assertFails(.cancelled) { try await waiting.value }
        try session.resume()
        let answer = try await whole(session.answer(to: "And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testAStopIsNotTakenForTheBackground() async throws {
        let session = try await Session(try await realModel("smollm2.gguf"), options: greedy(4, context: 4096))
        let long = (0..<400).map { "\($0) birds sing. " }.joined()
        for _ in 0..<4 {
            let answering = Task { try await whole(session.answer(to: long)) }
            try await Task.sleep(for: .milliseconds(100))
            session.stop()
            try session.suspend()
            await assertFails(.cancelled) { try await answering.value }
            try session.resume()
        }
    }

    func testAStopEndsTheAnswerThatIsBeingWritten() async throws {
        let session = try await Session(try await chatModel(), options: greedy())
        var pieces = session.answer(to: "Why?").makeAsyncIterator()
        _ = try await pieces.next()
        session.stop()
        await assertFails(.cancelled) { try await pieces.next() }
        // It can continue, and no stale cancellation affects the next call.
        let more = try await session.next()
        XCTAssertNotNil(more)
        session.stop()
        let answer = try await whole(session.answer(to: "And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }
}

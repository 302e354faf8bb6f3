import Foundation
import XCTest

@testable import Siskin

final class AnswerStreamTests: XCTestCase {
    /// Sampling that is uniform but for the logit biases.
    private func uniformSampler(seed: UInt64, logitBias: [UInt32: Float]) -> Sampler {
        Sampler(
            temperature: 50,
            topK: 0,
            topP: 1,
            minP: 0,
            repetitionPenalty: 1,
            seed: seed,
            logitBias: logitBias
        )
    }

    private func chunks(_ stream: AsyncThrowingStream<TextChunk, any Error>) async throws -> [TextChunk] {
        var chunks: [TextChunk] = []
        for try await chunk in stream { chunks.append(chunk) }
        return chunks
    }

    func testChunksHaveWholeCharacters() async throws {
        let model = try await chatModel()
        for character in ["漢", "😀", "é"] {
            // Restricted to the bytes of one character, the model samples that character now and then.
            let bytes = Set(character.utf8.map(UInt32.init))
            let others = (0..<UInt32(256)).filter { !bytes.contains($0) }
            let logitBias = Dictionary(uniqueKeysWithValues: others.map { ($0, -Float.infinity) })
            var count = 0
            for seed in 0..<UInt64(12) {
                let options = SessionOptions(sampler: uniformSampler(seed: seed, logitBias: logitBias))
                let chunks = try await chunks(try await Session(model: model, options: options).chat("x"))
                // Swift's own UTF-8 decoder is the reference.
                let bytes = chunks.flatMap(\.bytes)
                XCTAssertEqual(chunks.map(\.text).joined(), String(decoding: bytes, as: UTF8.self))
                count += chunks.count { $0.text.unicodeScalars.contains { $0 == character.unicodeScalars.first } }
                for chunk in chunks where chunk.text.contains(character) {
                    XCTAssertEqual(chunk.bytes.last, Array(character.utf8).last, "it comes with its last byte")
                }
            }
            print("\(character): generated \(count) times")
            XCTAssertGreaterThan(count, 0, character)
        }
    }

    func testChunksOfRealModelHaveWholeCharacters() async throws {
        let model = try await realModel("smollm2.gguf")
        for character in ["😀", "漢", "한"] {
            // Tokens are parts of these characters.
            let tokens = try model.tokenize(character, addingSpecialTokens: false)
            XCTAssertGreaterThan(Set(tokens).count, 1, "\(character) has several tokens")
            let logitBias = Dictionary(tokens.map { ($0, Float(10_000)) }, uniquingKeysWith: { first, _ in first })
            let sampler = uniformSampler(seed: 1, logitBias: logitBias)
            let options = SessionOptions(context: 512, maxTokens: 100, sampler: sampler)
            let chunks = try await chunks(try await Session(model: model, options: options).complete("x"))
            XCTAssertEqual(chunks.map(\.text).joined(), String(decoding: chunks.flatMap(\.bytes), as: UTF8.self))
            let count = chunks.count { $0.text.contains(character) }
            print("SmolLM2: \(character) of \(logitBias.count) tokens: generated \(count) times")
            XCTAssertGreaterThan(count, 0, character)
        }
    }

    func testBreakingOutOfIterationKeepsAnswer() async throws {
        let model = try await chatModel()
        let expected = try await collect(try await Session(model: model, options: greedy()).chat("Why?"))
        let session = try await Session(model: model, options: greedy())
        var answer = Answer()
        for try await chunk in session.chat("Why?") {
            answer.append(chunk)
            if answer.tokens.count == 5 { break }
        }
        let generated = try await session.stats().generatedTokens
        XCTAssertEqual(generated, 5, "tokens are computed on demand")
        while let chunk = try await session.next() { answer.append(chunk) }
        XCTAssertEqual(answer, expected)
        let next = try await collect(session.chat("And?"))
        XCTAssertFalse(next.tokens.isEmpty)
    }

    func testAnotherPromptEndsStream() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy())
        var stream = session.chat("Why?").makeAsyncIterator()
        _ = try await stream.next()
        try await session.prompt("And?")
        await assertThrows(.state) { try await stream.next() }
        // The answer to the other prompt is complete.
        var answer = Answer()
        while let chunk = try await session.next() { answer.append(chunk) }
        XCTAssertEqual(answer.tokens.count, 24)
    }

    func testRejectedPromptKeepsStream() async throws {
        try TestingLibrary.require()
        let model = try await chatModel()
        let expected = try await collect(try await Session(model: model, options: greedy()).chat("Why?"))
        let session = try await Session(model: model, options: greedy())
        var answer = Answer()
        var stream = session.chat("Why?").makeAsyncIterator()
        if let chunk = try await stream.next() { answer.append(chunk) }
        try session.pause()
        await assertThrows(.paused) { try await session.prompt("And?") }
        try session.resume()
        if let chunk = try await stream.next() { answer.append(chunk) }
        // Canceled while it waits for its turn.
        let blocking = Task { try await session.blockThread(milliseconds: 100) }
        try await Task.sleep(for: .milliseconds(20))
        let waiting = Task { try await session.prompt("And?") }
        waiting.cancel()
        await assertThrows(.canceled) { try await waiting.value }
        try await blocking.value
        while let chunk = try await stream.next() { answer.append(chunk) }
        XCTAssertEqual(answer, expected)
    }

    func testCancelingTaskEndsStream() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(100))
        let count = Locked(0)
        let generation = Task {
            for try await _ in session.chat("Why?") {
                count.withLock { $0 += 1 }
                if count.value == 3 { withUnsafeCurrentTask { $0?.cancel() } }
            }
        }
        // In a canceled task, a stream ends or throws.
        do { try await generation.value } catch let error as SiskinError { XCTAssertEqual(error.code, .canceled) }
        XCTAssertEqual(count.value, 3)
        let answer = try await collect(session.chat("And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testCancelEndsAnswerBetweenChunks() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy())
        var stream = session.chat("Why?").makeAsyncIterator()
        _ = try await stream.next()
        session.cancel()
        await assertThrows(.canceled) { try await stream.next() }
        // The answer can be continued, and the cancellation does not affect later calls.
        let chunk = try await session.next()
        XCTAssertNotNil(chunk)
        session.cancel()
        let answer = try await collect(session.chat("And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }
}

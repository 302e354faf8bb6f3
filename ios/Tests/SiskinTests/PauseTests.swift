import Foundation
import XCTest

@testable import Siskin

final class PauseTests: XCTestCase {
    func testStreamWaitsWhilePaused() async throws {
        let model = try await chatModel()
        let expected = try await collect(try await Session(model: model, options: greedy()).chat("Why?"))
        let session = try await Session(model: model, options: greedy())
        // Paused before the prompt, and again during the answer.
        try session.pause()
        await assertThrows(.paused) { try await session.prompt("And?") }
        let count = Locked(0)
        let generation = Task {
            var answer = Answer()
            for try await chunk in session.chat("Why?") {
                answer.append(chunk)
                if count.withLock({ $0 += 1; return $0 }) == 5 { try session.pause() }
            }
            return answer
        }
        for chunks in [0, 5] {
            while count.value < chunks { try await Task.sleep(for: .milliseconds(1)) }
            try await Task.sleep(for: .milliseconds(50))
            XCTAssertEqual(count.value, chunks)
            try session.resume()
        }
        let answer = try await generation.value
        XCTAssertEqual(answer, expected)
    }

    /// Tokens that are not part of the new conversation are dropped once its prefill has begun.
    func testConversationIsRepeatedAfterPause() async throws {
        let model = try await realModel("smollm2.gguf")
        let options = greedy(4, context: 1024)
        let text = (0..<90).map { "\($0) birds sing. " }.joined()
        let messages = [Message(role: .system, content: "Be brief."), Message(role: .user, content: text)]
        let expected = try await collect(try await Session(model: model, options: options).chat(messages))
        var interrupted = 0
        for round in 0..<3 {
            let session = try await Session(model: model, options: options)
            _ = try await collect(session.chat("What do birds do all day?"))
            let before = try await session.stats().position
            let generation = Task { try await collect(session.chat(messages)) }
            try await Task.sleep(for: .milliseconds(60 + 40 * round))
            try session.pause()
            let position = try await session.stats().position
            interrupted += position < before ? 1 : 0
            try session.resume()
            let answer = try await generation.value
            XCTAssertEqual(answer, expected)
        }
        XCTAssertGreaterThan(interrupted, 0, "a prefill was interrupted")
    }

    func testEncoderInputIsRepeatedAfterPause() async throws {
        let model = try await Model(contentsOf: try smallModelURL("translates"))
        let text = String(repeating: "abc", count: 10)
        let expected = try await collect(try await Session(model: model, options: greedy(8)).chat(text))
        let session = try await Session(model: model, options: greedy(8))
        for round in 0..<200 {
            let generation = Task { try await collect(session.chat(text)) }
            try await Task.sleep(for: .microseconds(round * 10))
            try session.pause()
            try session.resume()
            let answer = try await generation.value
            XCTAssertEqual(answer, expected)
        }
    }

    func testWaitingStreamEndsWithTaskOrSession() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy())
        try session.pause()
        let canceled = Task { try await collect(session.chat("Why?")) }
        try await Task.sleep(for: .milliseconds(20))
        canceled.cancel()
        await assertThrows(.canceled) { try await canceled.value }
        let closed = Task { try await collect(session.chat("Why?")) }
        try await Task.sleep(for: .milliseconds(20))
        await session.close()
        await assertThrows(.state) { try await closed.value }
    }

    func testCancelEndsStreamOfPausedSession() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy())
        var stream = session.chat("Why?").makeAsyncIterator()
        _ = try await stream.next()
        // Canceled between two chunks, before the pause.
        session.cancel()
        try session.pause()
        await assertThrows(.canceled) { try await stream.next() }
        // Canceled during the pause.
        let waiting = Task { try await collect(session.chat("And?")) }
        try await Task.sleep(for: .milliseconds(50))
        session.cancel()
        await assertThrows(.canceled) { try await waiting.value }
        try session.resume()
        let answer = try await collect(session.chat("And?"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testCancelBeforePauseEndsStream() async throws {
        let model = try await realModel("smollm2.gguf")
        let session = try await Session(model: model, options: greedy(4, context: 4096))
        let text = (0..<400).map { "\($0) birds sing. " }.joined()
        for _ in 0..<4 {
            let generation = Task { try await collect(session.chat(text)) }
            try await Task.sleep(for: .milliseconds(100))
            session.cancel()
            try session.pause()
            await assertThrows(.canceled) { try await generation.value }
            try session.resume()
        }
    }
}

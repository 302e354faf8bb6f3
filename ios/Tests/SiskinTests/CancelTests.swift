import Foundation
import XCTest

@testable import Siskin

final class CancelTests: XCTestCase {
    /// A prompt of 4,096 tokens that takes seconds, cancelled at many points.
    func testAPromptOf4096TokensIsCancelledWithItsTask() async throws {
        let model = try await realModel("smollm2.gguf")
        let session = try await Session(model, options: greedy(4, context: 4096 + 64))
        let ids = (0..<4096).map { 1000 + UInt32($0 * 7919 % 20000) }
        let clock = ContinuousClock()
        var took: [Duration] = []
        for round in 0..<12 {
            let reading = Task {
                do { try await session.prompt(tokens: ids) } catch let error as SiskinError { return (error, clock.now) }
                throw SiskinError(.panic, place: "test", message: "the prompt was read to its end")
            }
            try await Task.sleep(for: .milliseconds(50 + 37 * round))
            let begun = clock.now
            reading.cancel()
            let (error, end) = try await reading.value
            XCTAssertEqual(error.code, .cancelled)
            XCTAssertTrue(error.isCancellation)
            took.append(end - begun)
            let position = try await session.stats().position
            XCTAssertEqual(position, 0, "nothing of it was read")
        }
        XCTAssertLessThan(report("cancelled prompts", took).middle, patience)
        let answer = try await whole(session.answer(raw: "The sky is"))
        XCTAssertEqual(answer.tokens.count, 4, "the session is as it was")
    }

    func testAnAnswerIsCancelledAndStopped() async throws {
        let model = try await realModel("smollm2.gguf")
        let session = try await Session(model, options: greedy(0, context: 2048))
        let clock = ContinuousClock()
        var took: [Duration] = []
        for round in 0..<16 {
            let count = Shared(0)
            let writing = Task {
                do {
                    for try await _ in session.answer(raw: "Once upon a time") { count.change { $0 += 1 } }
                } catch let error as SiskinError { XCTAssertEqual(error.code, .cancelled) }
                return clock.now
            }
            while count.value < 3 + round { try await Task.sleep(for: .milliseconds(1)) }
            let begun = clock.now
            if round % 2 == 0 { writing.cancel() } else { session.stop() }
            took.append(try await writing.value - begun)
            try await session.forget()
        }
        XCTAssertLessThan(report("cancelled answers", took).middle, patience)
    }

    func testACallThatIsCancelledBeforeItsTurnDoesNotBegin() async throws {
        _ = try Testing.error(0)
        let session = try await Session(try await chatModel(), options: greedy())
        let holding = Task { try await session.hold(100) }
        try await Task.sleep(for: .milliseconds(20))
        let waiting = Task { try await session.prompt("x") }
        try await Task.sleep(for: .milliseconds(20))
        waiting.cancel()
        await assertFails(.cancelled) { try await waiting.value }
        try await holding.value
        let tokens = try await session.stats().promptTokens
        XCTAssertEqual(tokens, 0)
        // No stale cancellation remains.
        let answer = try await whole(session.answer(to: "x"))
        XCTAssertEqual(answer.tokens.count, 24)
    }

    func testAStopReachesTheCallsThatWaitForTheirTurn() async throws {
        _ = try Testing.error(0)
        let session = try await Session(try await chatModel(), options: greedy())
        // Work that ignores cancellation, and calls that cannot be cancelled.
        for works in [true, false] {
            let holding = Task { if works { try await session.work(100) } else { try await session.hold(100) } }
            try await Task.sleep(for: .milliseconds(20))
            let waiting = [
                Task { _ = try await whole(session.answer(to: "x")) }, Task { try await session.prompt("x") },
                Task { _ = try await session.next() },
            ]
            try await Task.sleep(for: .milliseconds(20))
            session.stop()
            for task in waiting { await assertFails(.cancelled) { try await task.value } }
            try await holding.value
            let tokens = try await session.stats().promptTokens
            XCTAssertEqual(tokens, 0)
        }
        let answer = try await whole(session.answer(to: "x"))
        XCTAssertEqual(answer.tokens.count, 24)
    }

    func testStopsThatComeTooLateMeetNothing() async throws {
        let session = try await Session(try await chatModel(), options: greedy(2))
        for round in 0..<300 {
            try await session.forget()
            let answering = Task { try await whole(session.answer(to: "x")) }
            if round % 3 == 0 { await Task.yield() }
            answering.cancel()
            _ = try? await answering.value
            // The next task is unaffected by the cancelled one.
            try await session.forget()
            let answer = try await whole(session.answer(to: "x"))
            XCTAssertEqual(answer.tokens.count, 2)
        }
    }

    func testAStopThatACallDidNotHeedIsTakenBack() async throws {
        _ = try Testing.error(0)
        let session = try await Session(try await chatModel(), options: greedy())
        for stop in [true, false] {
            let working = Task { try await session.work(60) }
            try await Task.sleep(for: .milliseconds(20))
            if stop { session.stop() } else { working.cancel() }
            try await working.value
            let answer = try await whole(session.answer(to: "x"))
            XCTAssertEqual(answer.tokens.count, 24)
        }
    }

    func testAResumeTakesBackNoStop() async throws {
        let model = try await realModel("smollm2.gguf")
        let session = try await Session(model, options: greedy(4, context: 4096 + 64))
        let ids = (0..<4096).map { 1000 + UInt32($0 * 7919 % 20000) }
        for stop in [true, false, true, false] {
            let reading = Task { try await session.prompt(tokens: ids) }
            try await Task.sleep(for: .milliseconds(100))
            if stop { session.stop() } else { reading.cancel() }
            try session.resume()
            await assertFails(.cancelled) { try await reading.value }
        }
        let reading = Task { try await session.prompt(tokens: ids) }
        try await Task.sleep(for: .milliseconds(100))
        async let closed: Void = session.close()
        try? session.resume()
        await closed
        await assertFails(.cancelled) { try await reading.value }
    }

    func testLongCallsLeaveTheSharedThreadsFree() async throws {
        _ = try Testing.error(0)
        let model = try await chatModel()
        var sessions: [Session] = []
        for _ in 0..<16 { sessions.append(try await Session(model, options: greedy(2))) }
        let clock = ContinuousClock()
        let begun = clock.now
        let longest = try await withThrowingTaskGroup(of: Void.self) { group in
            for session in sessions { group.addTask { try await session.work(400) } }
            try await Task.sleep(for: .milliseconds(50))
            var took: [Duration] = []
            for _ in 0..<20 {
                let asked = clock.now
                await Task.detached {}.value
                took.append(clock.now - asked)
            }
            XCTAssertLessThan(clock.now - begun, .milliseconds(400))
            try await group.waitForAll()
            return report("tasks beside 16 long calls", took).worst
        }
        XCTAssertLessThan(longest, 200)
    }
}

import Foundation
import XCTest

@testable import Siskin

final class CancellationTests: XCTestCase {
    func testCancelingTaskCancelsLongPrompt() async throws {
        let session = try await Session(model: try await realModel("smollm2.gguf"), options: longPromptOptions)
        let clock = ContinuousClock()
        var latencies: [Duration] = []
        for round in 0..<12 {
            let prefill = Task {
                do {
                    try await session.prompt(tokens: longPrompt)
                } catch let error as SiskinError { return (error, clock.now) }
                throw SiskinError(.panic, location: "test", message: "the prefill was not canceled")
            }
            try await Task.sleep(for: .milliseconds(50 + 37 * round))
            let start = clock.now
            prefill.cancel()
            let (error, end) = try await prefill.value
            XCTAssertEqual(error.code, .canceled)
            XCTAssertTrue(error.isCancellation)
            latencies.append(end - start)
            let position = try await session.stats().position
            XCTAssertEqual(position, 0, "the session is restored to its state before the call")
        }
        XCTAssertLessThan(report("canceled prompts", latencies).median, maxCancellationLatency)
        let answer = try await collect(session.complete("The sky is"))
        XCTAssertEqual(answer.tokens.count, 4)
    }

    func testAnswerIsCanceledByTaskAndByCancel() async throws {
        let model = try await realModel("smollm2.gguf")
        let session = try await Session(model: model, options: greedy(nil, context: 2048))
        let clock = ContinuousClock()
        var latencies: [Duration] = []
        for round in 0..<16 {
            let count = Locked(0)
            let generation = Task {
                do {
                    for try await _ in session.complete("Once upon a time") { count.withLock { $0 += 1 } }
                } catch let error as SiskinError { XCTAssertEqual(error.code, .canceled) }
                return clock.now
            }
            while count.value < 3 + round { try await Task.sleep(for: .milliseconds(1)) }
            let start = clock.now
            if round % 2 == 0 { generation.cancel() } else { session.cancel() }
            latencies.append(try await generation.value - start)
            try await session.reset()
        }
        XCTAssertLessThan(report("canceled answers", latencies).median, maxCancellationLatency)
    }

    func testCallCanceledBeforeItsTurnDoesNotBegin() async throws {
        try TestingLibrary.require()
        let session = try await Session(model: try await chatModel(), options: greedy())
        let blocking = Task { try await session.blockThread(milliseconds: 100) }
        try await Task.sleep(for: .milliseconds(20))
        let waiting = Task { try await session.prompt("x") }
        try await Task.sleep(for: .milliseconds(20))
        waiting.cancel()
        await assertThrows(.canceled) { try await waiting.value }
        try await blocking.value
        let tokens = try await session.stats().promptTokens
        XCTAssertEqual(tokens, 0)
        // The cancellation does not affect the next call.
        let answer = try await collect(session.chat("x"))
        XCTAssertEqual(answer.tokens.count, 24)
    }

    func testCancelAffectsWaitingCalls() async throws {
        try TestingLibrary.require()
        let session = try await Session(model: try await chatModel(), options: greedy())
        for isCall in [true, false] {
            let blocking = Task {
                if isCall {
                    try await session.runUncancellableCall(milliseconds: 100)
                } else {
                    try await session.blockThread(milliseconds: 100)
                }
            }
            try await Task.sleep(for: .milliseconds(20))
            let waiting = [
                Task { _ = try await collect(session.chat("x")) }, Task { try await session.prompt("x") },
                Task { _ = try await session.next() },
            ]
            try await Task.sleep(for: .milliseconds(20))
            session.cancel()
            for task in waiting { await assertThrows(.canceled) { try await task.value } }
            try await blocking.value
            let tokens = try await session.stats().promptTokens
            XCTAssertEqual(tokens, 0)
        }
        let answer = try await collect(session.chat("x"))
        XCTAssertEqual(answer.tokens.count, 24)
    }

    func testLateCancellationDoesNotAffectNextTask() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(2))
        for round in 0..<300 {
            try await session.reset()
            let canceled = Task { try await collect(session.chat("x")) }
            if round % 3 == 0 { await Task.yield() }
            canceled.cancel()
            _ = try? await canceled.value
            try await session.reset()
            let answer = try await collect(session.chat("x"))
            XCTAssertEqual(answer.tokens.count, 2)
        }
    }

    func testUnnoticedCancellationIsReset() async throws {
        try TestingLibrary.require()
        let session = try await Session(model: try await chatModel(), options: greedy())
        for callsCancel in [true, false] {
            let call = Task { try await session.runUncancellableCall(milliseconds: 60) }
            try await Task.sleep(for: .milliseconds(20))
            if callsCancel { session.cancel() } else { call.cancel() }
            try await call.value
            let answer = try await collect(session.chat("x"))
            XCTAssertEqual(answer.tokens.count, 24)
        }
    }

    func testResumeKeepsCancellation() async throws {
        let session = try await Session(model: try await realModel("smollm2.gguf"), options: longPromptOptions)
        for callsCancel in [true, false, true, false] {
            let prefill = Task { try await session.prompt(tokens: longPrompt) }
            try await Task.sleep(for: .milliseconds(100))
            if callsCancel { session.cancel() } else { prefill.cancel() }
            try session.resume()
            await assertThrows(.canceled) { try await prefill.value }
        }
        let prefill = Task { try await session.prompt(tokens: longPrompt) }
        try await Task.sleep(for: .milliseconds(100))
        async let closed: Void = session.close()
        try? session.resume()
        await closed
        await assertThrows(.canceled) { try await prefill.value }
    }

    func testLongCallsDoNotBlockCooperativePool() async throws {
        try TestingLibrary.require()
        let model = try await chatModel()
        var sessions: [Session] = []
        for _ in 0..<16 { sessions.append(try await Session(model: model, options: greedy(2))) }
        let clock = ContinuousClock()
        let start = clock.now
        let maximum = try await withThrowingTaskGroup(of: Void.self) { group in
            for session in sessions { group.addTask { try await session.runUncancellableCall(milliseconds: 400) } }
            try await Task.sleep(for: .milliseconds(50))
            var latencies: [Duration] = []
            for _ in 0..<20 {
                let start = clock.now
                await Task.detached {}.value
                latencies.append(clock.now - start)
            }
            XCTAssertLessThan(clock.now - start, .milliseconds(400))
            try await group.waitForAll()
            return report("tasks during 16 long calls", latencies).maximum
        }
        XCTAssertLessThan(maximum, 200)
    }
}

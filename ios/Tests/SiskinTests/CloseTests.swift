import Foundation
import XCTest

@testable import Siskin

final class CloseTests: XCTestCase {
    func testClosingDuringGeneration() async throws {
        let model = try await chatModel()
        for round in 0..<60 {
            let session = try await Session(model: model, options: greedy(100))
            let count = Locked(0)
            let generation = Task {
                for try await _ in session.chat("Why?") { count.withLock { $0 += 1 } }
            }
            while count.value < round % 7 { await Task.yield() }
            await session.close()
            do {
                try await generation.value
            } catch let error as SiskinError {
                XCTAssertTrue([.canceled, .state].contains(error.code), "\(error)")
            }
            await session.close()
            await assertThrows(.state) { try await session.next() }
            await assertThrows(.state) { try await session.prompt("x") }
            await assertThrows(.state) { try await session.stats() }
            await assertThrows(.state) { try session.pause() }
            session.cancel()
        }
    }

    func testClosingCancelsLongPrompt() async throws {
        let model = try await realModel("smollm2.gguf")
        let clock = ContinuousClock()
        var latencies: [Duration] = []
        for _ in 0..<5 {
            let session = try await Session(model: model, options: longPromptOptions)
            let prefill = Task { try await session.prompt(tokens: longPrompt) }
            try await Task.sleep(for: .milliseconds(100))
            let start = clock.now
            await session.close()
            latencies.append(clock.now - start)
            await assertThrows(.canceled) { try await prefill.value }
        }
        XCTAssertLessThan(report("closing during a prompt", latencies).median, maxCancellationLatency)
    }

    func testConcurrentClosing() async throws {
        let model = try await chatModel()
        for _ in 0..<20 {
            let session = try await Session(model: model, options: greedy(50))
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<4 { group.addTask { _ = try? await collect(session.chat("x")) } }
                for _ in 0..<4 { group.addTask { await session.close() } }
                for _ in 0..<4 { group.addTask { session.cancel() } }
            }
            await assertThrows(.state) { try await session.stats() }
        }
    }

    func testClosingEncoderAndSeq2SeqTwice() async throws {
        let encoder = try await TextEncoder(model: Model(contentsOf: try smallModelURL("vectors")))
        await encoder.close()
        await encoder.close()
        await assertThrows(.state) { try await encoder.embed("x") }
        let model = try await Model(contentsOf: try smallModelURL("translates"))
        let seq2seq = try await Seq2Seq(model: model, maxSequences: 8, context: 64)
        await seq2seq.close()
        await seq2seq.close()
        await assertThrows(.state) { try await seq2seq.generate(["x"]) }
    }

    func testUnclosedHandleIsFreed() async throws {
        weak var handle: NativeHandle?
        do {
            let session = try await Session(model: try await chatModel(), options: greedy(2))
            handle = await session.runner.handle
            _ = try await collect(session.chat("x"))
            XCTAssertNotNil(handle)
        }
        for _ in 0..<100 where handle != nil { try await Task.sleep(for: .milliseconds(10)) }
        XCTAssertNil(handle)
    }

    func testRepeatedUseDoesNotLeakMemory() async throws {
        func runRound(_ number: Int) async throws {
            let model = try await chatModel()
            let session = try await Session(model: model, options: greedy(4))
            for try await _ in session.chat("Why?") {}
            // In every other round, the deinitializers free the handles.
            if number % 2 == 0 {
                await session.close()
                model.close()
            }
        }
        for number in 0..<100 { try await runRound(number) }
        let before = residentMemory()
        let clock = ContinuousClock()
        let start = clock.now
        for number in 0..<1000 { try await runRound(number) }
        let growth = residentMemory() - before
        print("1,000 rounds: \(clock.now - start); \(before >> 10) KiB before, \(growth >> 10) KiB more after")
        XCTAssertLessThan(growth, 4 << 20)
    }
}

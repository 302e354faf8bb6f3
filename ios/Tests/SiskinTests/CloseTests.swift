import Foundation
import XCTest

@testable import Siskin

final class CloseTests: XCTestCase {
    func testClosingWhileAnotherTaskGenerates() async throws {
        let model = try await chatModel()
        for round in 0..<60 {
            let session = try await Session(model, options: greedy(100))
            let count = Shared(0)
            let writing = Task {
                for try await _ in session.answer(to: "Why?") { count.change { $0 += 1 } }
            }
            while count.value < round % 7 { await Task.yield() }
            await session.close()
            do {
                try await writing.value
            } catch let error as SiskinError {
                XCTAssertTrue([.cancelled, .state].contains(error.code), "\(error)")
            }
            await session.close()
            await assertFails(.state) { try await session.next() }
            await assertFails(.state) { try await session.prompt("x") }
            await assertFails(.state) { try await session.stats() }
            await assertFails(.state) { try session.suspend() }
            session.stop()
        }
    }

    func testClosingWaitsForALongCall() async throws {
        let model = try await realModel("smollm2.gguf")
        let clock = ContinuousClock()
        var took: [Duration] = []
        for _ in 0..<5 {
            let session = try await Session(model, options: greedy(4, context: 4096 + 64))
            let ids = (0..<4096).map { 1000 + UInt32($0 * 7919 % 20000) }
            let reading = Task { try await session.prompt(tokens: ids) }
            try await Task.sleep(for: .milliseconds(100))
            let begun = clock.now
            await session.close()
            took.append(clock.now - begun)
            await assertFails(.cancelled) { try await reading.value }
        }
        XCTAssertLessThan(report("closing inside a prompt", took).middle, patience)
    }

    func testManyTasksMayCloseAtOnce() async throws {
        let model = try await chatModel()
        for _ in 0..<20 {
            let session = try await Session(model, options: greedy(50))
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<4 { group.addTask { _ = try? await whole(session.answer(to: "x")) } }
                for _ in 0..<4 { group.addTask { await session.close() } }
                for _ in 0..<4 { group.addTask { session.stop() } }
            }
            await assertFails(.state) { try await session.stats() }
        }
    }

    func testEveryKindOfHandleClosesTwiceAndSaysSo() async throws {
        let encoder = try await Encoder(try await Model.open(try small("vectors")))
        await encoder.close()
        await encoder.close()
        await assertFails(.state) { try await encoder.embed("x") }
        let writer = try await Writer(try await Model.open(try small("translates")), rows: 8, context: 64)
        await writer.close()
        await writer.close()
        await assertFails(.state) { try await writer.write(["x"]) }
    }

    func testHandlesThatNobodyClosedAreFreed() async throws {
        weak var gone: Owner?
        do {
            let session = try await Session(try await chatModel(), options: greedy(2))
            gone = await session.worker.owner
            _ = try await whole(session.answer(to: "x"))
            XCTAssertNotNil(gone)
        }
        for _ in 0..<100 where gone != nil { try await Task.sleep(for: .milliseconds(10)) }
        XCTAssertNil(gone)
    }

    func testAThousandRoundsTakeNoMemory() async throws {
        func round(_ number: Int) async throws {
            let model = try await chatModel()
            let session = try await Session(model, options: greedy(4))
            for try await _ in session.answer(to: "Why?") {}
            // Every second one is freed by its deinitializer.
            if number % 2 == 0 {
                await session.close()
                model.close()
            }
        }
        for number in 0..<100 { try await round(number) }
        let before = resident()
        let clock = ContinuousClock()
        let begun = clock.now
        for number in 0..<1000 { try await round(number) }
        let grown = resident() - before
        print("1,000 rounds took \(clock.now - begun); \(before >> 10) KiB before, \(grown >> 10) KiB more after")
        XCTAssertLessThan(grown, 4 << 20)
    }
}

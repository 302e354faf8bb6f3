import Foundation
import XCTest

@testable import Siskin

final class ModelTests: XCTestCase {
    private func answer(_ model: Model, adapter: String? = nil) async throws -> Answer {
        var options = greedy()
        options.adapter = adapter
        let session = try await Session(model: model, options: options)
        return try await collect(session.chat("Why is the sky blue?"))
    }

    func testAllInitializersLoadSameModel() async throws {
        let url = try smallModelURL("chat")
        let expected = try await answer(try await Model(contentsOf: url))
        XCTAssertFalse(expected.tokens.isEmpty)
        let data = try Data(contentsOf: url)
        let mapped = try Data(contentsOf: url, options: .alwaysMapped)
        // Its first byte has an odd address.
        let slice = (Data([7, 7, 7]) + data).dropFirst(3)
        let bundle = try XCTUnwrap(Bundle(path: url.deletingLastPathComponent().path))
        let models = [
            try await Model(data: data), try await Model(data: mapped), try await Model(data: slice),
            try await Model(data: data, copying: true), try await Model(resource: "chat", in: bundle),
            try await Model(fileHandle: FileHandle(forReadingFrom: url)),
        ]
        for model in models {
            let answer = try await answer(model)
            XCTAssertEqual(answer, expected)
        }
    }

    func testLoadingPartOfFile() async throws {
        let folder = try makeTemporaryFolder("part")
        defer { try? FileManager.default.removeItem(at: folder) }
        let data = try Data(contentsOf: try smallModelURL("chat"))
        let archive = folder.appending(path: "archive")
        try (Data(repeating: 1, count: 16384) + data + Data(repeating: 2, count: 100)).write(to: archive)
        let file = try FileHandle(forReadingFrom: archive)
        let model = try await Model(fileHandle: file, offset: 16384, length: UInt64(data.count))
        try file.close()
        let expected = try await answer(try await chatModel())
        let answer = try await answer(model)
        XCTAssertEqual(answer, expected)
        let other = try FileHandle(forReadingFrom: archive)
        await assertThrows(.argument) { try await Model(fileHandle: other, offset: 0, length: 0) }
        await assertThrows(.corrupt) { try await Model(fileHandle: other, offset: 1, length: 1000) }
    }

    func testSessionKeepsModelDataAlive() async throws {
        let session = try await Session(
            model: Model(data: try Data(contentsOf: try smallModelURL("chat"))),
            options: greedy()
        )
        // Overwrites freed memory, so that a use after free is detected.
        let garbage = (0..<64).map { Data(repeating: UInt8($0), count: 1 << 20) }
        let answer = try await collect(session.chat("Why is the sky blue?"))
        let expected = try await self.answer(try await chatModel())
        XCTAssertEqual(answer, expected)
        XCTAssertEqual(garbage.count, 64)
    }

    func testLoadingErrors() async throws {
        await assertThrows(.io) { try await Model(contentsOf: URL(fileURLWithPath: "/missing/model.siskin")) }
        await assertThrows(.argument) { try await Model(contentsOf: URL(string: "https://example.org/model.siskin")!) }
        await assertThrows(.io) { try await Model(resource: "missing") }
        await assertThrows(.corrupt) { try await Model(data: Data("garbage".utf8)) }
        await assertThrows(.corrupt) { try await Model(data: Data("garbage".utf8), copying: true) }
        await assertThrows(.corrupt) { try await Model(data: Data()) }
        let url = try smallModelURL("chat")
        for options in [ModelOptions(disabledCPUFeatures: ["warp"]), ModelOptions(threads: -1)] {
            await assertThrows(.argument) { try await Model(contentsOf: url, options: options) }
        }
    }

    func testClosedModel() async throws {
        let model = try await chatModel()
        let session = try await Session(model: model, options: greedy(4))
        model.close()
        model.close()
        await assertThrows(.state) { try model.info() }
        await assertThrows(.state) { try await Session(model: model) }
        await assertThrows(.state) { try await model.verify() }
        // Objects that were created from it keep working.
        let answer = try await collect(session.chat("x"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testInfo() async throws {
        let model = try await chatModel()
        let info = try model.info()
        // As in its config.json.
        XCTAssertEqual(info.family, "llama")
        XCTAssertEqual(info.contextLength, 128)
        XCTAssertEqual(info.vocabularySize, 256)
        XCTAssertEqual(info.hiddenSize, 64)
        XCTAssertEqual(info.threads, 2)
        XCTAssertEqual(info.fileSize, try Data(contentsOf: try smallModelURL("chat")).count)
        XCTAssertEqual(info.capabilities, [.generate, .chat, .tokenize])
        XCTAssertNoThrow(try model.warnings())
        try await model.verify()
        let encoder = try await Model(contentsOf: try smallModelURL("vectors"))
        XCTAssertEqual(try encoder.info().capabilities, [.encode, .tokenize, .fillMask])
    }

    func testTokenization() async throws {
        let model = try await chatModel()
        // One token per byte.
        let text = "Grüße, 世界 😀"
        XCTAssertEqual(try model.tokenize(text, addingSpecialTokens: false), text.utf8.map(UInt32.init))
        XCTAssertEqual(try model.tokenize("", addingSpecialTokens: false), [])
        XCTAssertEqual(try model.bytes(ofToken: 0xF0), [0xF0])
        await assertThrows(.argument) { try model.bytes(ofToken: 256) }
        // CLS and SEP around one token.
        let encoder = try await Model(contentsOf: try smallModelURL("vectors"))
        XCTAssertEqual(try encoder.tokenize("a"), [2, 5, 3])
        XCTAssertEqual(try encoder.tokenize("a", addingSpecialTokens: false), [5])
    }

    func testAdapter() async throws {
        let expected = try await answer(try await chatModel())
        let chat = try smallModelURL("chat")
        var options = ModelOptions(adapter: try smallModelURL("adapter"))
        let adapted = try await answer(try await Model(contentsOf: chat, options: options))
        XCTAssertNotEqual(adapted, expected)
        // Sessions of one model choose the same adapter by its name.
        let choice = ModelOptions(adapters: ["a": try smallModelURL("adapter")])
        let model = try await Model(contentsOf: chat, options: choice)
        let plain = try await answer(model)
        XCTAssertEqual(plain, expected)
        let chosen = try await answer(model, adapter: "a")
        XCTAssertEqual(chosen, adapted)
        await assertThrows(.argument) { try await self.answer(model, adapter: "b") }
        await assertThrows(.argument) { [options] in
            try await Model(contentsOf: try smallModelURL("vectors"), options: options)
        }
        // Other weights of the same architecture are accepted on request only.
        let source = chat.deletingPathExtension()
        options.packedCache = .disabled
        options.quantization = "w8r"
        await assertThrows(.argument) { [options] in try await Model(contentsOf: source, options: options) }
        options.allowAnyBase = true
        _ = try await Model(contentsOf: source, options: options)
        options.adapter = chat
        await assertThrows(.missing) { [options] in try await Model(contentsOf: chat, options: options) }
    }

    func testPackingReportsProgress() async throws {
        let source = try smallModelURL("chat").deletingPathExtension()
        let folder = try makeTemporaryFolder("cache")
        defer { try? FileManager.default.removeItem(at: folder) }
        let cache = folder.appending(path: "inner")
        let progress = Locked<[Int]>([])
        let options = ModelOptions(packedCache: .folder(cache), quantization: "f32") { written, _ in
            progress.withLock { $0.append(written) }
            return true
        }
        let model = try await Model(contentsOf: source, options: options)
        XCTAssertEqual(try model.info().family, "llama")
        XCTAssertEqual(progress.value, progress.value.sorted())
        XCTAssertGreaterThan(progress.value.last ?? 0, 100_000)
        XCTAssertFalse(try FileManager.default.contentsOfDirectory(atPath: cache.path).isEmpty)
        let canceling = ModelOptions(packedCache: .disabled, quantization: "f32") { _, _ in false }
        await assertThrows(.canceled) { try await Model(contentsOf: source, options: canceling) }
    }

    func testCancelingTaskCancelsLoading() async throws {
        let source = try smallModelURL("chat").deletingPathExtension()
        let hasBegun = Locked(false)
        let options = ModelOptions(packedCache: .disabled) { _, _ in
            hasBegun.withLock { $0 = true }
            Thread.sleep(forTimeInterval: 0.05)
            return true
        }
        let loading = Task { try await Model(contentsOf: source, options: options) }
        while !hasBegun.value { try await Task.sleep(for: .milliseconds(1)) }
        loading.cancel()
        await assertThrows(.canceled) { try await loading.value }
        let canceled = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await Model(contentsOf: source, options: options)
        }
        await assertThrows(.canceled) { try await canceled.value }
    }

    func testRemovedLogHandlerIsNotCalled() async throws {
        let messages = Locked<[String]>([])
        try Library.setLogHandler { _, message in messages.withLock { $0.append(message) } }
        _ = try await answer(try await chatModel())
        try Library.setLogHandler(nil)
        let count = messages.value.count
        _ = try await answer(try await chatModel())
        XCTAssertEqual(messages.value.count, count)
    }

    func testThrottlingKeepsResults() async throws {
        let model = try await chatModel()
        let expected = try await answer(model)
        XCTAssertEqual(try model.throttleStats().dutyCycle, 1)
        try model.setThermalState(.fair)
        try model.setPowerState(PowerState(isOnBattery: true))
        try model.setThrottle(.background)
        let throttled = try await answer(model)
        XCTAssertEqual(throttled, expected)
        let stats = try model.throttleStats()
        XCTAssertEqual(stats.threads, 1)
        XCTAssertEqual(stats.dutyCycle, 0.25)
        XCTAssertGreaterThan(stats.forwardPasses, 0)
        XCTAssertGreaterThan(stats.waitTime, .zero)
        try model.setThrottle(.tokensPerSecond(1000))
        try model.setThrottle(.off)
        await assertThrows(.argument) { try model.setThrottle(.dutyCycle(0)) }
        await assertThrows(.argument) { try model.setThrottle(.tokensPerSecond(-1)) }
    }
}

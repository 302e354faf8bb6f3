import Foundation
import XCTest

@testable import Siskin

final class ModelTests: XCTestCase {
    /// A model gives the same answer regardless of how it was opened.
    private func answer(_ model: Model) async throws -> Whole {
        try await whole(try await Session(model, options: greedy()).answer(to: "Why is the sky blue?"))
    }

    func testEveryWayToOpenGivesTheSameModel() async throws {
        let url = try small("chat")
        let expected = try await answer(try await Model.open(url))
        XCTAssertFalse(expected.tokens.isEmpty)
        let bytes = try Data(contentsOf: url)
        let mapped = try Data(contentsOf: url, options: .alwaysMapped)
        var answers: [Whole] = []
        answers.append(try await answer(try await Model.open(bytes)))
        answers.append(try await answer(try await Model.open(mapped)))
        answers.append(try await answer(try await Model.open(bytes, copying: true)))
        answers.append(try await answer(try await Model.open(Data([7, 7, 7]) + bytes.dropFirst(0), slice: 3)))
        let bundle = try XCTUnwrap(Bundle(path: url.deletingLastPathComponent().path))
        answers.append(try await answer(try await Model.open(resource: "chat", in: bundle)))
        answers.append(try await answer(try await Model.open(FileHandle(forReadingFrom: url))))
        for answer in answers { XCTAssertEqual(answer, expected) }
    }

    func testAPartOfAFileIsAModel() async throws {
        let folder = try scratch("part")
        defer { try? FileManager.default.removeItem(at: folder) }
        let bytes = try Data(contentsOf: try small("chat"))
        let package = folder.appending(path: "package")
        try (Data(repeating: 1, count: 16384) + bytes + Data(repeating: 2, count: 100)).write(to: package)
        let file = try FileHandle(forReadingFrom: package)
        let model = try await Model.open(file, offset: 16384, length: UInt64(bytes.count))
        try file.close()
        let expected = try await answer(try await chatModel())
        let answer = try await answer(model)
        XCTAssertEqual(answer, expected)
        let again = try FileHandle(forReadingFrom: package)
        await assertFails(.argument) { try await Model.open(again, offset: 0, length: 0) }
        await assertFails(.corrupt) { try await Model.open(again, offset: 1, length: 1000) }
    }

    func testAModelInMemoryLivesAsLongAsItIsNeeded() async throws {
        let session = try await Session(try await Model.open(try Data(contentsOf: try small("chat"))), options: greedy())
        // Fills freed memory, so that a use after free is detected.
        let noise = (0..<64).map { Data(repeating: UInt8($0), count: 1 << 20) }
        let answer = try await whole(session.answer(to: "Why is the sky blue?"))
        let expected = try await self.answer(try await chatModel())
        XCTAssertEqual(answer, expected)
        XCTAssertEqual(noise.count, 64)
    }

    func testWhatCannotBeOpenedSaysWhy() async throws {
        await assertFails(.io) { try await Model.open(URL(fileURLWithPath: "/nowhere/at/all.siskin")) }
        await assertFails(.argument) { try await Model.open(URL(string: "https://example.org/model.siskin")!) }
        await assertFails(.io) { try await Model.open(resource: "absent") }
        await assertFails(.corrupt) { try await Model.open(Data("no model".utf8)) }
        await assertFails(.corrupt) { try await Model.open(Data("no model".utf8), copying: true) }
        await assertFails(.corrupt) { try await Model.open(Data()) }
        var options = ModelOptions()
        options.without = ["warp"]
        await assertFails(.argument) { [options] in try await Model.open(try small("chat"), options: options) }
        options = ModelOptions()
        options.threads = -1
        await assertFails(.argument) { [options] in try await Model.open(try small("chat"), options: options) }
    }

    func testAClosedModelSaysSo() async throws {
        let model = try await chatModel()
        let session = try await Session(model, options: greedy(4))
        model.close()
        model.close()
        await assertFails(.state) { try model.info() }
        await assertFails(.state) { try await Session(model) }
        await assertFails(.state) { try await model.verify() }
        // Objects created from it continue to work.
        let answer = try await whole(session.answer(to: "x"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testWhatAModelSaysOfItself() async throws {
        let model = try await chatModel()
        let info = try model.info()
        // As in its config.json.
        XCTAssertEqual(info.family, "llama")
        XCTAssertEqual(info.context, 128)
        XCTAssertEqual(info.vocabulary, 256)
        XCTAssertEqual(info.width, 64)
        XCTAssertEqual(info.threads, 2)
        XCTAssertEqual(info.bytes, UInt64(try Data(contentsOf: try small("chat")).count))
        XCTAssertEqual(info.abilities, [.writes, .chats, .takesText])
        XCTAssertNoThrow(try model.notes())
        try await model.verify()
        // One token per byte.
        let text = "Grüße, 世界 😀"
        XCTAssertEqual(try model.tokenize(text, special: false), text.utf8.map(UInt32.init))
        XCTAssertEqual(try model.token(0xF0), [0xF0])
        await assertFails(.argument) { try model.token(256) }
        XCTAssertEqual(try model.tokenize("", special: false), [])
        // More tokens than bytes: one each way for each of the special ones, and parts of letters.
        let reads = try await Model.open(try small("vectors"))
        XCTAssertEqual(try reads.tokenize("a"), [2, 5, 3])
        XCTAssertEqual(try reads.info().abilities, [.reads, .takesText, .fills])
    }

    func testAnAdapterChangesWhatItsBaseSays() async throws {
        let plain = try await answer(try await chatModel())
        var options = ModelOptions()
        options.adapter = try small("adapter")
        let changed = try await answer(try await Model.open(try small("chat"), options: options))
        XCTAssertNotEqual(changed, plain)
        await assertFails(.argument) { [options] in try await Model.open(try small("vectors"), options: options) }
        // Another base of the same family accepts it if forced.
        let source = try small("chat").deletingPathExtension()
        options.cache = .off
        options.recipe = "w8r"
        await assertFails(.argument) { [options] in try await Model.open(source, options: options) }
        options.anyBase = true
        _ = try await Model.open(source, options: options)
        options.adapter = try small("chat")
        await assertFails(.missing) { [options] in try await Model.open(try small("chat"), options: options) }
    }

    func testPackingTellsHowFarItIsAndStops() async throws {
        let source = try small("chat").deletingPathExtension()
        let folder = try scratch("cache")
        defer { try? FileManager.default.removeItem(at: folder) }
        let told = Shared<[UInt64]>([])
        var options = ModelOptions()
        options.cache = .folder(folder.appending(path: "inner"))
        options.recipe = "f32"
        options.progress = { done, _ in
            told.change { $0.append(done) }
            return true
        }
        let model = try await Model.open(source, options: options)
        XCTAssertEqual(try model.info().family, "llama")
        XCTAssertEqual(told.value, told.value.sorted())
        XCTAssertGreaterThan(told.value.last ?? 0, 100_000)
        XCTAssertFalse(try FileManager.default.contentsOfDirectory(atPath: folder.appending(path: "inner").path).isEmpty)
        options.cache = .off
        options.progress = { _, _ in false }
        await assertFails(.cancelled) { [options] in try await Model.open(source, options: options) }
    }

    func testOpeningIsCancelledWithItsTask() async throws {
        let source = try small("chat").deletingPathExtension()
        var options = ModelOptions()
        options.cache = .off
        let entered = Shared(false)
        options.progress = { _, _ in
            entered.change { $0 = true }
            Thread.sleep(forTimeInterval: 0.05)
            return true
        }
        let opening = Task { [options] in try await Model.open(source, options: options) }
        while !entered.value { try await Task.sleep(for: .milliseconds(1)) }
        opening.cancel()
        await assertFails(.cancelled) { try await opening.value }
        let never = Task { [options] in
            withUnsafeCurrentTask { $0?.cancel() }
            return try await Model.open(source, options: options)
        }
        await assertFails(.cancelled) { try await never.value }
    }

    func testMessagesComeToWhoAsks() async throws {
        let messages = Shared<[String]>([])
        try Library.log { _, text in messages.change { $0.append(text) } }
        _ = try await answer(try await chatModel())
        try Library.log(nil)
        let count = messages.value.count
        _ = try await answer(try await chatModel())
        XCTAssertEqual(messages.value.count, count)
    }

    func testAPaceChangesWhenAndNotWhat() async throws {
        let model = try await chatModel()
        let expected = try await answer(model)
        try model.setHeat(2)
        try model.setPower(saving: false, onBattery: true)
        try model.setPace(.background)
        let held = try await answer(model)
        XCTAssertEqual(held, expected)
        let stats = try model.paceStats()
        XCTAssertEqual(stats.threads, 1)
        XCTAssertEqual(stats.duty, 0.25)
        XCTAssertGreaterThan(stats.passes, 0)
        XCTAssertGreaterThan(stats.waited, .zero)
        try model.setPace(.tokens(perSecond: 1000))
        try model.setPace(.off)
        await assertFails(.argument) { try model.setPace(.duty(0)) }
        await assertFails(.argument) { try model.setHeat(7) }
        await assertFails(.argument) { try model.setHeat(-1) }
    }
}

extension Model {
    /// Opens data at an offset of one byte, so that its first byte has an odd address.
    fileprivate static func open(_ data: Data, slice start: Int) async throws -> Model {
        try await open(data.dropFirst(start))
    }
}

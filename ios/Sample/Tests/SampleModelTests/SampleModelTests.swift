import Foundation
import SampleModel
import Siskin
import XCTest

final class SampleModelTests: XCTestCase {
    private func file(_ variable: String, _ name: String) throws -> URL {
        let folder = ProcessInfo.processInfo.environment[variable] ?? ""
        let url = URL(fileURLWithPath: folder).appending(path: name)
        guard FileManager.default.fileExists(atPath: url.path) else { throw XCTSkip("\(name) is not there") }
        return url
    }

    func testAChatGrowsAndStops() async throws {
        try await Self.chat(try file("SISKIN_TEST_MODELS", "chat.siskin"))
    }

    @MainActor
    private static func chat(_ file: URL) async throws {
        var options = SessionOptions()
        options.maxTokens = 30
        let lifecycle = Lifecycle()
        let model = try await Model.open(file)
        let chat = try await Chat(model, following: lifecycle, options: options)
        var lengths: [Int] = []
        chat.changed = { lengths.append($0.messages.last?.content.count ?? 0) }
        chat.say("Hello")
        chat.say("not while an answer is being written")
        await chat.finish()
        XCTAssertEqual(chat.state.messages.map(\.role), ["user", "assistant"])
        XCTAssertFalse(chat.state.messages[1].content.isEmpty)
        XCTAssertGreaterThan(Set(lengths).count, 3)
        XCTAssertFalse(chat.state.isWriting)
        chat.say("Again")
        chat.stop()
        await chat.finish()
        XCTAssertNil(chat.state.problem)
        XCTAssertEqual(chat.state.messages.count, 4)
        // Text that is too long throws an error.
        chat.say(String(repeating: "long ", count: 100))
        await chat.finish()
        XCTAssertNotNil(chat.state.problem)
    }

    func testASearchFindsWhatIsMeant() async throws {
        let search = try await Search(try await Model.open(try file("SISKIN_REAL_MODELS", "minilm")))
        let texts = [
            "The ferry leaves the island at a quarter past seven.",
            "She planted three rows of beans behind the shed.",
            "Sign in, open the settings and choose a new password.",
        ]
        try await search.add(texts)
        let questions = ["When does the boat go?", "vegetables in the garden", "I cannot log into my account"]
        for (question, text) in zip(questions, texts) {
            let hits = try await search.find(question, count: 1)
            XCTAssertEqual(hits.map(\.text), [text])
        }
    }
}

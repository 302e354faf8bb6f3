import Foundation
import Observation
import SampleModel
import Siskin
import XCTest

final class SampleModelTests: XCTestCase {
    private func modelURL(_ variable: String, _ name: String) throws -> URL {
        let folder = ProcessInfo.processInfo.environment[variable] ?? ""
        let url = URL(fileURLWithPath: folder).appending(path: name)
        guard FileManager.default.fileExists(atPath: url.path) else { throw XCTSkip("\(name) is missing") }
        return url
    }

    func testChat() async throws {
        try await Self.testChat(modelURL: try modelURL("SISKIN_TEST_MODELS", "chat.siskin"))
    }

    @MainActor
    private static func testChat(modelURL: URL) async throws {
        let model = try await Model(contentsOf: modelURL)
        let chat = try await Chat(model: model, lifecycle: Lifecycle(), options: SessionOptions(maxTokens: 30))
        let lengths = Lengths(chat)
        chat.send("Hello")
        XCTAssertTrue(chat.isGenerating)
        chat.send("ignored while an answer is being generated")
        await chat.waitUntilIdle()
        XCTAssertEqual(chat.messages.map(\.role), [.user, .assistant])
        XCTAssertFalse(chat.messages[1].content.isEmpty)
        XCTAssertGreaterThan(lengths.observed.count, 3, "the answer is streamed")
        XCTAssertFalse(chat.isGenerating)
        chat.send("Again")
        chat.cancel()
        await chat.waitUntilIdle()
        XCTAssertNil(chat.errorMessage)
        XCTAssertEqual(chat.messages.count, 4)
        // Longer than the context.
        chat.send(String(repeating: "long ", count: 100))
        await chat.waitUntilIdle()
        XCTAssertNotNil(chat.errorMessage)
    }

    func testSearchFindsTextByMeaning() async throws {
        let model = try await Model(contentsOf: try modelURL("SISKIN_REAL_MODELS", "minilm"))
        let search = try await SemanticSearch(model: model)
        let texts = [
            "The ferry leaves the island at a quarter past seven.",
            "She planted three rows of beans behind the shed.",
            "Sign in, open the settings and choose a new password.",
        ]
        try await search.add(texts)
        let queries = ["When does the boat go?", "vegetables in the garden", "I cannot log into my account"]
        for (query, text) in zip(queries, texts) {
            let results = try await search.results(for: query, limit: 1)
            XCTAssertEqual(results.map(\.text), [text])
        }
    }
}

/// The lengths of the last message that a view would display.
@MainActor
private final class Lengths {
    private(set) var observed: Set<Int> = []
    private let chat: Chat

    init(_ chat: Chat) {
        self.chat = chat
        observe()
    }

    private func observe() {
        let length = withObservationTracking {
            chat.messages.last?.content.count ?? 0
        } onChange: { [weak self] in
            Task { @MainActor in self?.observe() }
        }
        observed.insert(length)
    }
}

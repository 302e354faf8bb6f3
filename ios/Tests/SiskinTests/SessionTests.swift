import Foundation
import XCTest

@testable import Siskin

final class SessionTests: XCTestCase {
    func testLogitsAndTokensMatchPyTorch() async throws {
        let golden = try Tensors(try testData("golden/llama/io.safetensors"))
        let ids = golden.values("input_ids", as: Int64.self).map(UInt32.init)
        let logits = golden.values("logits", as: Float.self)
        let (length, vocabulary) = (golden.shape("input_ids")[1], golden.shape("logits")[2])
        let session = try await Session(model: try await chatModel(), options: greedy(1))
        for row in 0..<golden.shape("input_ids")[0] {
            try await session.reset()
            try await session.prompt(tokens: Array(ids[row * length..<(row + 1) * length]))
            let actual = try await session.logits()
            let expected = Array(logits[(row * length + length - 1) * vocabulary..<(row + 1) * length * vocabulary])
            XCTAssertEqual(actual.count, vocabulary)
            let largest = expected.map(abs).max() ?? 0
            for (actual, expected) in zip(actual, expected) {
                XCTAssertEqual(actual, expected, accuracy: largest * 1e-4)
            }
            let first = try await session.next()
            XCTAssertEqual(first?.token, UInt32(expected.firstIndex(of: expected.max() ?? 0) ?? 0))
            XCTAssertNil(first?.finishReason)
            let last = try await session.next()
            XCTAssertEqual(last?.finishReason, .length)
            XCTAssertNil(last?.token)
            for _ in 0..<2 {
                let end = try await session.next()
                XCTAssertNil(end)
            }
        }
    }

    func testForksContinueAlikeAndTextsAreScored() async throws {
        var options = greedy(8)
        (options.forks, options.templateVariables) = (1, "{\"style\": \"brief\"}")
        let model = try await chatModel()
        let session = try await Session(model: model, options: options)
        try await session.prompt(raw: "Once upon")
        let fork = try await session.fork()
        let answer = try await collect(fork.complete(tokens: []))
        var expected = Answer()
        while let chunk = try await session.next() { expected.append(chunk) }
        XCTAssertEqual(answer, expected)
        try await fork.reset()
        let first = try await fork.score("Once upon")
        XCTAssertEqual(first.tokens, 8)
        let rest = try await fork.score(" a time")
        XCTAssertEqual(rest.tokens, 7)
        XCTAssertLessThan(rest.logProbability, 0)
        options.templateVariables = "[]"
        await assertThrows(.argument) { try await Session(model: model, options: options) }
    }

    func testAllFormsOfPromptGiveSameAnswer() async throws {
        let model = try await chatModel()
        let single = try await Session(model: model, options: greedy())
        try await single.add(Message(role: .system, content: "Be brief."))
        let expected = try await collect(single.chat("Why is the sky blue? 😀"))
        let stats = try await single.stats()
        XCTAssertEqual(stats.generatedTokens, expected.tokens.count)
        XCTAssertGreaterThan(stats.promptTokens, 0)
        XCTAssertGreaterThan(stats.position, stats.promptTokens)
        XCTAssertGreaterThan(stats.generationTime, .zero)
        XCTAssertGreaterThan(stats.promptTime, .zero)
        let messages = [
            Message(role: .system, content: "Be brief."), Message(role: "user", content: "Why is the sky blue? 😀"),
        ]
        let conversation = try await Session(model: model, options: greedy())
        let answer = try await collect(conversation.chat(messages))
        XCTAssertEqual(answer, expected)
        // As rendered by the chat template of the model.
        let prompt = "[system]Be brief.[user]Why is the sky blue? 😀[assistant]"
        let raw = try await Session(model: model, options: greedy())
        let completion = try await collect(raw.complete(prompt))
        XCTAssertEqual(completion.tokens, expected.tokens)
        let tokens = try await Session(model: model, options: greedy())
        let ids = try model.tokenize(prompt, addingSpecialTokens: false)
        let continuation = try await collect(tokens.complete(tokens: ids))
        XCTAssertEqual(continuation.tokens, expected.tokens)
        await assertThrows(.argument) { try await tokens.prompt(tokens: [4_000_000_000]) }
    }

    func testMessagesAreCodable() throws {
        let message = Message(role: .assistant, content: "Hello")
        let json = try Message.json([message])
        XCTAssertEqual(try JSONDecoder().decode([Message].self, from: Data(json.utf8)), [message])
        let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [[String: String]]
        XCTAssertEqual(object, [["role": "assistant", "content": "Hello"]])
    }

    func testRestoredSessionContinuesIdentically() async throws {
        let model = try await chatModel()
        let folder = try makeTemporaryFolder("saved")
        defer { try? FileManager.default.removeItem(at: folder) }
        let file = folder.appending(path: "Größe 世界.session")
        let original = try await Session(model: model, options: greedy(6))
        _ = try await collect(original.complete("A long story"))
        let state = try await original.savedState()
        try await original.save(to: file)
        let expected = try await collect(original.complete(" and"))
        let fromData = try await Session(model: model, options: greedy(6))
        let fromFile = try await Session(model: model, options: greedy(6))
        try await fromData.restore(from: state)
        try await fromFile.restore(from: file)
        for session in [fromData, fromFile] {
            let answer = try await collect(session.complete(" and"))
            XCTAssertEqual(answer, expected)
        }
        await assertThrows(.corrupt) { try await fromData.restore(from: state.prefix(5)) }
        await assertThrows(.io) { try await fromFile.restore(from: URL(fileURLWithPath: "/missing/file")) }
    }

    func testRewindTrimAndReset() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(4))
        await assertThrows(.state) { try await session.next() }
        try await session.prompt(raw: "abcdef")
        _ = try await session.next()
        try await session.rewind(to: 3)
        var position = try await session.stats().position
        XCTAssertEqual(position, 3)
        await assertThrows(.state) { try await session.next() }
        await assertThrows(.argument) { try await session.rewind(to: 1000) }
        await assertThrows(.argument) { try await session.rewind(to: -1) }
        try await session.trim(.unused)
        position = try await session.stats().position
        XCTAssertEqual(position, 3)
        try await session.trim(.all)
        position = try await session.stats().position
        XCTAssertEqual(position, 0)
        try await session.prompt(raw: "abc")
        try await session.reset()
        position = try await session.stats().position
        XCTAssertEqual(position, 0)
    }
}

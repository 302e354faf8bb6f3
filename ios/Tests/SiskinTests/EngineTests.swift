import XCTest

@testable import Siskin

final class EngineTests: XCTestCase {
    private let prompts = ["Why is the sky blue?", "What is a siskin?", "Why is the sky blue? And the sea?", "😀"]
    private let greedyRequest = RequestOptions(maxTokens: 24, sampler: .greedy)

    func testConcurrentRequestsHaveTheAnswersOfSessions() async throws {
        let model = try await chatModel()
        var expected: [String] = []
        for prompt in prompts {
            let session = try await Session(model: model, options: greedy())
            expected.append(try await collect(session.chat(prompt)).text)
        }
        for backgroundThread in [false, true] {
            let engine = try Engine(options: EngineOptions(threads: 2, backgroundThread: backgroundThread))
            let served = try await engine.add(model, options: ServedModelOptions(context: 128))
            let canceled = Task {
                while !Task.isCancelled {
                    let request = Task { try await served.response(to: "And so on") }
                    try? await Task.sleep(for: .milliseconds(5))
                    request.cancel()
                    _ = try? await request.value
                }
            }
            let answers = try await withThrowingTaskGroup(of: (Int, String).self) { group in
                for (index, prompt) in prompts.enumerated() {
                    group.addTask { [greedyRequest] in
                        (index, try await served.response(to: prompt, options: greedyRequest))
                    }
                }
                return try await group.reduce(into: [Int: String]()) { $0[$1.0] = $1.1 }
            }
            canceled.cancel()
            await canceled.value
            XCTAssertEqual(prompts.indices.map { answers[$0] }, expected)
            try await engine.drain(milliseconds: 60_000)
            XCTAssertEqual(try served.stats().running, 0)
            XCTAssertGreaterThan(try served.stats().steps, 0)
            await assertThrows(.overloaded) { try await served.submit("One more") }
        }
    }

    func testSessionsOfAnEngineAnswerAsOthersDo() async throws {
        let model = try await chatModel()
        let engine = try Engine(options: EngineOptions(threads: 2, backgroundThread: true))
        let served = try await engine.add(model, options: ServedModelOptions(context: 128))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for prompt in prompts {
                group.addTask {
                    let own = try await Session(model: model, options: greedy())
                    let shared = try await Session(model: served, options: greedy())
                    let expected = try await collect(own.chat(prompt)).text
                    let answer = try await collect(shared.chat(prompt)).text
                    XCTAssertEqual(answer, expected)
                }
            }
            try await group.waitForAll()
        }
        let own = try await Session(model: model, options: greedy())
        let attached = try await Session(model: engine.attach(model), options: greedy())
        let expected = try await collect(own.chat(prompts[1])).text
        let answer = try await collect(attached.chat(prompts[1])).text
        XCTAssertEqual(answer, expected)
        try await engine.drain(milliseconds: 1000)
        let late = try await Session(model: served)
        await assertThrows(.overloaded) { try await late.prompt("One more") }
    }

    func testModelsAreReplacedWithinAMemoryBudget() async throws {
        let model = try await chatModel()
        let options = ServedModelOptions(context: 128)
        // The first power of two that is enough for one model is not enough for two.
        var added: (Engine, ServedModel)?
        var budget = 1024
        while added == nil {
            let engine = try Engine(options: EngineOptions(backgroundThread: true, memoryBudget: budget))
            do {
                added = (engine, try await engine.add(model, options: options))
            } catch {
                XCTAssertEqual(error.code, .memory)
            }
            budget *= 2
        }
        let (engine, old) = try XCTUnwrap(added)
        await assertThrows(.memory) { try await engine.add(model, options: options) }
        let expected = try await old.response(to: prompts[0], options: greedyRequest)
        try await engine.trim()
        XCTAssertEqual(try old.stats().cachedPrefixes, 0)
        XCTAssertEqual(try old.stats().freeKVBlocks, try old.stats().kvBlocks)
        try await old.remove(milliseconds: 1000)
        await assertThrows(.argument) { try await old.submit("One more") }
        let new = try await engine.add(model, options: options)
        let answer = try await new.response(to: prompts[0], options: greedyRequest)
        XCTAssertEqual(answer, expected)
    }

    func testEncodersOfAnEngineEmbedAsOthersDo() async throws {
        let model = try await Model(contentsOf: try smallModelURL("vectors"))
        let engine = try Engine(options: EngineOptions(threads: 2, backgroundThread: true))
        let texts = ["the sky is blue", "a", "is the sky blue", "blue sky"]
        let expected = try await TextEncoder(model: model, options: EncoderOptions(useHead: false)).embed(texts)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    let encoder = try await TextEncoder(
                        engine: engine, model: model, options: EncoderOptions(useHead: false))
                    let vectors = try await encoder.embed(texts)
                    XCTAssertEqual(vectors, expected)
                }
            }
            try await group.waitForAll()
        }
        let classes = try await Model(contentsOf: try smallModelURL("classes"))
        let head = EncoderOptions(useHead: true)
        let shared = try await TextEncoder(engine: engine, model: classes, options: head).classify(texts)
        let own = try await TextEncoder(model: classes, options: head).classify(texts)
        XCTAssertEqual(shared, own)
        let late = try await TextEncoder(engine: engine, model: model, options: EncoderOptions(useHead: false))
        try await engine.drain(milliseconds: 1000)
        await assertThrows(.overloaded) { try await late.embed(texts) }
    }

    func testGenerationsReportTokensAndReasonsAndCanBeCanceled() async throws {
        let model = try await chatModel()
        let engine = try Engine()
        let served = try await engine.add(model)
        let session = try await Session(model: model, options: greedy())
        let expected = try await collect(session.complete("Once upon"))
        let raw = try await served.submit(raw: "Once upon", options: greedyRequest)
        let answer = try await collect(raw)
        XCTAssertEqual(answer, expected)
        let usage = try await raw.usage()
        XCTAssertEqual(usage.generatedTokens, 24)
        let tokens = try await served.submit(tokens: try model.tokenize("Once upon"), options: greedyRequest)
        let continuation = try await collect(tokens)
        XCTAssertEqual(continuation.tokens, expected.tokens)
        let cached = try await tokens.usage()
        XCTAssertEqual(cached.cachedTokens, cached.promptTokens - 1)
        var choice = greedyRequest
        choice.structuredOutput = .choice(["yes", "no"])
        let chosen = try await collect(try await served.submit([Message(role: .user, content: "Yes?")], options: choice))
        XCTAssertTrue(["yes", "no"].contains(chosen.text), chosen.text)
        let chat = try await served.submit(chat: "[{\"role\":\"user\",\"content\":\"Hi\"}]", options: greedyRequest)
        _ = try await collect(chat)
        let message = try await chat.message()
        XCTAssertTrue(message.hasPrefix("{\"role\":\"assistant\""), message)

        let endless = try await served.submit(raw: "For ever")
        // The engine lives as long as its generations.
        engine.close()
        await assertThrows(.state) { try await served.submit("One more") }
        _ = try await endless.next()
        endless.cancel()
        let rest = try await collect(endless)
        XCTAssertEqual(rest.finishReason, .canceled)
        await endless.close()
        await assertThrows(.state) { try await endless.usage() }
    }

    func testOptionsAreChecked() async throws {
        let model = try await chatModel()
        let engine = try Engine()
        let served = try await engine.add(
            model,
            options: ServedModelOptions(
                context: 64, maxBatchTokens: 32, kvCacheType: .f32, kvCacheMemory: 1 << 22, maxRunning: 2, maxWaiting: 3,
                prefixCacheDirectory: try makeTemporaryFolder("prefixes").path, prefixCacheDirectorySize: 1 << 30,
                draftModel: model
            )
        )
        await assertThrows(.tooLong) { try await served.submit(raw: String(repeating: "a", count: 400)) }
        await assertThrows(.argument) { try await served.submit("Hi", options: RequestOptions(adapter: "unknown")) }
        await assertThrows(.argument) { try await served.submit("Hi", options: RequestOptions(maxTokens: -1)) }
        let options = RequestOptions(
            maxTokens: 24, sampler: .greedy, stopStrings: ["\u{1}\u{2}"], priority: .interactive, client: 7,
            cacheSalt: "salt", timeout: 600_000, speculation: .draft
        )
        let drafted = try await served.response(to: "Hi", options: options)
        var plain = greedyRequest
        plain.speculation = .off
        let expected = try await served.response(to: "Hi", options: plain)
        XCTAssertEqual(drafted, expected)
        let encoder = try await Model(contentsOf: try smallModelURL("vectors"))
        await assertThrows(.unsupported) { try await engine.add(encoder) }
    }
}

/// Consumes a response to its end.
private func collect(_ generation: Generation) async throws -> Answer {
    var answer = Answer()
    for try await chunk in generation.chunks() { answer.append(chunk) }
    return answer
}

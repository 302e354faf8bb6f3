import Foundation
import Siskin
import XCTest

// The examples of docs/ios.md, verbatim.

func printAnswer(to question: String, modelURL: URL) async throws {
    let model = try await Model(contentsOf: modelURL)
    let session = try await Session(model: model)
    for try await chunk in session.chat(question) {
        print(chunk.text, terminator: "")
    }
}

func chat(modelURL: URL) async throws -> String {
    let model = try await Model(contentsOf: modelURL)
    let options = SessionOptions(context: 4096, maxTokens: 256, sampler: Sampler(temperature: 0.2, seed: 1))
    let session = try await Session(model: model, options: options)
    try await session.add(Message(role: .system, content: "Be brief."))
    var answer = ""
    for try await chunk in session.chat("Why is the sky blue?") {
        answer += chunk.text
        if chunk.finishReason == .length { answer += "…" }
    }
    return answer
}

func closest(to query: String, in texts: [String], modelURL: URL) async throws -> String? {
    let encoder = try await TextEncoder(model: Model(contentsOf: modelURL))
    let embeddings = try await encoder.embed(texts)
    let target = try await encoder.embed(query)
    // Embeddings have unit length: the dot product is the cosine similarity.
    let similarities = embeddings.map { zip($0, target).reduce(0) { $0 + $1.0 * $1.1 } }
    return zip(texts, similarities).max { $0.1 < $1.1 }?.0
}

func translate(_ texts: [String], modelURL: URL) async throws -> [String] {
    let seq2seq = try await Seq2Seq(model: Model(contentsOf: modelURL))
    let options = Seq2SeqOptions(task: .translate(from: "en", to: "de"), beams: 4)
    return try await seq2seq.generate(texts, options: options).map { $0[0].text }
}

func transcribe(wav: Data, modelURL: URL) async throws -> [String] {
    let options = TranscriberOptions(language: "en", timestamps: true)
    let transcriber = try await Transcriber(model: Model(contentsOf: modelURL), options: options)
    return try await transcriber.transcribe(wav: wav).segments.map { "\($0.timeRange): \($0.text)" }
}

func answer(to question: String, within limit: Duration, session: Session) async throws -> String {
    let generation = Task {
        var text = ""
        do {
            for try await chunk in session.chat(question) { text += chunk.text }
        } catch let error as SiskinError where error.isCancellation {}
        return text
    }
    try await Task.sleep(for: limit)
    generation.cancel()
    return try await generation.value
}

func responses(to questions: [String], modelURL: URL) async throws -> [String] {
    let engine = try Engine()
    let model = try await engine.add(Model(contentsOf: modelURL), options: ServedModelOptions(maxRunning: 2))
    return try await withThrowingTaskGroup(of: (Int, String).self) { group in
        for (index, question) in questions.enumerated() {
            group.addTask { (index, try await model.response(to: question)) }
        }
        let responses = try await group.reduce(into: [Int: String]()) { $0[$1.0] = $1.1 }
        return questions.indices.compactMap { responses[$0] }
    }
}

func answers(to question: String, style: URL, modelURL: URL) async throws -> [String] {
    let model = try await Model(contentsOf: modelURL, options: ModelOptions(adapters: ["style": style]))
    var answers: [String] = []
    for adapter in [nil, "style"] {
        let session = try await Session(model: model, options: SessionOptions(adapter: adapter, maxTokens: 64))
        var answer = ""
        for try await chunk in session.chat(question) { answer += chunk.text }
        answers.append(answer)
    }
    return answers
}

enum Difficulty: String, Codable, CaseIterable {
    case easy, medium, hard
}

struct Recipe: Codable {
    let title: String
    let minutes: Int
    let difficulty: Difficulty
    let ingredients: [String]
    let hint: String?
}

func recipe(for dish: String, session: Session) async throws -> Recipe {
    let prompt = "Write a recipe for \(dish) as JSON: title, minutes, difficulty, ingredients, and maybe a hint."
    return try await session.response(to: prompt, as: Recipe.self)
}

func describeMemory(modelURL: URL) async -> String {
    do {
        let model = try await Model(contentsOf: modelURL)
        let options = SessionOptions(context: 4096, memoryBudget: 200_000_000)
        let session = try await Session(model: model, options: options)
        return "The KV cache takes up to \(try await session.memoryUsage().kvCache) bytes."
    } catch let error where error.code == .memory {
        return "The model needs too much memory: \(error.message)"
    } catch {
        return error.localizedDescription
    }
}

/// `import Siskin` does not shadow `Encoder` of the standard library, which this conformance needs.
private struct Note: Encodable {
    let text: String

    enum CodingKeys: CodingKey {
        case text
    }

    func encode(to encoder: Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(text, forKey: .text)
    }
}

final class DocumentationTests: XCTestCase {
    func testExamplesRun() async throws {
        let url = try smallModelURL("chat")
        try await printAnswer(to: "Why?", modelURL: url)
        let texts = ["a boat", "a garden"]
        let match = try await closest(to: "a boat", in: texts, modelURL: try smallModelURL("vectors"))
        XCTAssertEqual(match, "a boat")
        let both = try await responses(to: ["Why?", "What?"], modelURL: url)
        XCTAssertEqual(both.count, 2)
        let styled = try await answers(to: "Why?", style: try smallModelURL("adapter"), modelURL: url)
        XCTAssertNotEqual(styled[0], styled[1])
        // The model has a context of 128 tokens.
        let message = await describeMemory(modelURL: url)
        XCTAssertTrue(message.contains("128"), message)
        let session = try await Session(model: Model(contentsOf: url))
        do { _ = try await recipe(for: "pancakes", session: session) } catch let error as SiskinError {
            // The recipe of this model is longer than its context.
            XCTAssertEqual(error.code, .tooLong, "\(error)")
        }
        try await session.reset()
        _ = try await answer(to: "Why?", within: .milliseconds(10), session: session)
        _ = try await transcribe(wav: try testData("speech/english.wav"), modelURL: try realModelURL("whisper"))
    }

    func testModuleDoesNotShadowEncoder() throws {
        let json = try JSONEncoder().encode(Note(text: "a"))
        XCTAssertEqual(String(decoding: json, as: UTF8.self), #"{"text":"a"}"#)
    }
}

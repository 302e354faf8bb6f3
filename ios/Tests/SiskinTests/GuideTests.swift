import Foundation
import Siskin
import XCTest

// The examples of docs/ios.md, verbatim.

func first(_ file: URL, _ question: String) async throws {
    let model = try await Model.open(file)
    let session = try await model.session()
    for try await piece in session.answer(to: question) {
        print(piece.text, terminator: "")
    }
}

func nearest(_ file: URL, _ question: String, _ texts: [String]) async throws -> String? {
    let encoder = try await Model.open(file).encoder()
    let vectors = try await encoder.embed(texts)
    let asked = try await encoder.embed(question)
    let scores = vectors.map { vector in zip(vector, asked).reduce(0) { $0 + $1.0 * $1.1 } }
    return zip(texts, scores).max { $0.1 < $1.1 }?.0
}

func listen(_ file: URL, _ wav: Data) async throws -> [String] {
    let transcriber = try await Model.open(file).transcriber()
    return try await transcriber.transcribe(wav: wav).segments.map { "\($0.seconds): \($0.text)" }
}

func explained(_ file: URL) async -> String {
    do {
        var options = SessionOptions()
        options.context = 4096
        options.budget = 200_000_000
        let session = try await Model.open(file).session(options)
        return "holds \(try await session.memory().cache) bytes at most for keys and values"
    } catch let error where error.code == .memory {
        return "too large for this device: \(error.message)"
    } catch {
        return "\(error)"
    }
}

func stopAfter(_ seconds: Double, _ session: Session) async throws -> String {
    let writing = Task {
        var text = ""
        do {
            for try await piece in session.answer(to: "Tell me a story.") { text += piece.text }
        } catch let error as SiskinError where error.isCancellation {}
        return text
    }
    try await Task.sleep(for: .seconds(seconds))
    writing.cancel()
    return try await writing.value
}

final class GuideTests: XCTestCase {
    func testTheProgramsOfThePageRun() async throws {
        let chat = try small("chat")
        try await first(chat, "Why?")
        let texts = ["a boat", "a garden"]
        let found = try await nearest(try small("vectors"), "a boat", texts)
        XCTAssertEqual(found, "a boat")
        let why = await explained(chat)
        XCTAssertTrue(why.contains("128"), why)
        _ = try await stopAfter(0.01, try await Model.open(chat).session())
        _ = try await listen(try real("whisper"), try data("speech/english.wav"))
    }
}

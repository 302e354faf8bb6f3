import Foundation
import XCTest

@testable import Siskin

final class TranscriberTests: XCTestCase {
    private struct Expected: Decodable {
        let language: String
        let silence: Double
    }

    func testSpeechIsWhatCTranslate2Hears() async throws {
        let model = try await realModel("whisper")
        XCTAssertTrue(try model.info().abilities.contains(.listens))
        var options = TranscriberOptions()
        options.timestamps = true
        let transcriber = try await Transcriber(model, options: options)
        model.close()
        let expected = try JSONDecoder().decode([String: Expected].self, from: try data("speech/speech.json"))["english"]
        let wav = try data("speech/english.wav")
        let heard = try await transcriber.transcribe(wav: wav)
        print("Whisper: \(heard.text)")
        // The decoded tokens of tests/data/speech/speech.json.
        XCTAssertEqual(heard.text, "we walked along the beach. It was cold.")
        XCTAssertEqual(heard.language, expected?.language)
        XCTAssertEqual(heard.segments.map(\.text).joined(separator: " "), heard.text)
        XCTAssertEqual(heard.segments.count, 2)
        // Their tokens 50364, 50464 and 50514 are timestamps of 0, 2 and 3 seconds.
        for (segment, seconds) in zip(heard.segments, [0.0..<2.0, 2.0..<3.0]) {
            XCTAssertEqual(segment.seconds.lowerBound, seconds.lowerBound, accuracy: 0.021)
            XCTAssertEqual(segment.seconds.upperBound, seconds.upperBound, accuracy: 0.021)
        }
        XCTAssertEqual(Double(heard.segments[0].silence), expected?.silence ?? -1, accuracy: 0.02)

        // The same as raw samples: the data after the 44-byte header.
        let pcm = Data(wav.dropFirst(44))
        let rate = Int(wav[24]) | Int(wav[25]) << 8
        let again = try await transcriber.transcribe(pcm16: pcm, rate: rate)
        XCTAssertEqual(again.text, heard.text)
        let samples = stride(from: 0, to: pcm.count - 1, by: 2).map {
            Float(Int16(truncatingIfNeeded: Int(pcm[$0]) | Int(pcm[$0 + 1]) << 8)) / 32768
        }
        let floats = try await transcriber.transcribe(samples, rate: rate)
        XCTAssertEqual(floats.text, heard.text)

        options.language = "en"
        try await transcriber.set(options)
        let silence = try await transcriber.transcribe([Float](repeating: 0, count: 16000), rate: 16000)
        XCTAssertEqual(silence.segments, [])
        await assertFails(.corrupt) { try await transcriber.transcribe(wav: Data("RIFF".utf8)) }
        options.beams = -1
        await assertFails(.argument) { [options] in try await transcriber.set(options) }

        let hearing = Task { try await transcriber.transcribe(wav: wav) }
        try await Task.sleep(for: .milliseconds(60))
        let clock = ContinuousClock()
        let begun = clock.now
        hearing.cancel()
        await assertFails(.cancelled) { try await hearing.value }
        XCTAssertLessThan(report("a cancelled transcript", [clock.now - begun]).middle, patience)
        await transcriber.close()
        await assertFails(.state) { try await transcriber.transcribe(wav: wav) }
    }
}

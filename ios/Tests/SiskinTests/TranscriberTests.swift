import Foundation
import XCTest

@testable import Siskin

/// Collects segments from the transcriber's thread.
private final class Segments: @unchecked Sendable {
    private let lock = NSLock()
    private var list: [Transcript.Segment] = []
    var all: [Transcript.Segment] { lock.withLock { list } }

    @Sendable func append(_ segment: Transcript.Segment) { lock.withLock { list.append(segment) } }
}

final class TranscriberTests: XCTestCase {
    private struct Reference: Decodable {
        let language: String
        let silence: Double
    }

    func testTranscriptMatchesCTranslate2() async throws {
        let model = try await realModel("whisper")
        XCTAssertTrue(try model.info().capabilities.contains(.transcribe))
        var options = TranscriberOptions(timestamps: true)
        let transcriber = try await Transcriber(model: model, options: options)
        model.close()
        let references = try JSONDecoder().decode([String: Reference].self, from: try testData("speech/speech.json"))
        let reference = references["english"]
        let wav = try testData("speech/english.wav")
        let segments = Segments()
        let transcript = try await transcriber.transcribe(wav: wav, onSegment: segments.append)
        XCTAssertEqual(segments.all, transcript.segments)
        print("Whisper: \(transcript.text)")
        // The decoded tokens of tests/data/speech/speech.json.
        XCTAssertEqual(transcript.text, "we walked along the beach. It was cold.")
        XCTAssertEqual(transcript.language, reference?.language)
        XCTAssertEqual(transcript.segments.map(\.text).joined(separator: " "), transcript.text)
        XCTAssertEqual(transcript.segments.count, 2)
        // Its tokens 50364, 50464 and 50514 are timestamps of 0, 2 and 3 seconds.
        for (segment, expected) in zip(transcript.segments, [0.0..<2.0, 2.0..<3.0]) {
            XCTAssertEqual(segment.timeRange.lowerBound, expected.lowerBound, accuracy: 0.021)
            XCTAssertEqual(segment.timeRange.upperBound, expected.upperBound, accuracy: 0.021)
        }
        XCTAssertEqual(Double(transcript.segments[0].noSpeechProbability), reference?.silence ?? -1, accuracy: 0.02)

        // The same as raw samples: the data after the 44-byte header.
        let pcm = Data(wav.dropFirst(44))
        let rate = Double(Int(wav[24]) | Int(wav[25]) << 8)
        let fromPCM = try await transcriber.transcribe(pcm16: pcm, sampleRate: rate)
        XCTAssertEqual(fromPCM.text, transcript.text)
        let samples = stride(from: 0, to: pcm.count - 1, by: 2).map {
            Float(Int16(truncatingIfNeeded: Int(pcm[$0]) | Int(pcm[$0 + 1]) << 8)) / 32768
        }
        let fromSamples = try await transcriber.transcribe(samples, sampleRate: rate)
        XCTAssertEqual(fromSamples.text, transcript.text)

        options.language = "en"
        try await transcriber.setOptions(options)
        let silence = try await transcriber.transcribe([Float](repeating: 0, count: 16000))
        XCTAssertEqual(silence.segments, [])
        await assertThrows(.corrupt) { try await transcriber.transcribe(wav: Data("RIFF".utf8)) }
        for rate in [16000.5, -1, .nan] {
            await assertThrows(.argument) { try await transcriber.transcribe([0], sampleRate: rate) }
        }
        await assertThrows(.argument) { try await transcriber.setOptions(TranscriberOptions(beams: -1)) }

        let transcription = Task { try await transcriber.transcribe(wav: wav) }
        try await Task.sleep(for: .milliseconds(60))
        let clock = ContinuousClock()
        let start = clock.now
        transcription.cancel()
        await assertThrows(.canceled) { try await transcription.value }
        XCTAssertLessThan(report("a canceled transcription", [clock.now - start]).median, maxCancellationLatency)
        await transcriber.close()
        await assertThrows(.state) { try await transcriber.transcribe(wav: wav) }
    }
}

import CSiskin
import Foundation

/// Options of a transcriber. `nil` means the default.
public struct TranscriberOptions: Sendable, Hashable {
    /// Translate to English.
    public var translate: Bool?
    /// Split the text into segments with timestamps.
    public var timestamps: Bool?
    /// The number of beams of beam search.
    public var beams: Int?
    /// Condition on the text of the previous windows.
    public var previous: Bool?
    /// The no-speech probability from which a window is treated as silent, unless its text is likely.
    public var silence: Double?
    /// The maximum number of tokens of a window.
    public var maxTokens: Int?
    /// The spoken language, such as `en`; empty: detect it.
    public var language = ""
    /// A prompt: names and words that are likely to occur in the audio.
    public var prompt = ""

    /// The defaults.
    public init() {}

    private var numbers: [(Int32, Double?)] {
        [
            (SISKIN_TRANSCRIBE_TRANSLATE, translate.map { $0 ? 1 : 0 }),
            (SISKIN_TRANSCRIBE_TIMESTAMPS, timestamps.map { $0 ? 1 : 0 }),
            (SISKIN_TRANSCRIBE_BEAMS, beams.map(Double.init)),
            (SISKIN_TRANSCRIBE_PREVIOUS, previous.map { $0 ? 1 : 0 }),
            (SISKIN_TRANSCRIBE_SILENCE, silence),
            (SISKIN_TRANSCRIBE_MAX_TOKENS, maxTokens.map(Double.init)),
        ]
    }

    func tell(_ transcriber: OpaquePointer) throws(SiskinError) {
        for case (let option, let value?) in numbers {
            try check(siskin_transcriber_set(transcriber, UInt32(option), value))
        }
        try check(withText(language) { siskin_transcriber_set_language(transcriber, $0, $1) })
        try check(withText(prompt) { siskin_transcriber_set_prompt(transcriber, $0, $1) })
    }
}

/// A transcript of audio.
public struct Transcript: Sendable, Hashable {
    /// The whole text.
    public let text: String
    /// The spoken language, such as `en`; `nil` if unknown.
    public let language: String?
    /// Its segments, in order of time.
    public let segments: [Segment]
}

/// A segment of the audio, and its transcript.
public struct Segment: Sendable, Hashable {
    /// Its text.
    public let text: String
    /// Its time range, in seconds.
    public let seconds: Range<Double>
    /// The mean log-probability of the tokens of its window.
    public let logProbability: Float
    /// The probability that its window contains no speech.
    public let silence: Float

    init(_ segment: siskin_segment) {
        text = Siskin.text(segment.text, segment.length)
        seconds = segment.start..<max(segment.start, segment.end)
        logProbability = segment.log_probability
        silence = segment.silence
    }
}

/// Transcribes speech. Calls run one after the other, on a thread of the transcriber; canceling the task of a call
/// stops it.
public actor Transcriber {
    private let worker: Worker
    private let queue = Queue("transcriber")

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Creates a transcriber, for speech-to-text models.
    public init(_ model: Model, options: TranscriberOptions = TranscriberOptions()) async throws(SiskinError) {
        worker = try await aside { _ throws(SiskinError) in
            let transcriber = try model.owner.lend { model throws(SiskinError) in
                try made { siskin_transcriber_new(model, &$0) }
            }
            let owner = Owner(transcriber, "transcriber", free: { siskin_transcriber_free($0) })
            try owner.lend { transcriber throws(SiskinError) in try options.tell(transcriber) }
            return try Worker(owner, stopper: { siskin_transcriber_stopper($0, &$1) })
        }
    }

    /// Changes the options of later calls. Options that are `nil` remain unchanged.
    public func set(_ options: TranscriberOptions) throws(SiskinError) {
        try worker.owner.lend { transcriber throws(SiskinError) in try options.tell(transcriber) }
    }

    /// Stops the running call within milliseconds.
    public nonisolated func stop() { worker.stop() }

    /// Stops the running call, waits for it, and releases the transcriber; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        await settle()
    }

    private func settle() {}

    /// Transcribes one channel of audio at `rate` samples per second, with full scale from -1 to 1.
    public func transcribe(_ samples: [Float], rate: Int = 16000) async throws(SiskinError) -> Transcript {
        let rate: UInt32 = try number(rate, "rate")
        return try await transcribed { siskin_transcriber_hear($0, samples, samples.count, rate) }
    }

    /// Transcribes little-endian 16-bit samples with `channels` interleaved channels.
    public func transcribe(pcm16 bytes: Data, rate: Int, channels: Int = 1) async throws(SiskinError) -> Transcript {
        let rate: UInt32 = try number(rate, "rate")
        let channels: UInt16 = try number(channels, "channels")
        return try await transcribed { transcriber in
            withBytes(bytes) { siskin_transcriber_hear_pcm16(transcriber, $0, $1, rate, channels) }
        }
    }

    /// Transcribes a WAVE file.
    public func transcribe(wav bytes: Data) async throws(SiskinError) -> Transcript {
        try await transcribed { transcriber in withBytes(bytes) { siskin_transcriber_hear_wav(transcriber, $0, $1) } }
    }

    private func transcribed(_ read: @Sendable (OpaquePointer) -> OpaquePointer?) async throws(SiskinError) -> Transcript {
        try await worker.run { transcriber throws(SiskinError) in
            try check(read(transcriber))
            var start: UnsafePointer<CChar>?
            var length = 0
            var languageStart: UnsafePointer<CChar>?
            var languageLength = 0
            try check(siskin_transcriber_text(transcriber, &start, &length, &languageStart, &languageLength))
            var count = 0
            try check(siskin_transcriber_count(transcriber, &count))
            var segments: [Segment] = []
            for index in 0..<count {
                let segment = try filled(siskin_segment(), \.struct_size) {
                    siskin_transcriber_segment(transcriber, index, &$0)
                }
                segments.append(Segment(segment))
            }
            let language = languageLength == 0 ? nil : Siskin.text(languageStart, languageLength)
            return Transcript(text: Siskin.text(start, length), language: language, segments: segments)
        }
    }
}

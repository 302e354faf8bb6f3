import CSiskin
import Foundation

/// How speech is written down. What is `nil` is as usual.
public struct TranscriberOptions: Sendable, Hashable {
    /// Write English, whatever is spoken.
    public var translate: Bool?
    /// Cut the text into segments with times.
    public var timestamps: Bool?
    /// How many texts go on at the same time, of which the likeliest is taken.
    public var beams: Int?
    /// Let the model see the text of the windows before.
    public var previous: Bool?
    /// The probability from which a window is silent, unless its text is likely.
    public var silence: Double?
    /// The most tokens of a window.
    public var maxTokens: Int?
    /// The language that is spoken, such as `en`; empty: what the model hears.
    public var language = ""
    /// What might have been said before: names and words that the sound may hold.
    public var prompt = ""

    /// The usual way.
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

/// What is said in a sound.
public struct Transcript: Sendable, Hashable {
    /// The whole text.
    public let text: String
    /// The language that is spoken, such as `en`; `nil` where that is not known.
    public let language: String?
    /// Its parts, in their order.
    public let segments: [Segment]
}

/// A part of a sound, and what is said in it.
public struct Segment: Sendable, Hashable {
    /// What is said.
    public let text: String
    /// Where it is, in seconds.
    public let seconds: Range<Double>
    /// The mean logarithm of the probabilities of its window's tokens.
    public let logProbability: Float
    /// The probability that its window is silent.
    public let silence: Float

    init(_ segment: siskin_segment) {
        text = Siskin.text(segment.text, segment.length)
        seconds = segment.start..<max(segment.start, segment.end)
        logProbability = segment.log_probability
        silence = segment.silence
    }
}

/// Writes down what is said. Calls come one after the other, on a thread of the transcriber's own; the cancellation of a
/// call's task stops it.
public actor Transcriber {
    private let worker: Worker
    private let queue = Queue("transcriber")

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Opens a transcriber, for models that listen.
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

    /// Hears with other options from now on. What is `nil` in them stays as it was.
    public func set(_ options: TranscriberOptions) throws(SiskinError) {
        try worker.owner.lend { transcriber throws(SiskinError) in try options.tell(transcriber) }
    }

    /// Stops the running call within milliseconds.
    public nonisolated func stop() { worker.stop() }

    /// Stops the running call, waits for it, and lets go of the transcriber; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        await settle()
    }

    private func settle() {}

    /// Writes down one channel of sound with `rate` samples in a second, full scale being -1 to 1.
    public func transcribe(_ samples: [Float], rate: Int = 16000) async throws(SiskinError) -> Transcript {
        let rate: UInt32 = try number(rate, "rate")
        return try await transcribed { siskin_transcriber_hear($0, samples, samples.count, rate) }
    }

    /// The same of little-endian 16-bit samples, `channels` of them for each moment.
    public func transcribe(pcm16 bytes: Data, rate: Int, channels: Int = 1) async throws(SiskinError) -> Transcript {
        let rate: UInt32 = try number(rate, "rate")
        let channels: UInt16 = try number(channels, "channels")
        return try await transcribed { transcriber in
            withBytes(bytes) { siskin_transcriber_hear_pcm16(transcriber, $0, $1, rate, channels) }
        }
    }

    /// The same of a WAVE file.
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

import CSiskin
import Foundation

/// A transcript of audio.
public struct Transcript: Sendable, Hashable {
    /// The whole text.
    public let text: String
    /// The spoken language, such as `en`; `nil` if unknown.
    public let language: String?
    /// The segments, in chronological order.
    public let segments: [Segment]

    /// A segment of the audio, and its transcript.
    public struct Segment: Sendable, Hashable {
        /// The text.
        public let text: String
        /// The time range in the audio, in seconds.
        public let timeRange: Range<TimeInterval>
        /// The mean log-probability of the tokens in the segment's window.
        public let averageLogProbability: Float
        /// The probability that the window contains no speech.
        public let noSpeechProbability: Float

        init(_ segment: siskin_segment) {
            text = string(segment.text, segment.length)
            timeRange = segment.start..<max(segment.start, segment.end)
            averageLogProbability = segment.log_probability
            noSpeechProbability = segment.no_speech_probability
        }
    }
}

/// Transcribes speech. Calls run serially on the transcriber's own thread; canceling the task of a call cancels the
/// call.
public actor Transcriber {
    private let runner: CallRunner
    private let executor = SerialQueueExecutor("transcriber")

    /// The executor of the transcriber, which has a thread of its own.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates a transcriber, for speech-to-text models.
    public init(model: Model, options: TranscriberOptions = TranscriberOptions()) async throws(SiskinError) {
        runner = try await runInBackground { _ throws(SiskinError) in
            let transcriber = try model.handle.use { model throws(SiskinError) in
                try makeHandle { siskin_transcriber_new(model, &$0) }
            }
            let handle = NativeHandle(transcriber, "transcriber", free: { siskin_transcriber_free($0) })
            try handle.use { transcriber throws(SiskinError) in try options.copy(to: transcriber) }
            return try CallRunner(handle, makeCancelHandle: { siskin_transcriber_cancel_handle($0, &$1) })
        }
    }

    /// Replaces the options, for later calls.
    public func setOptions(_ options: TranscriberOptions) throws(SiskinError) {
        try runner.handle.use { transcriber throws(SiskinError) in
            try check(siskin_transcriber_reset_options(transcriber))
            try options.copy(to: transcriber)
        }
    }

    /// Cancels the running call and all queued calls within milliseconds.
    public nonisolated func cancel() { runner.cancel() }

    /// Cancels the running call, waits for it, and closes the transcriber; later calls throw. May be called repeatedly.
    public nonisolated func close() async {
        runner.close()
        await waitForRunningCall()
    }

    private func waitForRunningCall() {}

    /// Transcribes one channel of audio, with full scale from -1 to 1. The sample rate is a whole number of hertz.
    ///
    /// - Parameter onSegment: Receives each segment once its window of audio was transcribed, on the transcriber's thread. It must not
    ///   use the library.
    public func transcribe(
        _ samples: [Float],
        sampleRate: Double = 16000,
        onSegment: (@Sendable (Transcript.Segment) -> Void)? = nil
    ) async throws(SiskinError) -> Transcript {
        let rate = try nativeSampleRate(sampleRate)
        return try await transcript(onSegment) { siskin_transcriber_transcribe($0, samples, samples.count, rate) }
    }

    /// Transcribes little-endian 16-bit samples with interleaved channels. The sample rate is a whole number of hertz.
    public func transcribe(
        pcm16 data: Data,
        sampleRate: Double,
        channels: Int = 1,
        onSegment: (@Sendable (Transcript.Segment) -> Void)? = nil
    ) async throws(SiskinError) -> Transcript {
        let rate = try nativeSampleRate(sampleRate)
        let channels: UInt16 = try native(channels, "channels")
        return try await transcript(onSegment) { transcriber in
            withBytes(data) { siskin_transcriber_transcribe_pcm16(transcriber, $0, $1, rate, channels) }
        }
    }

    /// Transcribes the contents of a WAV file.
    public func transcribe(
        wav data: Data,
        onSegment: (@Sendable (Transcript.Segment) -> Void)? = nil
    ) async throws(SiskinError) -> Transcript {
        try await transcript(onSegment) { transcriber in
            withBytes(data) { siskin_transcriber_transcribe_wav(transcriber, $0, $1) }
        }
    }

    private func nativeSampleRate(_ rate: Double) throws(SiskinError) -> UInt32 {
        guard let converted = UInt32(exactly: rate) else {
            let message = "\(rate) Hz is not supported; pass a whole number"
            throw SiskinError(.argument, location: "sampleRate", message: message)
        }
        return converted
    }

    private func transcript(
        _ onSegment: (@Sendable (Transcript.Segment) -> Void)?,
        _ transcribe: @Sendable (OpaquePointer) -> OpaquePointer?
    ) async throws(SiskinError) -> Transcript {
        try await runner.run { transcriber throws(SiskinError) in
            try setSegmentHandler(transcriber, onSegment)
            // Releases what the closure captures.
            defer { try? setSegmentHandler(transcriber, nil) }
            try check(transcribe(transcriber))
            var start: UnsafePointer<CChar>?
            var length = 0
            var languageStart: UnsafePointer<CChar>?
            var languageLength = 0
            try check(siskin_transcriber_text(transcriber, &start, &length, &languageStart, &languageLength))
            var count = 0
            try check(siskin_transcriber_segment_count(transcriber, &count))
            var segments: [Transcript.Segment] = []
            for index in 0..<count {
                let segment = try readStruct(siskin_segment(), \.struct_size) {
                    siskin_transcriber_segment(transcriber, index, &$0)
                }
                segments.append(Transcript.Segment(segment))
            }
            let language = languageLength == 0 ? nil : string(languageStart, languageLength)
            return Transcript(text: string(start, length), language: language, segments: segments)
        }
    }
}

private final class SegmentHandler: Sendable {
    let call: @Sendable (Transcript.Segment) -> Void
    init(_ call: @escaping @Sendable (Transcript.Segment) -> Void) { self.call = call }
}

/// Replaces the handler of segments of a transcriber.
private func setSegmentHandler(
    _ transcriber: OpaquePointer,
    _ onSegment: (@Sendable (Transcript.Segment) -> Void)?
) throws(SiskinError) {
    guard let onSegment else {
        return try check(siskin_transcriber_set_segment_function(transcriber, nil, nil, nil))
    }
    let function: siskin_segment_function = { user, segment in
        guard let user, let segment else { return true }
        Unmanaged<SegmentHandler>.fromOpaque(user).takeUnretainedValue().call(Transcript.Segment(segment.pointee))
        return true
    }
    let user = Unmanaged.passRetained(SegmentHandler(onSegment)).toOpaque()
    try check(siskin_transcriber_set_segment_function(transcriber, function, user) { user in
        if let user { Unmanaged<SegmentHandler>.fromOpaque(user).release() }
    })
}

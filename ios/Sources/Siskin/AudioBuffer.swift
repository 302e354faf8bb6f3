#if canImport(AVFAudio)
import AVFAudio

extension AVAudioPCMBuffer {
    /// The samples of the buffer as one channel, the mean of all channels, for `Transcriber.transcribe(_:sampleRate:)`;
    /// `nil` unless they are 32-bit floating-point or 16-bit integer samples.
    public var monoSamples: [Float]? {
        if let channels = floatChannelData { return mean(of: channels) { $0 } }
        if let channels = int16ChannelData { return mean(of: channels) { Float($0) / 32768 } }
        return nil
    }

    private func mean<T>(
        of channels: UnsafePointer<UnsafeMutablePointer<T>>,
        _ convert: (T) -> Float
    ) -> [Float] {
        let channelCount = Int(format.channelCount)
        return (0..<Int(frameLength)).map { frame in
            let sum = (0..<channelCount).reduce(Float(0)) { $0 + convert(channels[$1][frame * stride]) }
            return sum / Float(channelCount)
        }
    }
}
#endif

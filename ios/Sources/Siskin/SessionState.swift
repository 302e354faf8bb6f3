import CSiskin
import Foundation

/// Session statistics.
public struct SessionStats: Sendable, Hashable {
    /// The number of tokens in the KV cache.
    public let position: Int
    /// The number of prompt tokens that were processed, excluding those already in the KV cache.
    public let promptTokens: Int
    /// The time spent in prefill.
    public let promptTime: Duration
    /// The number of generated tokens.
    public let generatedTokens: Int
    /// The time spent generating them.
    public let generationTime: Duration

    init(_ stats: siskin_stats) {
        position = Int(clamping: stats.position)
        promptTokens = Int(clamping: stats.prompt_tokens)
        promptTime = .nanoseconds(Int64(clamping: stats.prompt_nanoseconds))
        generatedTokens = Int(clamping: stats.generated_tokens)
        generationTime = .nanoseconds(Int64(clamping: stats.generation_nanoseconds))
    }
}

/// Session state and pausing.
extension Session {
    /// Returns the session statistics.
    public func stats() throws(SiskinError) -> SessionStats {
        try runner.handle.use { session throws(SiskinError) in
            SessionStats(try readStruct(siskin_stats(), \.struct_size) { siskin_session_stats(session, &$0) })
        }
    }

    /// Returns the memory that the session uses.
    public func memoryUsage() throws(SiskinError) -> MemoryUsage {
        try runner.handle.use { session throws(SiskinError) in
            MemoryUsage(try readStruct(siskin_memory_usage(), \.struct_size) { siskin_session_memory(session, &$0) })
        }
    }

    /// Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token.
    public func logits() throws(SiskinError) -> [Float] {
        try runner.handle.use { session throws(SiskinError) in
            var logits: UnsafePointer<Float>?
            var count = 0
            try check(siskin_session_logits(session, &logits, &count))
            return array(logits, count)
        }
    }

    /// Removes all messages and tokens. The current response is dropped.
    public func reset() throws(SiskinError) {
        try runner.handle.use { session throws(SiskinError) in try check(siskin_session_reset(session)) }
    }

    /// Truncates the session to its first `position` tokens, and removes all messages: generation continues after those
    /// tokens. The current response is dropped.
    public func rewind(to position: Int) throws(SiskinError) {
        let position: Int = try native(position, "position")
        try runner.handle.use { session throws(SiskinError) in try check(siskin_session_rewind(session, position)) }
    }

    /// Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
    /// conversation in plain text; protect it accordingly. The current response continues afterward; the saved copy
    /// stops at this point.
    public func save(to url: URL) throws(SiskinError) {
        let path = try filePath(url)
        try runner.handle.use { session throws(SiskinError) in
            try check(withUTF8(path) { siskin_session_save(session, $0, $1) })
        }
    }

    /// Returns the state of the session, in the format written by `save(to:)`.
    public func savedState() throws(SiskinError) -> Data {
        try runner.handle.use { session throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_session_save_to_memory(session, &bytes, &length))
            return bytes.map { Data(bytes: $0, count: length) } ?? Data()
        }
    }

    /// Replaces the state of the session with one that `save(to:)` wrote. It must come from the same model, and from a
    /// session with the same KV cache dtype and window. Generation continues exactly as it would have in the original
    /// session.
    public func restore(from url: URL) throws(SiskinError) {
        let path = try filePath(url)
        try runner.handle.use { session throws(SiskinError) in
            try check(withUTF8(path) { siskin_session_restore(session, $0, $1) })
        }
    }

    /// Replaces the state of the session with one that `savedState()` returned.
    public func restore(from state: Data) throws(SiskinError) {
        try runner.handle.use { session throws(SiskinError) in
            try check(withBytes(state) { siskin_session_restore_from_memory(session, $0, $1) })
        }
    }

    /// Returns memory to the system; it is committed again on demand.
    public func trim(_ level: TrimLevel = .unused) throws(SiskinError) {
        try runner.handle.use { session throws(SiskinError) in try check(siskin_session_trim(session, level.native)) }
    }

    /// Pauses the session, for when an app goes to the background: a running call ends within milliseconds with
    /// `SiskinError.Code.canceled`, and later calls fail with `SiskinError.Code.paused`. Nothing is lost: streams
    /// wait, and continue once the session is resumed.
    public nonisolated func pause() throws(SiskinError) {
        try pauseGate.pause { () throws(SiskinError) in
            try runner.handle.use { session throws(SiskinError) in try check(siskin_session_pause(session)) }
        }
    }

    /// Resumes the session.
    public nonisolated func resume() throws(SiskinError) {
        try pauseGate.resume { () throws(SiskinError) in
            try runner.handle.use { session throws(SiskinError) in try check(siskin_session_resume(session)) }
            runner.repeatCancel()
        }
    }
}

import CSiskin
import Foundation

/// Counters of a session.
public struct Stats: Sendable, Hashable {
    /// Tokens in the KV cache.
    public let position: Int
    /// Prompt tokens that were computed; tokens that were already in the KV cache are not counted.
    public let promptTokens: Int
    /// The time spent in prefill.
    public let promptTime: Duration
    /// Tokens that were generated.
    public let tokens: Int
    /// The time spent in prefill.
    public let time: Duration

    init(_ stats: siskin_stats) {
        position = Int(clamping: stats.position)
        promptTokens = Int(clamping: stats.prompt_tokens)
        promptTime = .nanoseconds(Int64(clamping: stats.prompt_nanoseconds))
        tokens = Int(clamping: stats.tokens)
        time = .nanoseconds(Int64(clamping: stats.nanoseconds))
    }
}

/// How much memory is returned to the system.
public enum Trim: Sendable, Hashable {
    /// Memory that is not in use.
    case unused
    /// All memory, including messages and tokens: save the session before.
    case all
}

/// State of sessions, and suspension.
extension Session {
    /// Returns the counters of the session.
    public func stats() throws(SiskinError) -> Stats {
        try worker.owner.lend { session throws(SiskinError) in
            Stats(try filled(siskin_stats(), \.struct_size) { siskin_session_stats(session, &$0) })
        }
    }

    /// Returns the memory that the session uses.
    public func memory() throws(SiskinError) -> Memory {
        try worker.owner.lend { session throws(SiskinError) in
            Memory(try filled(siskin_memory(), \.struct_size) { siskin_session_memory(session, &$0) })
        }
    }

    /// Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token.
    public func logits() throws(SiskinError) -> [Float] {
        try worker.owner.lend { session throws(SiskinError) in
            var logits: UnsafePointer<Float>?
            var count = 0
            try check(siskin_session_logits(session, &logits, &count))
            return values(logits, count)
        }
    }

    /// Clears the session: all messages and tokens. The current answer is dropped.
    public func forget() throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_forget(session)) }
    }

    /// Truncates the session to the first `position` tokens, and drops all messages: generation continues after those
    /// tokens. The current answer is dropped.
    public func rewind(to position: Int) throws(SiskinError) {
        let position: Int = try number(position, "position")
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_rewind(session, position)) }
    }

    /// Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
    /// conversation in readable form: protect it. An unfinished answer continues afterwards; in the file it ends here.
    public func save(to file: URL) throws(SiskinError) {
        let path = try path(file)
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(path) { siskin_session_save(session, $0, $1) })
        }
    }

    /// Returns the saved state as data.
    public func saved() throws(SiskinError) -> Data {
        try worker.owner.lend { session throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_session_save_memory(session, &bytes, &length))
            return bytes.map { Data(bytes: $0, count: length) } ?? Data()
        }
    }

    /// Restores what `save(to:)` wrote, replacing the state of the session. It must come from the same model, and from
    /// a session with the same cache type and window. Generation continues exactly as it would have there.
    public func restore(from file: URL) throws(SiskinError) {
        let path = try path(file)
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(path) { siskin_session_restore(session, $0, $1) })
        }
    }

    /// Restores what `saved()` returned.
    public func restore(from data: Data) throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in
            try check(withBytes(data) { siskin_session_restore_memory(session, $0, $1) })
        }
    }

    /// Returns memory to the system; it is committed again on demand.
    public func trim(_ level: Trim = .unused) throws(SiskinError) {
        let level = UInt32(level == .all ? SISKIN_TRIM_ALL : SISKIN_TRIM_UNUSED)
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_trim(session, level)) }
    }

    /// Suspends the session, for when an app goes to the background: a running call ends within milliseconds with
    /// `SiskinError.Code.cancelled`, and later calls are rejected with `suspended`. Nothing is lost: streams of answers
    /// wait, and continue once it is resumed.
    public nonisolated func suspend() throws(SiskinError) {
        try suspension.begin { () throws(SiskinError) in
            try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_suspend(session)) }
        }
    }

    /// Resumes the session.
    public nonisolated func resume() throws(SiskinError) {
        try suspension.end { () throws(SiskinError) in
            try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_resume(session)) }
            worker.stopAgain()
        }
    }
}

import CSiskin
import Foundation

/// What a session has done so far.
public struct Stats: Sendable, Hashable {
    /// Tokens that it holds.
    public let position: Int
    /// Tokens of prompts that were read; those that were known already are not counted.
    public let promptTokens: Int
    /// The time that took.
    public let promptTime: Duration
    /// Tokens that were written.
    public let tokens: Int
    /// The time that took.
    public let time: Duration

    init(_ stats: siskin_stats) {
        position = Int(clamping: stats.position)
        promptTokens = Int(clamping: stats.prompt_tokens)
        promptTime = .nanoseconds(Int64(clamping: stats.prompt_nanoseconds))
        tokens = Int(clamping: stats.tokens)
        time = .nanoseconds(Int64(clamping: stats.nanoseconds))
    }
}

/// How much memory is given back.
public enum Trim: Sendable, Hashable {
    /// What holds nothing.
    case unused
    /// All: what was said and read is forgotten. Save it before.
    case all
}

/// What sessions hold, and how they hold still.
extension Session {
    /// What the session has done so far.
    public func stats() throws(SiskinError) -> Stats {
        try worker.owner.lend { session throws(SiskinError) in
            Stats(try filled(siskin_stats(), \.struct_size) { siskin_session_stats(session, &$0) })
        }
    }

    /// What the session holds in memory.
    public func memory() throws(SiskinError) -> Memory {
        try worker.owner.lend { session throws(SiskinError) in
            Memory(try filled(siskin_memory(), \.struct_size) { siskin_session_memory(session, &$0) })
        }
    }

    /// The scores of all tokens to come next, as the model gives them; zeros before the first token.
    public func logits() throws(SiskinError) -> [Float] {
        try worker.owner.lend { session throws(SiskinError) in
            var logits: UnsafePointer<Float>?
            var count = 0
            try check(siskin_session_logits(session, &logits, &count))
            return values(logits, count)
        }
    }

    /// Forgets all that was said and read. The answer that is being written is dropped.
    public func forget() throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_forget(session)) }
    }

    /// Forgets all but the first `position` tokens, and all messages: what follows goes on from those tokens. The answer
    /// that is being written is dropped.
    public func rewind(to position: Int) throws(SiskinError) {
        let position: Int = try number(position, "position")
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_rewind(session, position)) }
    }

    /// Writes what the session holds to a file, which appears when it is complete: who has it can read what was said. An
    /// answer that is being written goes on afterwards; in the file it ends here.
    public func save(to file: URL) throws(SiskinError) {
        let path = try path(file)
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(path) { siskin_session_save(session, $0, $1) })
        }
    }

    /// The same as data.
    public func saved() throws(SiskinError) -> Data {
        try worker.owner.lend { session throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_session_save_memory(session, &bytes, &length))
            return bytes.map { Data(bytes: $0, count: length) } ?? Data()
        }
    }

    /// Goes on from what `save(to:)` wrote, in place of what was said here. It must be of the same model, and of a
    /// session with the same type of cache and window. What follows is what would have followed there.
    public func restore(from file: URL) throws(SiskinError) {
        let path = try path(file)
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(path) { siskin_session_restore(session, $0, $1) })
        }
    }

    /// The same from what `saved()` gave.
    public func restore(from data: Data) throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in
            try check(withBytes(data) { siskin_session_restore_memory(session, $0, $1) })
        }
    }

    /// Gives memory back to the system, which gives it again as it is needed.
    public func trim(_ level: Trim = .unused) throws(SiskinError) {
        let level = UInt32(level == .all ? SISKIN_TRIM_ALL : SISKIN_TRIM_UNUSED)
        try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_trim(session, level)) }
    }

    /// Holds the session, for when an app goes to the background: a running call ends within milliseconds with
    /// `SiskinError.Code.cancelled`, and those after it are refused with `suspended`. Nothing is lost: streams of
    /// answers wait, and go on once it is resumed.
    public nonisolated func suspend() throws(SiskinError) {
        try suspension.begin { () throws(SiskinError) in
            try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_suspend(session)) }
        }
    }

    /// Lets the session work again.
    public nonisolated func resume() throws(SiskinError) {
        try suspension.end { () throws(SiskinError) in
            try worker.owner.lend { session throws(SiskinError) in try check(siskin_session_resume(session)) }
            worker.stopAgain()
        }
    }
}

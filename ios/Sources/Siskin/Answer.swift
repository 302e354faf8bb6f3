import Foundation

/// Answers as streams. The prompt is read when the first piece is asked for, and each piece is computed when it is asked
/// for: nothing is computed that nobody takes. Who stops taking leaves the answer where it is, and `next()` or another
/// prompt goes on from there. The cancellation of the task that takes stops the running call.
///
/// While the session is suspended, its streams wait.
extension Session {
    /// Says a text as the user, and streams the answer: `prompt(_:)`, and `next()` to the end.
    public nonisolated func answer(to text: String) -> AsyncThrowingStream<Piece, any Error> { stream(.text(text)) }

    /// Answers a conversation, which takes the place of what was said before.
    public nonisolated func answer(to messages: [Message]) -> AsyncThrowingStream<Piece, any Error> {
        stream(.messages(messages))
    }

    /// Goes on from a text as it is, without the chat template.
    public nonisolated func answer(raw text: String, special: Bool = false) -> AsyncThrowingStream<Piece, any Error> {
        stream(.raw(text, special: special))
    }

    /// Goes on from tokens.
    public nonisolated func answer(tokens: [UInt32]) -> AsyncThrowingStream<Piece, any Error> { stream(.tokens(tokens)) }

    private nonisolated func stream(_ prompt: Prompt) -> AsyncThrowingStream<Piece, any Error> {
        let answer = Answer(prompt)
        return AsyncThrowingStream { try await self.piece(of: answer, self.worker.announce()) }
    }

    private func piece(of answer: Answer, _ call: UInt64) async throws(SiskinError) -> Piece? {
        if answer.number == nil {
            let isWhole = readsWhole(answer.prompt)
            answer.number = try await held(call, isWhole) { session throws(SiskinError) in
                try await session.begin(answer.prompt, call)
            }
        }
        return try await held(call, true) { session throws(SiskinError) in
            guard let number = answer.number, session.isLast(number) else {
                throw SiskinError(.state, place: "session", message: "was given another prompt; take that one's answer")
            }
            return try await session.piece(call)
        }
    }

    /// Whether a prompt says all that is read, and means the same when it is given again.
    private func readsWhole(_ prompt: Prompt) -> Bool {
        switch prompt {
        case .messages: true
        case .text: !abilities.isDisjoint(with: [.chats, .reads])
        case .raw: abilities.contains(.reads)
        case .tokens: false
        }
    }

    /// Makes a call that was announced; where the session is suspended before or meanwhile, waits, and makes it again.
    /// One that means something else where a part of it was read, and that is not `isSame` when made again, then ends.
    /// So does one that somebody stopped.
    private func held<T: Sendable>(
        _ call: UInt64,
        _ isSame: Bool,
        _ make: (isolated Session) async throws(SiskinError) -> T
    ) async throws(SiskinError) -> T {
        while true {
            let before = try stats().position
            do {
                return try await make(self)
            } catch {
                // What neither its task nor a stop has ended, a suspension has.
                guard [.suspended, .cancelled].contains(error.code), !Task.isCancelled else { throw error }
                if error.code == .cancelled, worker.isStopped(call) { throw error }
                // Calls that are refused have not begun.
                if error.code == .cancelled, !isSame, try stats().position != before { throw error }
                await suspension.wait { worker.isStopped(call) }
            }
        }
    }
}

/// An answer that is taken piece by piece. Only its session's jobs touch it.
private final class Answer: @unchecked Sendable {
    let prompt: Prompt
    var number: Int?
    init(_ prompt: Prompt) { self.prompt = prompt }
}

/// Whether a session is held, and who waits until it is not.
final class Suspension: @unchecked Sendable {
    private let lock = NSLock()
    // Only touched by who holds the lock.
    private var isHeld = false
    private var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    private var count: UInt64 = 0

    /// Holds the session: `hold` tells the library.
    func begin(_ hold: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try hold()
        isHeld = true
    }

    /// Lets all go on, once `release` has told the library.
    func end(_ release: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try release()
        letGo()
    }

    /// Lets all go on: the session is closed, and nobody can hold it any more.
    func close() {
        lock.lock()
        defer { lock.unlock() }
        letGo()
    }

    /// Has all who wait look again.
    func wake() {
        lock.lock()
        defer { lock.unlock() }
        wakeAll()
    }

    private func letGo() {
        isHeld = false
        wakeAll()
    }

    private func wakeAll() {
        waiting.values.forEach { $0.resume() }
        waiting = [:]
    }

    /// Waits for the end, for the task's cancellation, or until `isOver` when all are woken.
    func wait(isolation: isolated (any Actor)? = #isolation, unless isOver: () -> Bool) async {
        let id = lock.withLock {
            count += 1
            return count
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation(isolation: isolation) { continuation in
                lock.lock()
                let waits = isHeld && !Task.isCancelled && !isOver()
                if waits { waiting[id] = continuation }
                lock.unlock()
                if !waits { continuation.resume() }
            }
        } onCancel: {
            lock.withLock { waiting.removeValue(forKey: id) }?.resume()
        }
    }
}

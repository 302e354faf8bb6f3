import Foundation

/// Answers as streams. The prompt is computed when the first piece is requested, and each piece when it is requested:
/// nothing is computed ahead. Breaking out of the iteration leaves the answer as it is; `next()` or another prompt
/// continues from there. Canceling the iterating task stops the running call.
///
/// While the session is suspended, its streams wait.
extension Session {
    /// Adds a user message and streams the answer: `prompt(_:)`, and `next()` to the end.
    public nonisolated func answer(to text: String) -> AsyncThrowingStream<Piece, any Error> { stream(.text(text)) }

    /// Answers a conversation, which replaces the previous one.
    public nonisolated func answer(to messages: [Message]) -> AsyncThrowingStream<Piece, any Error> {
        stream(.messages(messages))
    }

    /// Continues a raw text, without the chat template.
    public nonisolated func answer(raw text: String, special: Bool = false) -> AsyncThrowingStream<Piece, any Error> {
        stream(.raw(text, special: special))
    }

    /// Continues from token ids.
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

    /// Whether a prompt contains the whole conversation, so that it can be repeated.
    private func readsWhole(_ prompt: Prompt) -> Bool {
        switch prompt {
        case .messages: true
        case .text: !abilities.isDisjoint(with: [.chats, .reads])
        case .raw: abilities.contains(.reads)
        case .tokens: false
        }
    }

    /// Makes an announced call; if the session is suspended before or during it, waits and repeats it. A call that read
    /// a part of its input, and is not `isSame` when repeated, ends instead. A stopped call ends as well.
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
                // A cancellation that came neither from the task nor from a stop came from a suspension.
                guard [.suspended, .cancelled].contains(error.code), !Task.isCancelled else { throw error }
                if error.code == .cancelled, worker.isStopped(call) { throw error }
                // Rejected calls have not begun.
                if error.code == .cancelled, !isSame, try stats().position != before { throw error }
                await suspension.wait { worker.isStopped(call) }
            }
        }
    }
}

/// An answer that is read piece by piece. Only accessed by the jobs of its session.
private final class Answer: @unchecked Sendable {
    let prompt: Prompt
    var number: Int?
    init(_ prompt: Prompt) { self.prompt = prompt }
}

/// Whether a session is suspended, and the tasks that wait until it is resumed.
final class Suspension: @unchecked Sendable {
    private let lock = NSLock()
    // Guarded by the lock.
    private var isHeld = false
    private var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    private var count: UInt64 = 0

    /// Suspends the session; `hold` calls the library.
    func begin(_ hold: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try hold()
        isHeld = true
    }

    /// Resumes all waiting tasks, after `release` has called the library.
    func end(_ release: () throws(SiskinError) -> Void) throws(SiskinError) {
        lock.lock()
        defer { lock.unlock() }
        try release()
        letGo()
    }

    /// Resumes all waiting tasks: the session is closed, and cannot be suspended any more.
    func close() {
        lock.lock()
        defer { lock.unlock() }
        letGo()
    }

    /// Wakes all waiting tasks to check their condition again.
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

    /// Waits for the end of the suspension, for the cancellation of the task, or until `isOver` is true on a wake-up.
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

import Foundation

/// Generation as streams.
///
/// A stream computes its prompt when its first chunk is requested, and each chunk when it is requested; it never
/// computes ahead. Breaking out of the iteration leaves the response as it is: `next()` or another prompt continues
/// from there. Canceling the iterating task cancels the running call.
///
/// While the session is paused, its streams wait.
extension Session {
    /// Adds a user message and streams the response: `prompt(_:)`, and `next()` to the end.
    public nonisolated func chat(_ text: String) -> AsyncThrowingStream<TextChunk, any Error> {
        stream(.text(text))
    }

    /// Streams the response to a conversation, which replaces the previous one.
    public nonisolated func chat(_ messages: [Message]) -> AsyncThrowingStream<TextChunk, any Error> {
        stream(.messages(messages))
    }

    /// Streams the response to a conversation in which the model may call tools: `prompt(chat:options:)`, and `next()` to
    /// the end.
    public nonisolated func chat(_ messages: String, options: String) -> AsyncThrowingStream<TextChunk, any Error> {
        stream(.chat(messages, options: options))
    }

    /// Streams a raw completion, bypassing the chat template.
    ///
    /// - Parameter parsingControlTokens: Whether special tokens in the text are parsed. Do not enable it for untrusted
    ///   text.
    public nonisolated func complete(
        _ text: String,
        parsingControlTokens: Bool = false
    ) -> AsyncThrowingStream<TextChunk, any Error> {
        stream(.raw(text, parsingControlTokens: parsingControlTokens))
    }

    /// Appends tokens to the session and streams their completion.
    public nonisolated func complete(tokens: [UInt32]) -> AsyncThrowingStream<TextChunk, any Error> {
        stream(.tokens(tokens))
    }

    private nonisolated func stream(_ prompt: Prompt) -> AsyncThrowingStream<TextChunk, any Error> {
        let answer = AnswerIterator(self, prompt)
        return AsyncThrowingStream { try await answer.next() }
    }

    fileprivate func nextChunk(of answer: Answer, _ call: UInt64) async throws(SiskinError) -> TextChunk? {
        if answer.number == nil {
            answer.number = try await retryAfterPause(call, canRepeat: canRepeat(answer.prompt)) {
                session throws(SiskinError) in
                try await session.begin(answer.prompt, call)
            }
        }
        return try await retryAfterPause(call, canRepeat: true) { session throws(SiskinError) in
            guard let number = answer.number, session.isCurrent(number) else {
                let message = "another prompt was started; iterate over its response"
                throw SiskinError(.state, location: "session", message: message)
            }
            return try await session.next(call)
        }
    }

    /// Whether a prompt contains the whole conversation, so that it can be retried after a part of it was computed.
    private func canRepeat(_ prompt: Prompt) -> Bool {
        switch prompt {
        case .messages, .chat: true
        case .text: !capabilities.isDisjoint(with: [.chat, .encode])
        case .raw: capabilities.contains(.encode)
        case .tokens: false
        }
    }

    /// Makes a registered call. If the session is paused before or during it, waits and retries it. A canceled call
    /// ends, and so does one that computed a part of its prompt if that cannot be repeated.
    private func retryAfterPause<T: Sendable>(
        _ call: UInt64,
        canRepeat: Bool,
        _ body: (isolated Session) async throws(SiskinError) -> T
    ) async throws(SiskinError) -> T {
        while true {
            let before = try stats().position
            do {
                return try await body(self)
            } catch {
                // A cancellation that came neither from the task nor from `cancel()` came from a pause.
                guard [.paused, .canceled].contains(error.code), !Task.isCancelled else { throw error }
                if error.code == .canceled, runner.isCancelled(call) { throw error }
                // A call that failed with `.paused` has not begun.
                if error.code == .canceled, !canRepeat, try stats().position != before { throw error }
                await pauseGate.wait { runner.isCancelled(call) }
            }
        }
    }
}

/// The chunks of a response to a prompt.
struct AnswerIterator: Sendable {
    private let session: Session
    private let answer: Answer

    init(_ session: Session, _ prompt: Prompt) { (self.session, answer) = (session, Answer(prompt)) }

    /// Generates the next chunk, and returns it; `nil` after the last.
    func next() async throws(SiskinError) -> TextChunk? {
        try await session.nextChunk(of: answer, session.runner.register())
    }
}

/// A response that is read chunk by chunk. Only jobs of its session access it.
private final class Answer: @unchecked Sendable {
    let prompt: Prompt
    /// The index of the prompt; `nil` until it is started.
    var number: Int?
    init(_ prompt: Prompt) { self.prompt = prompt }
}

import Foundation
import Siskin

/// A conversation as a screen shows it.
@MainActor
public final class Chat {
    /// What is on the screen.
    public struct State: Sendable, Equatable {
        /// What was said so far; the last one may still grow.
        public var messages: [Message] = []
        /// Whether an answer is being written.
        public var isWriting = false
        /// What went wrong last, in words for the person.
        public var problem: String?
    }

    /// What is on the screen now.
    public private(set) var state = State() {
        didSet { changed?(state) }
    }
    /// Is told whenever that changes.
    public var changed: ((State) -> Void)?

    private let session: Session
    private var writing: Task<Void, Never>?

    /// A conversation with a model that follows the app's life.
    public init(_ model: Model, following lifecycle: Lifecycle, options: SessionOptions = SessionOptions()) async throws {
        session = try await Session(model, options: options)
        lifecycle.follow(model)
        lifecycle.follow(session)
    }

    /// Says something, and shows the answer as it comes.
    public func say(_ text: String) {
        guard !state.isWriting, !text.isEmpty else { return }
        state.messages += [Message(role: "user", content: text), Message(role: "assistant", content: "")]
        (state.isWriting, state.problem) = (true, nil)
        writing = Task {
            do {
                for try await piece in session.answer(to: text) {
                    state.messages[state.messages.count - 1].content += piece.text
                }
            } catch let error as SiskinError where error.isCancellation {
                // The person stopped it: what was written stays.
            } catch {
                state.problem = error.localizedDescription
            }
            state.isWriting = false
        }
    }

    /// Stops the answer; what was written stays.
    public func stop() { writing?.cancel() }

    /// Waits for the answer that is being written.
    public func finish() async { await writing?.value }
}

import Foundation
import Siskin

/// The view model of a conversation.
@MainActor
public final class Chat {
    /// The state to display.
    public struct State: Sendable, Equatable {
        /// The messages so far; the last one may still be streaming.
        public var messages: [Message] = []
        /// Whether an answer is being generated.
        public var isWriting = false
        /// The last error, as a message for the user.
        public var problem: String?
    }

    /// The current state.
    public private(set) var state = State() {
        didSet { changed?(state) }
    }
    /// Called whenever the state changes.
    public var changed: ((State) -> Void)?

    private let session: Session
    private var writing: Task<Void, Never>?

    /// Creates a conversation with a model that follows the app's lifecycle.
    public init(_ model: Model, following lifecycle: Lifecycle, options: SessionOptions = SessionOptions()) async throws {
        session = try await Session(model, options: options)
        lifecycle.follow(model)
        lifecycle.follow(session)
    }

    /// Sends a message, and streams the answer.
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
                // The user cancelled: the text so far stays.
            } catch {
                state.problem = error.localizedDescription
            }
            state.isWriting = false
        }
    }

    /// Cancels the answer; the text so far stays.
    public func stop() { writing?.cancel() }

    /// Waits for the running answer.
    public func finish() async { await writing?.value }
}

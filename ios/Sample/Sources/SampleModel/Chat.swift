import Foundation
import Observation
import Siskin

/// The view model of a conversation.
@MainActor
@Observable
public final class Chat {
    /// The messages so far. The content of the last one grows while `isGenerating`.
    public private(set) var messages: [Message] = []
    /// Whether an answer is being generated.
    public private(set) var isGenerating = false
    /// A description of the last error.
    public private(set) var errorMessage: String?

    private let session: Session
    private var generation: Task<Void, Never>?

    /// Creates a conversation with a model. The lifecycle manages both.
    public init(model: Model, lifecycle: Lifecycle, options: SessionOptions = SessionOptions()) async throws {
        session = try await Session(model: model, options: options)
        lifecycle.manage(model)
        lifecycle.manage(session)
    }

    /// Sends a message of the user, and streams the answer. Does nothing while an answer is being generated.
    public func send(_ text: String) {
        guard !isGenerating, !text.isEmpty else { return }
        messages += [Message(role: .user, content: text), Message(role: .assistant, content: "")]
        (isGenerating, errorMessage) = (true, nil)
        generation = Task {
            do {
                for try await chunk in session.chat(text) {
                    messages[messages.count - 1].content += chunk.text
                }
            } catch let error as SiskinError where error.isCancellation {
                // The text that was generated so far stays.
            } catch {
                errorMessage = error.localizedDescription
            }
            isGenerating = false
        }
    }

    /// Cancels the answer. The text that was generated so far stays.
    public func cancel() { generation?.cancel() }

    /// Waits until no answer is being generated.
    public func waitUntilIdle() async { await generation?.value }
}

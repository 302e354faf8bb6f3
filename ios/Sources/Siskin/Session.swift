import CSiskin
import Foundation

/// One conversation or sequence with its KV cache. Calls run one after the other, on a thread of the session.
///
/// If the task of a call is cancelled, the call ends within milliseconds with `SiskinError.Code.cancelled`, and the
/// session is in the state before the call.
public actor Session {
    let worker: Worker
    let suspension = Suspension()
    /// The capabilities of the model.
    let abilities: ModelInfo.Abilities
    private let queue = Queue("session")
    /// The number of the prompt that is being answered.
    private var prompts = 0
    /// Whether a piece has reported the finish reason.
    private var isTold = false

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Creates a session, and reserves its memory.
    public init(_ model: Model, options: SessionOptions = SessionOptions()) async throws(SiskinError) {
        abilities = try model.info().abilities
        worker = try await aside { _ throws(SiskinError) in
            let options = try options.native()
            let session = try model.owner.lend { model throws(SiskinError) in
                try options.lend { options throws(SiskinError) in try made { siskin_session_new(model, options, &$0) } }
            }
            let owner = Owner(session, "session", free: { siskin_session_free($0) })
            return try Worker(owner, stopper: { siskin_session_stopper($0, &$1) })
        }
    }

    /// Stops the running call and those that wait for their turn, or the current answer, within milliseconds.
    public nonisolated func stop() {
        worker.stop()
        suspension.wake()
    }

    /// Stops the running call, waits for it, and releases the session; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        suspension.close()
        await settle()
    }

    private func settle() {}

    /// Adds a message before the next prompt, such as one of the role `system`.
    public func say(_ content: String, as role: String = "system") throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(role) { role, roleLength in
                withText(content) { siskin_session_say(session, role, roleLength, $0, $1) }
            })
        }
    }

    /// Submits a text: as a user message if the model has a chat template, as a plain continuation if it has none, and
    /// as the encoder input of an encoder–decoder model; `next()` then returns the answer. The prefix that the prompt
    /// shares with the KV cache is not computed again. An unfinished answer is left as it is.
    ///
    /// Control tokens spelled out in the text are tokenized as plain text. After a cancellation, the text was not
    /// added.
    public nonisolated func prompt(_ text: String) async throws(SiskinError) { try await announced(.text(text)) }

    /// Continues a raw text, without the chat template. `special` says whether control tokens spelled out in it are
    /// parsed: do not enable it for untrusted text. An empty text continues where the last one ended.
    public nonisolated func prompt(raw text: String, special: Bool = false) async throws(SiskinError) {
        try await announced(.raw(text, special: special))
    }

    /// Answers a conversation. It replaces the previous one; a shared prefix is not computed again.
    public nonisolated func prompt(_ messages: [Message]) async throws(SiskinError) {
        try await announced(.messages(messages))
    }

    /// Continues from token ids, appended to those of the session.
    public nonisolated func prompt(tokens: [UInt32]) async throws(SiskinError) { try await announced(.tokens(tokens)) }

    /// Returns the next token of the answer and its text. The last piece has the finish reason, and may have neither
    /// token nor text; after that, returns `nil`. After a cancellation, the answer is unchanged: the call can be made
    /// again.
    public nonisolated func next() async throws(SiskinError) -> Piece? { try await piece(worker.announce()) }

    /// Returns the next piece, for an announced call.
    func piece(_ call: UInt64) async throws(SiskinError) -> Piece? {
        let piece = try await worker.run(call, goesOn: true) { session throws(SiskinError) in
            Piece(try filled(siskin_piece(), \.struct_size) { siskin_session_next(session, &$0) })
        }
        let isOver = isTold
        isTold = piece.ended != nil
        return isOver ? nil : piece
    }

    /// Sets the maximum number of tokens of the answers that begin from now on; 0: as many as the context has room for.
    public func setMaxTokens(_ tokens: Int) throws(SiskinError) {
        let tokens: Int = try number(tokens, "tokens")
        try worker.owner.lend { session throws(SiskinError) in
            try check(siskin_session_set_max_tokens(session, tokens))
        }
    }

    private nonisolated func announced(_ prompt: Prompt) async throws(SiskinError) {
        _ = try await begin(prompt, worker.announce())
    }

    /// Submits a prompt for an announced call, and returns its number.
    func begin(_ prompt: Prompt, _ call: UInt64) async throws(SiskinError) -> Int {
        try await worker.run(call) { session throws(SiskinError) in try prompt.give(to: session) }
        prompts += 1
        isTold = false
        return prompts
    }

    /// Whether a prompt is still the one that is being answered.
    func isLast(_ prompt: Int) -> Bool { prompt == prompts }
}

/// The types of prompts.
enum Prompt: Sendable {
    case text(String)
    case raw(String, special: Bool)
    case messages([Message])
    case tokens([UInt32])

    func give(to session: OpaquePointer) throws(SiskinError) {
        switch self {
        case .text(let text):
            try check(withText(text) { siskin_session_prompt(session, $0, $1) })
        case .raw(let text, let special):
            try check(withText(text) { siskin_session_prompt_raw(session, $0, $1, special) })
        case .messages(let messages):
            try check(withText(try Message.json(messages)) { siskin_session_prompt_messages(session, $0, $1) })
        case .tokens(let tokens):
            try check(siskin_session_prompt_tokens(session, tokens, tokens.count))
        }
    }
}

/// A message of a conversation.
public struct Message: Sendable, Hashable, Codable {
    /// The role of its author: `system`, `user`, `assistant`, or another one of the model's template.
    public var role: String
    /// Its text.
    public var content: String

    /// Creates a message.
    public init(role: String, content: String) { (self.role, self.content) = (role, content) }

    static func json(_ messages: [Message]) throws(SiskinError) -> String {
        do { return String(decoding: try JSONEncoder().encode(messages), as: UTF8.self) } catch {
            throw SiskinError(.argument, place: "messages", message: "\(error)")
        }
    }
}

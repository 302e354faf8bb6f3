import CSiskin
import Foundation

/// One conversation or text. Calls come one after the other, on a thread of the session's own.
///
/// Where the task of a call is cancelled, the call ends within milliseconds with `SiskinError.Code.cancelled`, and the
/// session is as it was before.
public actor Session {
    let worker: Worker
    let suspension = Suspension()
    /// What the model can do.
    let abilities: ModelInfo.Abilities
    private let queue = Queue("session")
    /// The number of the prompt that is being answered.
    private var prompts = 0
    /// Whether a piece has said why the answer ended.
    private var isTold = false

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Opens a session, and reserves its memory.
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

    /// Stops the running call and those that wait for their turn, or the answer that is being written, within
    /// milliseconds.
    public nonisolated func stop() {
        worker.stop()
        suspension.wake()
    }

    /// Stops the running call, waits for it, and lets go of the session; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        suspension.close()
        await settle()
    }

    private func settle() {}

    /// Adds a message that stands before the next prompt, such as one of the role `system`.
    public func say(_ content: String, as role: String = "system") throws(SiskinError) {
        try worker.owner.lend { session throws(SiskinError) in
            try check(withText(role) { role, roleLength in
                withText(content) { siskin_session_say(session, role, roleLength, $0, $1) }
            })
        }
    }

    /// Says a text as the user where the model has a chat template, goes on from it where it has none, and gives it to
    /// read where the model makes a text of a text; `next()` then gives the answer. What the session shares with what it
    /// has read is not read again. An answer that was being written is left as it is.
    ///
    /// Control tokens that the text spells are text. Where it was cancelled, the text was not said.
    public nonisolated func prompt(_ text: String) async throws(SiskinError) { try await announced(.text(text)) }

    /// Goes on from a text as it is, without the chat template. `special` says whether control tokens that it spells are
    /// such: not for text from strangers. An empty text goes on where the last one ended.
    public nonisolated func prompt(raw text: String, special: Bool = false) async throws(SiskinError) {
        try await announced(.raw(text, special: special))
    }

    /// Answers a conversation. It takes the place of what was said before; what both have in common is not read again.
    public nonisolated func prompt(_ messages: [Message]) async throws(SiskinError) {
        try await announced(.messages(messages))
    }

    /// Goes on from tokens behind those that the session has.
    public nonisolated func prompt(tokens: [UInt32]) async throws(SiskinError) { try await announced(.tokens(tokens)) }

    /// The next token of the answer and the text that it brought. The last piece says why the answer ended, and may have
    /// neither; after that comes `nil`. Where the call was cancelled, the answer is where it was: it can be made again.
    public nonisolated func next() async throws(SiskinError) -> Piece? { try await piece(worker.announce()) }

    /// The next piece, for a call that was announced.
    func piece(_ call: UInt64) async throws(SiskinError) -> Piece? {
        let piece = try await worker.run(call, goesOn: true) { session throws(SiskinError) in
            Piece(try filled(siskin_piece(), \.struct_size) { siskin_session_next(session, &$0) })
        }
        let isOver = isTold
        isTold = piece.ended != nil
        return isOver ? nil : piece
    }

    /// The most tokens of the answers that begin from now on; 0: as many as there is room for.
    public func setMaxTokens(_ tokens: Int) throws(SiskinError) {
        let tokens: Int = try number(tokens, "tokens")
        try worker.owner.lend { session throws(SiskinError) in
            try check(siskin_session_set_max_tokens(session, tokens))
        }
    }

    private nonisolated func announced(_ prompt: Prompt) async throws(SiskinError) {
        _ = try await begin(prompt, worker.announce())
    }

    /// Reads a prompt for a call that was announced, and gives its number.
    func begin(_ prompt: Prompt, _ call: UInt64) async throws(SiskinError) -> Int {
        try await worker.run(call) { session throws(SiskinError) in try prompt.give(to: session) }
        prompts += 1
        isTold = false
        return prompts
    }

    /// Whether a prompt is still the one that is being answered.
    func isLast(_ prompt: Int) -> Bool { prompt == prompts }
}

/// What a session is given to answer.
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
    /// Who says it: `system`, `user`, `assistant`, or what else the model's template knows.
    public var role: String
    /// What is said.
    public var content: String

    /// A message.
    public init(role: String, content: String) { (self.role, self.content) = (role, content) }

    static func json(_ messages: [Message]) throws(SiskinError) -> String {
        do { return String(decoding: try JSONEncoder().encode(messages), as: UTF8.self) } catch {
            throw SiskinError(.argument, place: "messages", message: "\(error)")
        }
    }
}

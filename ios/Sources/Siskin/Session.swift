import CSiskin
import Foundation

/// A conversation or sequence with its KV cache. Calls run serially on the session's own thread.
///
/// If the task of a call is canceled, the call ends within milliseconds with `SiskinError.Code.canceled`, and the
/// session is restored to its state before the call. There is one exception: if a sliding window has moved or a
/// recurrent state has changed, a canceled prompt appended to existing tokens is left partially processed; `stats()`
/// reports how many tokens the session holds afterward.
public actor Session {
    let runner: CallRunner
    let pauseGate = PauseGate()
    /// The capabilities of the model.
    let capabilities: Set<Capability>
    private let executor = SerialQueueExecutor("session")
    /// What responses must be.
    private(set) var structuredOutput: StructuredOutput?
    /// The index of the current prompt.
    private var currentPrompt = 0
    /// Whether a chunk has reported the finish reason.
    private var isFinished = false

    /// The executor of the session, which has a thread of its own.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates a session, and reserves its memory.
    public init(model: Model, options: SessionOptions = SessionOptions()) async throws(SiskinError) {
        capabilities = try model.info().capabilities
        runner = try await runInBackground { _ throws(SiskinError) in
            let options = try options.makeNative()
            let session = try model.handle.use { model throws(SiskinError) in
                try options.use { options throws(SiskinError) in
                    try makeHandle { siskin_session_new(model, options, &$0) }
                }
            }
            let handle = NativeHandle(session, "session", free: { siskin_session_free($0) })
            return try CallRunner(handle, makeCancelHandle: { siskin_session_cancel_handle($0, &$1) })
        }
    }

    /// Creates a session on an engine: its tokens are batched with those of requests and of other sessions. Its keys and
    /// values occupy a part of the model's KV cache until it is closed. Memory options and forks are ignored: the context
    /// length, the KV cache type and the window are those of the `ServedModelOptions`. Throws
    /// `SiskinError.Code.overloaded` if the model has `ServedModelOptions.maxSessions`.
    public init(model: ServedModel, options: SessionOptions = SessionOptions()) async throws(SiskinError) {
        capabilities = model.capabilities
        runner = try await runInBackground { _ throws(SiskinError) in
            let options = try options.makeNative()
            let session = try model.engine.handle.use { engine throws(SiskinError) in
                try options.use { options throws(SiskinError) in
                    try makeHandle { siskin_engine_session_new(engine, model.number, options, &$0) }
                }
            }
            let handle = NativeHandle(session, "session", free: { siskin_session_free($0) })
            return try CallRunner(handle, makeCancelHandle: { siskin_session_cancel_handle($0, &$1) })
        }
    }

    private init(runner: CallRunner, capabilities: Set<Capability>, structuredOutput: StructuredOutput?) {
        (self.runner, self.capabilities, self.structuredOutput) = (runner, capabilities, structuredOutput)
    }

    /// Creates a session that continues from here, and shares the KV cache of the tokens so far: see
    /// `SessionOptions.forks`. A response that is not finished continues in this session alone.
    public func fork() throws(SiskinError) -> Session {
        let session = try runner.handle.use { session throws(SiskinError) in
            try makeHandle { siskin_session_fork(session, &$0) }
        }
        let handle = NativeHandle(session, "session", free: { siskin_session_free($0) })
        let runner = try CallRunner(handle, makeCancelHandle: { siskin_session_cancel_handle($0, &$1) })
        return Session(runner: runner, capabilities: capabilities, structuredOutput: structuredOutput)
    }

    /// Appends a text, bypassing the chat template, and returns how likely it was given the tokens before it. The first
    /// token of an empty session has no probability. To compare several texts, fork or rewind the session.
    ///
    /// - Parameter parsingControlTokens: Whether special tokens in the text are parsed. Do not enable it for untrusted
    ///   text.
    public func score(_ text: String, parsingControlTokens: Bool = false) async throws(SiskinError) -> TextScore {
        let score = try await runner.run { session throws(SiskinError) in
            var (logProbability, count) = (0.0, 0)
            try check(withUTF8(text) {
                siskin_session_score_text(session, $0, $1, parsingControlTokens, &logProbability, &count)
            })
            return TextScore(logProbability: logProbability, tokens: count)
        }
        currentPrompt += 1
        isFinished = true
        return score
    }

    /// Cancels the running call and all queued calls within milliseconds. Between two chunks of a response, cancels the
    /// response.
    public nonisolated func cancel() {
        runner.cancel()
        pauseGate.wake()
    }

    /// Cancels the running call, waits for it, and closes the session; later calls throw. May be called repeatedly.
    public nonisolated func close() async {
        runner.close()
        pauseGate.close()
        await waitForRunningCall()
    }

    private func waitForRunningCall() {}

    /// Adds a message before the next prompt, such as one with the role `system`.
    public func add(_ message: Message) throws(SiskinError) {
        try runner.handle.use { session throws(SiskinError) in
            try check(withUTF8(message.role.rawValue) { role, roleLength in
                withUTF8(message.content) { siskin_session_add_message(session, role, roleLength, $0, $1) }
            })
        }
    }

    /// Starts a response to a prompt, which `next()` then generates. The prompt becomes a user message if the model has
    /// a chat template, the encoder input if it is an encoder–decoder model, and otherwise a text to continue. The
    /// prefix that the prompt shares with the KV cache is not recomputed. An unfinished response is kept as is.
    ///
    /// Special tokens in the text are treated as plain text. After a cancellation, the text has not been added, except
    /// as described for `Session`.
    public nonisolated func prompt(_ text: String) async throws(SiskinError) { try await begin(.text(text)) }

    /// Starts a response to a conversation, which replaces the previous one. Their common prefix is not recomputed.
    public nonisolated func prompt(_ messages: [Message]) async throws(SiskinError) {
        try await begin(.messages(messages))
    }

    /// Starts a response to a conversation in which the model may call tools. The chunks have the content of the response,
    /// without reasoning and tool calls: see `message()`.
    ///
    /// - Parameters:
    ///   - messages: A JSON array of messages in OpenAI's form.
    ///   - options: A JSON object with `tools`, `tool_choice`, `parallel_tool_calls`, `reasoning_effort`,
    ///     `reasoning_budget` and `chat_template_kwargs`, or an empty text.
    public nonisolated func prompt(chat messages: String, options: String = "") async throws(SiskinError) {
        try await begin(.chat(messages, options: options))
    }

    /// Returns the assistant's message as far as it was generated after `prompt(chat:options:)`: a JSON object in OpenAI's
    /// form, with `content`, `reasoning_content` and `tool_calls`.
    public func message() throws(SiskinError) -> String {
        try runner.handle.use { session throws(SiskinError) in
            var text: UnsafePointer<CChar>?
            var length = 0
            try check(siskin_session_message(session, &text, &length))
            return text.map { String(cString: $0) } ?? ""
        }
    }

    /// Starts a raw completion, bypassing the chat template. An empty text continues the previous one.
    ///
    /// - Parameter parsingControlTokens: Whether special tokens in the text are parsed. Do not enable it for untrusted
    ///   text.
    public nonisolated func prompt(raw text: String, parsingControlTokens: Bool = false) async throws(SiskinError) {
        try await begin(.raw(text, parsingControlTokens: parsingControlTokens))
    }

    /// Appends tokens to the session and starts their completion.
    public nonisolated func prompt(tokens: [UInt32]) async throws(SiskinError) { try await begin(.tokens(tokens)) }

    /// Generates the next token, and returns it with its text. The last chunk has the finish reason, and may have
    /// neither token nor text; after it, returns `nil`. After a cancellation, the response is unchanged: the call can
    /// be retried.
    public nonisolated func next() async throws(SiskinError) -> TextChunk? { try await next(runner.register()) }

    /// Generates the next token, for a registered call.
    func next(_ call: UInt64) async throws(SiskinError) -> TextChunk? {
        let chunk = try await runner.run(call, continuesAnswer: true) { session throws(SiskinError) in
            TextChunk(try readStruct(siskin_text_chunk(), \.struct_size) { siskin_session_next(session, &$0) })
        }
        let wasFinished = isFinished
        isFinished = chunk.finishReason != nil
        return wasFinished ? nil : chunk
    }

    /// Sets the maximum number of tokens in later responses; `nil` means limited only by the context.
    public func setMaxTokens(_ tokens: Int?) throws(SiskinError) {
        let tokens: Int = try native(tokens ?? 0, "tokens")
        try runner.handle.use { session throws(SiskinError) in
            try check(siskin_session_set_max_tokens(session, tokens))
        }
    }

    /// Sets what later responses must be; `nil`: any text.
    public func setStructuredOutput(_ output: StructuredOutput?) throws(SiskinError) {
        let (kind, definition) = try StructuredOutput.native(output)
        try runner.handle.use { session throws(SiskinError) in
            try check(withUTF8(definition) { siskin_session_set_structured_output(session, kind, $0, $1) })
        }
        structuredOutput = output
    }

    private nonisolated func begin(_ prompt: Prompt) async throws(SiskinError) {
        _ = try await begin(prompt, runner.register())
    }

    /// Starts a response to a prompt for a registered call, and returns the index of the prompt.
    func begin(_ prompt: Prompt, _ call: UInt64) async throws(SiskinError) -> Int {
        try await runner.run(call) { session throws(SiskinError) in try prompt.begin(in: session) }
        if case .chat = prompt { structuredOutput = nil }
        currentPrompt += 1
        isFinished = false
        return currentPrompt
    }

    /// Whether a prompt is the current one.
    func isCurrent(_ prompt: Int) -> Bool { prompt == currentPrompt }
}

/// The types of prompts.
enum Prompt: Sendable {
    case text(String)
    case raw(String, parsingControlTokens: Bool)
    case messages([Message])
    case chat(String, options: String)
    case tokens([UInt32])

    func begin(in session: OpaquePointer) throws(SiskinError) {
        switch self {
        case .text(let text):
            try check(withUTF8(text) { siskin_session_prompt(session, $0, $1) })
        case .raw(let text, let parsingControlTokens):
            try check(withUTF8(text) { siskin_session_prompt_raw(session, $0, $1, parsingControlTokens) })
        case .messages(let messages):
            try check(withUTF8(try Message.json(messages)) { siskin_session_prompt_messages(session, $0, $1) })
        case .chat(let messages, let options):
            try check(withUTF8(messages) { text, length in
                withUTF8(options) { siskin_session_prompt_chat(session, text, length, $0, $1) }
            })
        case .tokens(let tokens):
            try check(siskin_session_prompt_tokens(session, tokens, tokens.count))
        }
    }
}

import CSiskin

/// Generates for many requests at once: they share forward passes, threads, memory and the KV cache of common prefixes.
/// The tokens of a request are those that a session with the same options generates. Any number of tasks may use it.
///
///     let engine = try Engine()
///     let model = try await engine.add(try await Model(contentsOf: url))
///     async let first = model.response(to: "Why is the sky blue?")
///     async let second = model.response(to: "What is a siskin?")
///     print(try await first, try await second)
///
/// Apps with a user interface should set `EngineOptions.backgroundThread`: a canceled request then ends within
/// milliseconds, whereas a thread that computes for other requests as well returns after the pass.
///
/// Closing an engine does not end its generations.
public final class Engine: Sendable {
    let handle: NativeHandle

    /// Creates an engine without models.
    public init(options: EngineOptions = EngineOptions()) throws(SiskinError) {
        let options = try options.makeNative()
        let engine = try options.use { options throws(SiskinError) in
            try makeHandle { siskin_engine_new(options, &$0) }
        }
        handle = NativeHandle(engine, "engine", free: { siskin_engine_free($0) })
    }

    /// Closes the engine; later calls throw.
    public func close() { handle.close() }

    /// Adds a decoder-only model, and reserves the memory of its KV cache.
    public func add(
        _ model: Model,
        options: ServedModelOptions = ServedModelOptions()
    ) async throws(SiskinError) -> ServedModel {
        try await runInBackground { _ throws(SiskinError) in
            let options = try options.makeNative()
            let capabilities = try model.info().capabilities
            let number = try self.handle.use { engine throws(SiskinError) in
                try model.handle.use { model throws(SiskinError) in
                    try options.use { options throws(SiskinError) in
                        var number: UInt32 = 0
                        try check(siskin_engine_add_model(engine, model, options, &number))
                        return number
                    }
                }
            }
            return ServedModel(engine: self, number: number, capabilities: capabilities)
        }
    }

    /// Returns `model` on the engine's threads: its sessions, encoders, seq2seq generators and transcribers take turns with
    /// the engine's forward passes instead of competing for the cores. Both share their weights, and either can be closed
    /// first.
    public func attach(_ model: Model) throws(SiskinError) -> Model {
        let attached = try handle.use { engine throws(SiskinError) in
            try model.handle.use { model throws(SiskinError) in
                try makeHandle { siskin_engine_attach_model(engine, model, &$0) }
            }
        }
        return Model(handle: NativeHandle(attached, "model", free: { siskin_model_free($0) }))
    }

    /// Rejects further requests with `SiskinError.Code.overloaded` from now on, waits until the others have ended, and
    /// cancels any that are still running after `milliseconds`, such as those whose chunks are not taken. Then cached
    /// prefixes are written to `ServedModelOptions.prefixCacheDirectory`, if any, for about ten seconds at most.
    public func drain(milliseconds: Int) async throws(SiskinError) {
        let limit: UInt32 = try native(milliseconds, "milliseconds")
        try await runInBackground { _ throws(SiskinError) in
            try self.handle.use { engine throws(SiskinError) in try check(siskin_engine_drain(engine, limit)) }
        }
    }

    /// Removes the cached prefixes of all models, and releases unused memory to the system: for memory warnings. The memory
    /// stays reserved, and requests use it again. Waits for the running forward pass.
    public func trim() async throws(SiskinError) {
        try await runInBackground { _ throws(SiskinError) in
            try self.handle.use { engine throws(SiskinError) in try check(siskin_engine_trim(engine)) }
        }
    }
}

/// A model of an engine.
public struct ServedModel: Sendable {
    /// The engine.
    public let engine: Engine
    let number: UInt32
    let capabilities: Set<Capability>

    init(engine: Engine, number: UInt32, capabilities: Set<Capability>) {
        (self.engine, self.number, self.capabilities) = (engine, number, capabilities)
    }

    /// Submits a prompt and returns the text of the response. Canceling the task cancels the request. A response that is
    /// canceled, or whose timeout expires, throws `SiskinError.Code.canceled`.
    public func response(
        to text: String,
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> String {
        try await wholeText(of: submit(text, options: options))
    }

    /// Submits a conversation and returns the text of the response.
    public func response(
        to messages: [Message],
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> String {
        try await wholeText(of: submit(messages, options: options))
    }

    private func wholeText(of generation: Generation) async throws(SiskinError) -> String {
        let response = try await FinishedResponse(generation)
        try response.checkCancellation()
        return response.text
    }

    /// Submits a prompt, which becomes a user message if the model has a chat template, and otherwise a text to continue.
    /// Special tokens in it are treated as plain text. Throws `SiskinError.Code.overloaded` if too many requests wait, if
    /// the timeout of the request would expire before it starts, and after `Engine.drain(milliseconds:)`.
    public func submit(
        _ text: String,
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> Generation {
        try await submit(options) { engine, options, generation in
            withUTF8(text) { siskin_engine_submit(engine, number, $0, $1, options, &generation) }
        }
    }

    /// Submits a conversation.
    public func submit(
        _ messages: [Message],
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> Generation {
        let json = try Message.json(messages)
        return try await submit(options) { engine, options, generation in
            withUTF8(json) { siskin_engine_submit_messages(engine, number, $0, $1, options, &generation) }
        }
    }

    /// Submits a conversation in which the model may call tools; `Generation.message()` returns the response.
    ///
    /// - Parameters:
    ///   - messages: A JSON array of messages in OpenAI's form.
    ///   - chatOptions: A JSON object as for `Session.prompt(chat:options:)`, or an empty text.
    public func submit(
        chat messages: String,
        chatOptions: String = "",
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> Generation {
        try await submit(options) { engine, options, generation in
            withUTF8(messages) { text, length in
                withUTF8(chatOptions) {
                    siskin_engine_submit_chat(engine, number, text, length, $0, $1, options, &generation)
                }
            }
        }
    }

    /// Submits a text to continue, bypassing the chat template.
    ///
    /// - Parameter parsingControlTokens: Whether special tokens in the text are parsed. Do not enable it for untrusted
    ///   text.
    public func submit(
        raw text: String,
        parsingControlTokens: Bool = false,
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> Generation {
        try await submit(options) { engine, options, generation in
            withUTF8(text) {
                siskin_engine_submit_raw(engine, number, $0, $1, parsingControlTokens, options, &generation)
            }
        }
    }

    /// Submits tokens to continue.
    public func submit(
        tokens: [UInt32],
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> Generation {
        try await submit(options) { engine, options, generation in
            siskin_engine_submit_tokens(engine, number, tokens, tokens.count, options, &generation)
        }
    }

    /// Removes the model from its engine: rejects further requests, waits until the others have ended, and cancels any that
    /// are still running after `milliseconds`. Its sessions throw from then on, and its memory is freed with the last of its
    /// generations and sessions. To replace a model without interruption, add the new one, submit requests to it, then
    /// remove the old one; the memory budget must have room for both. Otherwise remove the old one first, and close its
    /// generations and sessions.
    public func remove(milliseconds: Int) async throws(SiskinError) {
        let limit: UInt32 = try native(milliseconds, "milliseconds")
        try await runInBackground { _ throws(SiskinError) in
            try engine.handle.use { engine throws(SiskinError) in
                try check(siskin_engine_remove_model(engine, number, limit))
            }
        }
    }

    /// Returns the counters of the model's requests, as of its last forward pass.
    public func stats() throws(SiskinError) -> EngineStats {
        try engine.handle.use { engine throws(SiskinError) in
            EngineStats(try readStruct(siskin_engine_stats(), \.struct_size) {
                siskin_engine_read_stats(engine, number, &$0)
            })
        }
    }

    /// Submits a request outside the cooperative thread pool: rendering and tokenizing a prompt takes time.
    private func submit(
        _ options: RequestOptions,
        _ submit: @escaping @Sendable (
            _ engine: OpaquePointer, _ options: OpaquePointer, _ out: inout OpaquePointer?
        ) -> OpaquePointer?
    ) async throws(SiskinError) -> Generation {
        try await runInBackground { _ throws(SiskinError) in
            let options = try options.makeNative()
            let generation = try engine.handle.use { engine throws(SiskinError) in
                try options.use { options throws(SiskinError) in try makeHandle { submit(engine, options, &$0) } }
            }
            let handle = NativeHandle(generation, "generation", free: { siskin_generation_free($0) })
            let cancel = try handle.use { generation throws(SiskinError) in
                try makeHandle { siskin_generation_cancel_handle(generation, &$0) }
            }
            return Generation(
                handle: handle,
                cancelHandle: NativeHandle(cancel, "cancel handle", free: { siskin_cancel_handle_free($0) })
            )
        }
    }
}

/// Counters of a model's requests.
public struct EngineStats: Sendable, Hashable {
    /// Requests that run now.
    public let running: Int
    /// Requests that wait now.
    public let waiting: Int
    /// Cached prefixes now.
    public let cachedPrefixes: Int
    /// Forward passes.
    public let steps: Int
    /// Rows (tokens) of all passes.
    public let rows: Int
    /// Tokens of requests when they started.
    public let prefixQueriedTokens: Int
    /// How many of these were found in the prefix cache.
    public let prefixHitTokens: Int
    /// Preemptions: requests that made room for others, and continued later.
    public let preemptions: Int
    /// Draft tokens that passes verified.
    public let draftedTokens: Int
    /// How many of these were correct.
    public let acceptedTokens: Int
    /// Tokens of prefixes that were read from `ServedModelOptions.prefixCacheDirectory`.
    public let prefixRestoredTokens: Int
    /// Blocks of the KV cache.
    public let kvBlocks: Int
    /// How many of these are free; cached prefixes hold others, which requests can take.
    public let freeKVBlocks: Int

    init(_ stats: siskin_engine_stats) {
        running = Int(clamping: stats.running)
        waiting = Int(clamping: stats.waiting)
        cachedPrefixes = Int(clamping: stats.cached_prefixes)
        steps = Int(clamping: stats.steps)
        rows = Int(clamping: stats.rows)
        prefixQueriedTokens = Int(clamping: stats.prefix_queried_tokens)
        prefixHitTokens = Int(clamping: stats.prefix_hit_tokens)
        preemptions = Int(clamping: stats.preemptions)
        draftedTokens = Int(clamping: stats.drafted_tokens)
        acceptedTokens = Int(clamping: stats.accepted_tokens)
        prefixRestoredTokens = Int(clamping: stats.prefix_restored_tokens)
        kvBlocks = Int(clamping: stats.kv_blocks)
        freeKVBlocks = Int(clamping: stats.free_kv_blocks)
    }
}

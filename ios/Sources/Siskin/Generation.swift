import CSiskin

/// The response to a request of an engine. Its calls run on a thread of its own. Once it is closed or deinitialized, the
/// request is canceled unless it has ended.
///
/// Chunks are kept until they are taken; while 256 are not, the request is paused.
public actor Generation {
    private let handle: NativeHandle
    private let cancelHandle: NativeHandle
    private let executor = SerialQueueExecutor("generation")
    /// Why the response ended; `nil` while it is being generated.
    public private(set) var finishReason: FinishReason?

    /// The executor of the generation, which has a thread of its own.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(handle: NativeHandle, cancelHandle: NativeHandle) {
        (self.handle, self.cancelHandle) = (handle, cancelHandle)
    }

    /// Generates the next token, and returns it with its text. The last chunk has the finish reason, and may have
    /// neither token nor text; after it, returns `nil`. Canceling the task cancels the request.
    public func next() async throws(SiskinError) -> TextChunk? {
        if finishReason != nil { return nil }
        let result = await withTaskCancellationHandler {
            Result { () throws(SiskinError) in
                try handle.use { generation throws(SiskinError) in
                    TextChunk(try readStruct(siskin_text_chunk(), \.struct_size) {
                        siskin_generation_next(generation, &$0)
                    })
                }
            }
        } onCancel: {
            cancel()
        }
        let chunk = try result.get()
        finishReason = chunk.finishReason
        return chunk
    }

    /// The chunks of the response. Canceling the iterating task cancels the request.
    public nonisolated func chunks() -> Chunks { Chunks(generation: self) }

    /// The chunks of a response.
    public struct Chunks: AsyncSequence, AsyncIteratorProtocol, Sendable {
        let generation: Generation

        /// Returns the next chunk, or `nil` at the end.
        public func next() async throws -> TextChunk? { try await generation.next() }

        /// Returns the chunks that are not taken yet.
        public func makeAsyncIterator() -> Chunks { self }
    }

    /// Returns the assistant's message as far as it was generated after `ServedModel.submit(chat:chatOptions:options:)`: a
    /// JSON object in OpenAI's form, with `content`, `reasoning_content` and `tool_calls`.
    public func message() throws(SiskinError) -> String {
        try handle.use { generation throws(SiskinError) in
            var text: UnsafePointer<CChar>?
            var length = 0
            try check(siskin_generation_message(generation, &text, &length))
            return text.map { String(cString: $0) } ?? ""
        }
    }

    /// Returns the number of tokens.
    public func usage() throws(SiskinError) -> GenerationUsage {
        try handle.use { generation throws(SiskinError) in
            GenerationUsage(try readStruct(siskin_generation_usage(), \.struct_size) {
                siskin_generation_read_usage(generation, &$0)
            })
        }
    }

    /// Cancels the request for good. `next()` first returns chunks that were already generated, and then the last: within
    /// milliseconds, unless its thread computes for other requests as well.
    public nonisolated func cancel() {
        try? cancelHandle.use { cancel throws(SiskinError) in try check(siskin_cancel_handle_cancel(cancel)) }
    }

    /// Cancels the request, waits for the running call, and closes the generation; later calls throw.
    public nonisolated func close() async {
        cancel()
        handle.close()
        cancelHandle.close()
        await waitForRunningCall()
    }

    private func waitForRunningCall() {}
}

/// The tokens of a request.
public struct GenerationUsage: Sendable, Hashable {
    /// Tokens of the prompt.
    public let promptTokens: Int
    /// How many of these were found in the prefix cache; 0 before the end.
    public let cachedTokens: Int
    /// Generated tokens that `Generation.next()` has returned; at the end, all.
    public let generatedTokens: Int

    init(_ usage: siskin_generation_usage) {
        promptTokens = Int(clamping: usage.prompt_tokens)
        cachedTokens = Int(clamping: usage.cached_tokens)
        generatedTokens = Int(clamping: usage.generated_tokens)
    }
}

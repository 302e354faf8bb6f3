import Foundation

/// Responses that are decoded.
extension Session {
    /// Adds a user message, and decodes the response: `try await session.response(to: "A recipe", as: Recipe.self)`.
    ///
    /// The response must be JSON of `StructuredOutput.jsonSchema(for:)`, whatever `setStructuredOutput(_:)` says. The model
    /// does not see the schema: describe the properties in the prompt. Waits while the session is paused. Throws
    /// `SiskinError.Code.tooLong` if the response reaches the maximum number of tokens or the end of the context, and
    /// `SiskinError.Code.corrupt` if the type rejects the response.
    public nonisolated func response<T: Decodable & Sendable>(
        to text: String,
        as type: T.Type
    ) async throws(SiskinError) -> T {
        let schema = try StructuredOutput.jsonSchema(for: type)
        return try decodeResponse(try await wholeAnswer(to: .text(text), output: schema))
    }

    /// Decodes the response to a conversation, which replaces the previous one.
    public nonisolated func response<T: Decodable & Sendable>(
        to messages: [Message],
        as type: T.Type
    ) async throws(SiskinError) -> T {
        let schema = try StructuredOutput.jsonSchema(for: type)
        return try decodeResponse(try await wholeAnswer(to: .messages(messages), output: schema))
    }

    private func wholeAnswer(to prompt: Prompt, output: StructuredOutput) async throws(SiskinError) -> FinishedResponse {
        let previous = structuredOutput
        try setStructuredOutput(output)
        // A session that is closed or poisoned reports it in its next call.
        defer { try? setStructuredOutput(previous) }
        var response = FinishedResponse()
        let chunks = AnswerIterator(self, prompt)
        while let chunk = try await chunks.next() { response.append(chunk) }
        return response
    }
}

extension ServedModel {
    /// Submits a prompt, and decodes the response: `try await model.response(to: "A recipe", as: Recipe.self)`.
    ///
    /// The response must be JSON of `StructuredOutput.jsonSchema(for:)`, whatever `RequestOptions.structuredOutput` is. The
    /// model does not see the schema: describe the properties in the prompt. Canceling the task cancels the request.
    /// Throws `SiskinError.Code.tooLong` if the response reaches the maximum number of tokens or the end of the context,
    /// `SiskinError.Code.canceled` if it is canceled or its timeout expires, and `SiskinError.Code.corrupt` if the type
    /// rejects the response.
    public func response<T: Decodable & Sendable>(
        to text: String,
        as type: T.Type,
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> T {
        try decodeResponse(try await FinishedResponse(submit(text, options: typed(type, options))))
    }

    /// Submits a conversation, and decodes the response.
    public func response<T: Decodable & Sendable>(
        to messages: [Message],
        as type: T.Type,
        options: RequestOptions = RequestOptions()
    ) async throws(SiskinError) -> T {
        try decodeResponse(try await FinishedResponse(submit(messages, options: typed(type, options))))
    }

    private func typed<T: Decodable>(
        _ type: T.Type,
        _ options: RequestOptions
    ) throws(SiskinError) -> RequestOptions {
        var options = options
        options.structuredOutput = try .jsonSchema(for: type)
        return options
    }
}

/// The text of a response, and why it ended.
struct FinishedResponse: Sendable {
    private(set) var text = ""
    private(set) var reason: FinishReason?

    init() {}

    /// Takes all chunks of a generation.
    init(_ generation: Generation) async throws(SiskinError) {
        while let chunk = try await generation.next() { append(chunk) }
    }

    mutating func append(_ chunk: TextChunk) {
        text += chunk.text
        reason = chunk.finishReason
    }

    /// Throws if the request was canceled.
    func checkCancellation() throws(SiskinError) {
        switch reason {
        case .canceled: throw SiskinError(.canceled, location: "request", message: "was canceled")
        case .timeout: throw SiskinError(.canceled, location: "request", message: "its timeout expired")
        default: return
        }
    }
}

private func decodeResponse<T: Decodable>(_ response: FinishedResponse) throws(SiskinError) -> T {
    try response.checkCancellation()
    if response.reason == .length || response.reason == .context {
        let message = "ended before its JSON was complete; allow more tokens, or use a type with fewer or shorter values"
        throw SiskinError(.tooLong, location: "response", message: message)
    }
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    do { return try decoder.decode(T.self, from: Data(response.text.utf8)) } catch {
        throw SiskinError(.corrupt, location: "response", message: "\(T.self) rejected it: \(error)")
    }
}

import CSiskin
import Foundation

/// A loaded model. Any number of tasks may use it concurrently.
///
/// Sessions, encoders, seq2seq generators and transcribers keep their model loaded, so it may be closed or released
/// before them.
public final class Model: Sendable {
    let handle: NativeHandle

    init(handle: NativeHandle) { self.handle = handle }

    /// Closes the model; later calls throw. Objects that were created from it keep working, and keep it in memory until
    /// the last of them is closed or deinitialized.
    public func close() { handle.close() }

    /// Returns the properties of the model.
    public func info() throws(SiskinError) -> ModelInfo {
        try handle.use { model throws(SiskinError) in
            ModelInfo(try readStruct(siskin_model_info(), \.struct_size) { siskin_model_describe(model, &$0) })
        }
    }

    /// Returns warnings about the model, for example that it cannot use the fast kernels.
    public func warnings() throws(SiskinError) -> [String] {
        try handle.use { model throws(SiskinError) in
            let info = try readStruct(siskin_model_info(), \.struct_size) { siskin_model_describe(model, &$0) }
            var warnings: [String] = []
            for index in 0..<info.warning_count {
                var start: UnsafePointer<CChar>?
                var length = 0
                try check(siskin_model_warning(model, index, &start, &length))
                warnings.append(string(start, length))
            }
            return warnings
        }
    }

    /// Returns the memory that a session with these options would use, without allocating it.
    public func sessionMemory(for options: SessionOptions = SessionOptions()) throws(SiskinError) -> MemoryUsage {
        let options = try options.makeNative()
        return try handle.use { model throws(SiskinError) in
            try options.use { options throws(SiskinError) in
                MemoryUsage(try readStruct(siskin_memory_usage(), \.struct_size) {
                    siskin_model_session_memory(model, options, &$0)
                })
            }
        }
    }

    /// Tokenizes text. Special tokens in the text are treated as plain text.
    ///
    /// - Parameter addingSpecialTokens: Whether to add the special tokens that the model expects around a text.
    public func tokenize(_ text: String, addingSpecialTokens: Bool = true) throws(SiskinError) -> [UInt32] {
        try handle.use { model throws(SiskinError) in
            // The number of tokens rarely exceeds the number of bytes plus a few.
            var ids = [UInt32](repeating: 0, count: text.utf8.count + 8)
            while true {
                let capacity = ids.count
                var count = 0
                try check(
                    withUTF8(text) { siskin_model_tokenize(model, $0, $1, addingSpecialTokens, &ids, capacity, &count) }
                )
                if count <= capacity { return Array(ids[..<count]) }
                ids = [UInt32](repeating: 0, count: count)
            }
        }
    }

    /// Returns the bytes of a token, which may be a partial character.
    public func bytes(ofToken id: UInt32) throws(SiskinError) -> [UInt8] {
        try handle.use { model throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_model_token_bytes(model, id, &bytes, &length))
            return array(bytes, length)
        }
    }

    /// Verifies all hashes of the model file, which reads the whole file.
    public func verify() async throws(SiskinError) {
        try await runInBackground { _ throws(SiskinError) in
            try self.handle.use { model throws(SiskinError) in try check(siskin_model_verify(model)) }
        }
    }
}

/// Properties of a model.
public struct ModelInfo: Sendable, Hashable {
    /// The name of the model family, such as `llama`.
    public let family: String
    /// The context length that the model was trained for, in tokens.
    public let contextLength: Int
    /// The vocabulary size.
    public let vocabularySize: Int
    /// The hidden size.
    public let hiddenSize: Int
    /// The size of the model file in bytes.
    public let fileSize: Int
    /// The number of worker threads.
    public let threads: Int
    /// What the model can do.
    public let capabilities: Set<Capability>

    init(_ info: siskin_model_info) {
        family = string(info.family, info.family_length)
        contextLength = Int(clamping: info.context_length)
        vocabularySize = Int(clamping: info.vocabulary_size)
        hiddenSize = Int(clamping: info.hidden_size)
        fileSize = Int(clamping: info.file_size)
        threads = Int(info.threads)
        capabilities = Set(Capability.allCases.filter { info.capabilities & $0.flag != 0 })
    }
}

/// What a model can do.
public enum Capability: Sendable, Hashable, CaseIterable {
    /// Generates text: `Session`, `Seq2Seq`.
    case generate
    /// Encodes texts: `TextEncoder`. With `generate`, the model is an encoder-decoder model: use `Seq2Seq`.
    case encode
    /// Has a chat template.
    case chat
    /// Has a tokenizer: accepts text.
    case tokenize
    /// Transcribes speech: `Transcriber`.
    case transcribe
    /// Has a classification head: `TextEncoder.classify(_:)`, `TextEncoder.rerank(_:for:)`.
    case classify
    /// Has a token classification head: `TextEncoder.tag(_:)`.
    case tag
    /// Has an extractive question answering head: `TextEncoder.answer(_:in:)`.
    case answer
    /// Has a fill-mask head: `TextEncoder.fillMasks(in:count:)`.
    case fillMask

    fileprivate var flag: UInt32 {
        let flag =
            switch self {
            case .generate: SISKIN_CAPABILITY_GENERATE
            case .encode: SISKIN_CAPABILITY_ENCODE
            case .chat: SISKIN_CAPABILITY_CHAT
            case .tokenize: SISKIN_CAPABILITY_TOKENIZE
            case .transcribe: SISKIN_CAPABILITY_TRANSCRIBE
            case .classify: SISKIN_CAPABILITY_CLASSIFY
            case .tag: SISKIN_CAPABILITY_TAG
            case .answer: SISKIN_CAPABILITY_ANSWER
            case .fillMask: SISKIN_CAPABILITY_FILL_MASK
            }
        return flag.rawValue
    }
}

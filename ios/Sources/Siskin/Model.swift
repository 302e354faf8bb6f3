import CSiskin
import Foundation

/// A loaded model. Any tasks may use it concurrently; objects created from it keep it alive, so that it may be closed
/// first.
public final class Model: Sendable {
    let owner: Owner

    init(_ owner: Owner) { self.owner = owner }

    /// Releases the model now; later calls throw. Objects created from it keep working. Otherwise it is freed with its
    /// last user.
    public func close() { owner.close() }

    /// Returns the properties of the model.
    public func info() throws(SiskinError) -> ModelInfo {
        try owner.lend { model throws(SiskinError) in
            ModelInfo(try filled(siskin_model_info(), \.struct_size) { siskin_model_describe(model, &$0) })
        }
    }

    /// Returns notes on how the model runs, such as that it is slower than possible.
    public func notes() throws(SiskinError) -> [String] {
        try owner.lend { model throws(SiskinError) in
            let info = try filled(siskin_model_info(), \.struct_size) { siskin_model_describe(model, &$0) }
            var notes: [String] = []
            for index in 0..<info.notes {
                var start: UnsafePointer<CChar>?
                var length = 0
                try check(siskin_model_note(model, index, &start, &length))
                notes.append(text(start, length))
            }
            return notes
        }
    }

    /// Returns the memory that a session with these options would use, without allocating it.
    public func plan(_ options: SessionOptions = SessionOptions()) throws(SiskinError) -> Memory {
        let options = try options.native()
        return try owner.lend { model throws(SiskinError) in
            try options.lend { options throws(SiskinError) in
                Memory(try filled(siskin_memory(), \.struct_size) { siskin_model_plan(model, options, &$0) })
            }
        }
    }

    /// Tokenizes a text. `special` adds the special tokens that the model expects around a text; control tokens spelled
    /// out in the text are always tokenized as plain text.
    public func tokenize(_ text: String, special: Bool = true) throws(SiskinError) -> [UInt32] {
        try owner.lend { model throws(SiskinError) in
            // The number of tokens rarely exceeds the number of bytes plus a few.
            var ids = [UInt32](repeating: 0, count: text.utf8.count + 8)
            while true {
                let room = ids.count
                var count = 0
                try check(withText(text) { siskin_model_tokenize(model, $0, $1, special, &ids, room, &count) })
                if count <= room { return Array(ids[..<count]) }
                ids = [UInt32](repeating: 0, count: count)
            }
        }
    }

    /// Returns the bytes of a token, which may be a partial character.
    public func token(_ id: UInt32) throws(SiskinError) -> [UInt8] {
        try owner.lend { model throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_model_token(model, id, &bytes, &length))
            return values(bytes, length)
        }
    }

    /// Creates a session: for models that generate text.
    public func session(_ options: SessionOptions = SessionOptions()) async throws(SiskinError) -> Session {
        try await Session(self, options: options)
    }

    /// Creates an encoder: for models that encode whole texts.
    public func encoder(_ options: EncoderOptions = EncoderOptions()) async throws(SiskinError) -> Encoder {
        try await Encoder(self, options: options)
    }

    /// Creates a writer: for text-to-text models.
    public func writer(rows: Int = 0, context: Int = 0) async throws(SiskinError) -> Writer {
        try await Writer(self, rows: rows, context: context)
    }

    /// Creates a transcriber: for speech-to-text models.
    public func transcriber(
        _ options: TranscriberOptions = TranscriberOptions()
    ) async throws(SiskinError) -> Transcriber {
        try await Transcriber(self, options: options)
    }

    /// Verifies all hashes of the model's file, which reads all of it.
    public func verify() async throws(SiskinError) {
        try await aside { _ throws(SiskinError) in
            try self.owner.lend { model throws(SiskinError) in try check(siskin_model_verify(model)) }
        }
    }
}

/// Properties of a model.
public struct ModelInfo: Sendable, Hashable {
    /// The name of its family.
    public let family: String
    /// The context length that it was trained for, in tokens.
    public let context: Int
    /// The vocabulary size.
    public let vocabulary: Int
    /// The hidden size.
    public let width: Int
    /// The size of its file in bytes.
    public let bytes: UInt64
    /// The number of worker threads.
    public let threads: Int
    /// Its capabilities.
    public let abilities: Abilities

    init(_ info: siskin_model_info) {
        family = text(info.family, info.family_length)
        context = Int(clamping: info.context)
        vocabulary = Int(clamping: info.vocabulary)
        width = Int(clamping: info.width)
        bytes = info.bytes
        threads = Int(info.threads)
        abilities = Abilities(rawValue: info.abilities)
    }

    /// Capabilities of models.
    public struct Abilities: OptionSet, Sendable, Hashable {
        /// The bits of the header.
        public let rawValue: UInt32
        /// Creates a set from bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }
        private init(_ bit: Int32) { rawValue = UInt32(bit) }

        /// Text generation: sessions and writers.
        public static let writes = Abilities(SISKIN_MODEL_WRITES)
        /// Encoding of whole texts: encoders, or writers if it also generates.
        public static let reads = Abilities(SISKIN_MODEL_READS)
        /// A chat template.
        public static let chats = Abilities(SISKIN_MODEL_CHATS)
        /// A tokenizer: it accepts text.
        public static let takesText = Abilities(SISKIN_MODEL_TAKES_TEXT)
        /// Speech to text: transcribers.
        public static let listens = Abilities(SISKIN_MODEL_LISTENS)
        /// A classification head, which also scores pairs.
        public static let classifies = Abilities(SISKIN_MODEL_CLASSIFIES)
        /// A token classification head.
        public static let tags = Abilities(SISKIN_MODEL_TAGS)
        /// An extractive question answering head.
        public static let answers = Abilities(SISKIN_MODEL_ANSWERS)
        /// A fill-mask head.
        public static let fills = Abilities(SISKIN_MODEL_FILLS)
    }
}

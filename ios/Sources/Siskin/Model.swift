import CSiskin
import Foundation

/// An open model. Any tasks may use it together; what is made of it keeps it alive, so that it may be closed first.
public final class Model: Sendable {
    let owner: Owner

    init(_ owner: Owner) { self.owner = owner }

    /// Lets go of the model now; later calls throw. What was made of it works on. Otherwise it goes with its last user.
    public func close() { owner.close() }

    /// What the model is.
    public func info() throws(SiskinError) -> ModelInfo {
        try owner.lend { model throws(SiskinError) in
            ModelInfo(try filled(siskin_model_info(), \.struct_size) { siskin_model_describe(model, &$0) })
        }
    }

    /// Notes on how the model runs, such as that it is slower than it could be.
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

    /// What a session with these options would hold in memory; nothing of it is taken.
    public func plan(_ options: SessionOptions = SessionOptions()) throws(SiskinError) -> Memory {
        let options = try options.native()
        return try owner.lend { model throws(SiskinError) in
            try options.lend { options throws(SiskinError) in
                Memory(try filled(siskin_memory(), \.struct_size) { siskin_model_plan(model, options, &$0) })
            }
        }
    }

    /// The tokens of a text. `special` says whether the tokens that the model expects around a text are added; what the
    /// text spells is never a special token.
    public func tokenize(_ text: String, special: Bool = true) throws(SiskinError) -> [UInt32] {
        try owner.lend { model throws(SiskinError) in
            // There are no more tokens than bytes and a few, nearly always.
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

    /// The bytes that a token stands for, which may be a part of a character.
    public func token(_ id: UInt32) throws(SiskinError) -> [UInt8] {
        try owner.lend { model throws(SiskinError) in
            var bytes: UnsafePointer<UInt8>?
            var length = 0
            try check(siskin_model_token(model, id, &bytes, &length))
            return values(bytes, length)
        }
    }

    /// Opens a session: for models that write.
    public func session(_ options: SessionOptions = SessionOptions()) async throws(SiskinError) -> Session {
        try await Session(self, options: options)
    }

    /// Opens an encoder: for models that read whole texts.
    public func encoder(_ options: EncoderOptions = EncoderOptions()) async throws(SiskinError) -> Encoder {
        try await Encoder(self, options: options)
    }

    /// Opens a writer: for models that write texts for texts.
    public func writer(rows: Int = 0, context: Int = 0) async throws(SiskinError) -> Writer {
        try await Writer(self, rows: rows, context: context)
    }

    /// Opens a transcriber: for models that listen.
    public func transcriber(
        _ options: TranscriberOptions = TranscriberOptions()
    ) async throws(SiskinError) -> Transcriber {
        try await Transcriber(self, options: options)
    }

    /// Compares all hashes of the model's file with what they stand for, which reads all of it.
    public func verify() async throws(SiskinError) {
        try await aside { _ throws(SiskinError) in
            try self.owner.lend { model throws(SiskinError) in try check(siskin_model_verify(model)) }
        }
    }
}

/// What a model is.
public struct ModelInfo: Sendable, Hashable {
    /// The name of its family.
    public let family: String
    /// The most tokens that it was made for.
    public let context: Int
    /// Tokens of its vocabulary.
    public let vocabulary: Int
    /// Columns of its hidden states.
    public let width: Int
    /// Bytes of its file.
    public let bytes: UInt64
    /// Threads that compute.
    public let threads: Int
    /// What it can do.
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

    /// What models can do.
    public struct Abilities: OptionSet, Sendable, Hashable {
        /// The header's bits.
        public let rawValue: UInt32
        /// Abilities of these bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }
        private init(_ bit: Int32) { rawValue = UInt32(bit) }

        /// It writes: it can have sessions and writers.
        public static let writes = Abilities(SISKIN_MODEL_WRITES)
        /// It reads whole texts: it can have encoders, or writers where it writes too.
        public static let reads = Abilities(SISKIN_MODEL_READS)
        /// It has a chat template.
        public static let chats = Abilities(SISKIN_MODEL_CHATS)
        /// It has a tokenizer: it takes text.
        public static let takesText = Abilities(SISKIN_MODEL_TAKES_TEXT)
        /// It listens: it can have transcribers.
        public static let listens = Abilities(SISKIN_MODEL_LISTENS)
        /// Its head tells classes, and scores pairs.
        public static let classifies = Abilities(SISKIN_MODEL_CLASSIFIES)
        /// Its head labels tokens.
        public static let tags = Abilities(SISKIN_MODEL_TAGS)
        /// Its head finds answers.
        public static let answers = Abilities(SISKIN_MODEL_ANSWERS)
        /// Its head fills masked places.
        public static let fills = Abilities(SISKIN_MODEL_FILLS)
    }
}

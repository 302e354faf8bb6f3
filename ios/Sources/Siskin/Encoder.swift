import CSiskin

/// Options of an encoder.
public struct EncoderOptions: Sendable, Hashable {
    /// Whether to use the model's head: required for classes, labels, scores and answers, not allowed for embeddings.
    public var head = false
    /// The maximum number of tokens of one forward pass; 0: 512.
    public var batch = 0
    /// The type of the KV cache.
    public var cacheType = CacheType.auto
    /// How texts with more tokens than the model's maximum are handled.
    public var long = LongTexts.refuse
    /// How hidden states are pooled to one vector; `nil`: the model's own pooling.
    public var pooling: Pooling?

    /// The defaults.
    public init() {}

    /// The defaults, with the model's head.
    public static var withHead: EncoderOptions {
        var options = EncoderOptions()
        options.head = true
        return options
    }
}

/// How texts with too many tokens are handled.
public enum LongTexts: Sendable, Hashable {
    /// Rejected.
    case refuse
    /// Truncated to the model's maximum length.
    case cut
    /// Split into overlapping windows.
    case parts(overlap: Int)

    func native() throws(SiskinError) -> (UInt32, Int) {
        switch self {
        case .refuse: (UInt32(SISKIN_LONG_REFUSE), 0)
        case .cut: (UInt32(SISKIN_LONG_CUT), 0)
        case .parts(let overlap): (UInt32(SISKIN_LONG_PARTS), try number(overlap, "overlap"))
        }
    }
}

/// How hidden states are pooled to one vector.
public struct Pooling: Sendable, Hashable {
    /// The type of pooling.
    public var kind: Kind
    /// Whether embeddings are normalized to unit length.
    public var normalize: Bool
    /// How many dimensions are kept, for Matryoshka models; 0: all.
    public var columns: Int

    /// Creates a pooling.
    public init(_ kind: Kind = .auto, normalize: Bool = true, columns: Int = 0) {
        (self.kind, self.normalize, self.columns) = (kind, normalize, columns)
    }

    /// Types of pooling.
    public enum Kind: Sendable, Hashable {
        /// The model's own pooling.
        case auto
        /// The mean over all tokens.
        case mean
        /// The first token (CLS).
        case first
        /// The last token.
        case last
        /// The maximum of each column.
        case max
        /// The mean, weighted by position: 1, 2, 3, …
        case weighted
    }

    func tell(_ encoder: OpaquePointer) throws(SiskinError) {
        let kind =
            switch kind {
            case .auto: SISKIN_POOLING_AUTO
            case .mean: SISKIN_POOLING_MEAN
            case .first: SISKIN_POOLING_FIRST
            case .last: SISKIN_POOLING_LAST
            case .max: SISKIN_POOLING_MAX
            case .weighted: SISKIN_POOLING_WEIGHTED
            }
        try check(siskin_encoder_set_pooling(encoder, UInt32(kind), normalize, try number(columns, "columns")))
    }
}

/// Encodes whole texts. Calls run one after the other, on a thread of the encoder; canceling the task of a call stops
/// it.
public actor Encoder {
    private let worker: Worker
    private let queue = Queue("encoder")

    /// Calls run here.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    /// Creates an encoder.
    public init(_ model: Model, options: EncoderOptions = EncoderOptions()) async throws(SiskinError) {
        worker = try await aside { _ throws(SiskinError) in
            let batch: Int = try number(options.batch, "batch")
            let encoder = try model.owner.lend { model throws(SiskinError) in
                try made { siskin_encoder_new(model, options.head, batch, options.cacheType.native, &$0) }
            }
            let owner = Owner(encoder, "encoder", free: { siskin_encoder_free($0) })
            try owner.lend { encoder throws(SiskinError) in
                let (long, overlap) = try options.long.native()
                try check(siskin_encoder_set_long(encoder, long, overlap))
                try options.pooling?.tell(encoder)
            }
            return try Worker(owner, stopper: { siskin_encoder_stopper($0, &$1) })
        }
    }

    /// Stops the running call within milliseconds.
    public nonisolated func stop() { worker.stop() }

    /// Stops the running call, waits for it, and releases the encoder; later calls throw. May be called again.
    public nonisolated func close() async {
        worker.close()
        await settle()
    }

    private func settle() {}

    /// Returns the embedding of each text.
    public func embed(_ texts: [String]) async throws(SiskinError) -> [[Float]] {
        try await read(texts) { siskin_encoder_embed($0, $1) } each: { encoder, index throws(SiskinError) in
            var start: UnsafePointer<Float>?
            var count = 0
            try check(siskin_encoder_vector(encoder, index, &start, &count))
            return values(start, count)
        }
    }

    /// Returns the embedding of a text.
    public func embed(_ text: String) async throws(SiskinError) -> [Float] { try await embed([text])[0] }

    /// Classifies each text, with the most probable class first.
    public func classify(_ texts: [String]) async throws(SiskinError) -> [[Found]] {
        try await read(texts) { siskin_encoder_classify($0, $1) } each: { encoder, index throws(SiskinError) in
            try Encoder.found(encoder, index)
        }
    }

    /// Scores the relevance of each text to a query with a cross-encoder: only the order is meaningful.
    public func rerank(_ question: String, _ texts: [String]) async throws(SiskinError) -> [Float] {
        try await read(texts) { encoder, texts in
            withText(question) { siskin_encoder_rerank(encoder, $0, $1, texts) }
        } each: { encoder, index throws(SiskinError) in
            try filled(siskin_found(), \.struct_size) { siskin_encoder_found(encoder, index, 0, &$0) }.score
        }
    }

    /// Finds the labeled spans of each text, such as named entities.
    public func tag(_ texts: [String]) async throws(SiskinError) -> [[Found]] {
        try await read(texts) { siskin_encoder_tag($0, $1) } each: { encoder, index throws(SiskinError) in
            try Encoder.found(encoder, index)
        }
    }

    /// Finds the most probable span of each text that answers a question; `nil` if there is none.
    public func answer(_ question: String, in texts: [String]) async throws(SiskinError) -> [Found?] {
        try await read(texts) { encoder, texts in
            withText(question) { siskin_encoder_answer(encoder, $0, $1, texts) }
        } each: { encoder, index throws(SiskinError) in
            try Encoder.found(encoder, index).first
        }
    }

    /// Predicts the `count` most probable tokens for each mask token of a text.
    public func fillMask(_ text: String, count: Int = 5) async throws(SiskinError) -> [[Found]] {
        let count: Int = try number(count, "count")
        return try await worker.run { encoder throws(SiskinError) in
            try check(withText(text) { siskin_encoder_fill_mask(encoder, $0, $1, count) })
            var count = 0
            try check(siskin_encoder_found_places(encoder, &count))
            var places: [[Found]] = []
            for place in 0..<count { places.append(try Encoder.found(encoder, place)) }
            return places
        }
    }

    /// Encodes texts, and reads the results of each.
    private func read<T: Sendable>(
        _ texts: [String],
        _ read: @Sendable (OpaquePointer, OpaquePointer) -> OpaquePointer?,
        each: @Sendable (OpaquePointer, Int) throws(SiskinError) -> T
    ) async throws(SiskinError) -> [T] {
        let native = try Texts(texts)
        return try await worker.run { encoder throws(SiskinError) in
            try native.owner.lend { texts throws(SiskinError) in try check(read(encoder, texts)) }
            var results: [T] = []
            for index in texts.indices { results.append(try each(encoder, index)) }
            return results
        }
    }

    /// Returns all results of a text.
    private static func found(_ encoder: OpaquePointer, _ index: Int) throws(SiskinError) -> [Found] {
        var count = 0
        try check(siskin_encoder_found_count(encoder, index, &count))
        var all: [Found] = []
        for rank in 0..<count {
            all.append(Found(try filled(siskin_found(), \.struct_size) { siskin_encoder_found(encoder, index, rank, &$0) }))
        }
        return all
    }
}

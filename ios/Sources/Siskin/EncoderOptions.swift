import CSiskin

/// Options for a text encoder. `nil` means the default.
public struct EncoderOptions: Sendable, Hashable {
    /// Whether to use the model's task head: required for `classify`, `rerank`, `tag`, `answer` and `fillMasks`; must
    /// be off for `embed`.
    public var useHead: Bool
    /// The maximum number of tokens in one forward pass. Default: 512.
    public var maxBatchTokens: Int?
    /// The dtype in which keys and values are kept during a pass. Default: the model's own.
    public var kvCacheType: KVCacheType?
    /// How texts with more tokens than the model accepts are handled.
    public var onOverflow: OverflowMode
    /// How hidden states are pooled into an embedding. Default: the pooling that the model was trained with.
    public var pooling: Pooling?
    /// When texts of `classify` and `rerank` leave the model before its last layer; `nil`: never. Needs a model with
    /// classification heads on intermediate layers.
    public var earlyExit: EarlyExit?

    /// Creates options.
    public init(
        useHead: Bool = false,
        maxBatchTokens: Int? = nil,
        kvCacheType: KVCacheType? = nil,
        onOverflow: OverflowMode = .error,
        pooling: Pooling? = nil,
        earlyExit: EarlyExit? = nil
    ) {
        self.useHead = useHead
        self.maxBatchTokens = maxBatchTokens
        self.kvCacheType = kvCacheType
        self.onOverflow = onOverflow
        self.pooling = pooling
        self.earlyExit = earlyExit
    }
}

/// When a text has passed enough layers to be classified.
public enum EarlyExit: Sendable, Hashable {
    /// When the most likely class has at least this probability.
    case confidence(Float)
    /// When the entropy of the classes is below this, in nats (DeeBERT).
    case entropy(Float)
    /// When this many consecutive heads agree with the one before them (PABEE).
    case patience(Int)

    static func apply(_ earlyExit: Self?, to encoder: OpaquePointer) throws(SiskinError) {
        let (criterion, threshold): (siskin_exit_criterion, Float) =
            switch earlyExit {
            case nil: (SISKIN_EXIT_NEVER, 0)
            case .confidence(let probability): (SISKIN_EXIT_CONFIDENCE, probability)
            case .entropy(let nats): (SISKIN_EXIT_ENTROPY, nats)
            case .patience(let heads): (SISKIN_EXIT_PATIENCE, Float(heads))
            }
        try check(siskin_encoder_set_early_exit(encoder, criterion, threshold))
    }
}

/// How texts with more tokens than the model accepts are handled.
public enum OverflowMode: Sendable, Hashable {
    /// Throws an error with the code `tooLong`.
    case error
    /// Truncates the text to the maximum length.
    case truncate
    /// Splits the text into windows that overlap by a number of tokens. Not for tasks that need one result per text,
    /// such as `rerank`.
    case window(overlap: Int)

    func makeNative() throws(SiskinError) -> (mode: siskin_overflow_mode, overlap: Int) {
        switch self {
        case .error: (SISKIN_OVERFLOW_ERROR, 0)
        case .truncate: (SISKIN_OVERFLOW_TRUNCATE, 0)
        case .window(let overlap): (SISKIN_OVERFLOW_WINDOW, try native(overlap, "overlap"))
        }
    }
}

/// How hidden states are pooled into an embedding.
public struct Pooling: Sendable, Hashable {
    /// The pooling operation; `nil` means the one that the model was trained with.
    public var operation: Operation?
    /// Whether embeddings are normalized to unit length.
    public var normalize: Bool
    /// The number of leading dimensions to keep, for Matryoshka models; `nil` means all.
    public var dimensions: Int?

    /// Creates a pooling configuration.
    public init(_ operation: Operation? = nil, normalize: Bool = true, dimensions: Int? = nil) {
        (self.operation, self.normalize, self.dimensions) = (operation, normalize, dimensions)
    }

    /// Pooling operations.
    public enum Operation: Sendable, Hashable {
        /// The mean over all tokens.
        case mean
        /// The first token (CLS).
        case cls
        /// The last token.
        case lastToken
        /// The maximum over all tokens.
        case max
        /// The mean over all tokens, weighted by position: 1, 2, 3, …
        case weightedMean
    }

    func apply(to encoder: OpaquePointer) throws(SiskinError) {
        let operation =
            switch operation {
            case nil: SISKIN_POOLING_AUTO
            case .mean: SISKIN_POOLING_MEAN
            case .cls: SISKIN_POOLING_FIRST
            case .lastToken: SISKIN_POOLING_LAST
            case .max: SISKIN_POOLING_MAX
            case .weightedMean: SISKIN_POOLING_WEIGHTED
            }
        let dimensions: Int = try native(dimensions ?? 0, "dimensions")
        try check(siskin_encoder_set_pooling(encoder, operation, normalize, dimensions))
    }
}

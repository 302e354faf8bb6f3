import CSiskin

/// The dtype of the KV cache.
public enum KVCacheType: Sendable, Hashable {
    /// int8 with scales: half the memory of `f16`.
    case int8
    /// f16.
    case f16
    /// f32.
    case f32
}

extension KVCacheType? {
    /// The constant of the header; `nil` is the default of the model.
    var native: siskin_kv_cache_type {
        switch self {
        case nil: SISKIN_KV_CACHE_AUTO
        case .int8: SISKIN_KV_CACHE_INT8
        case .f16: SISKIN_KV_CACHE_F16
        case .f32: SISKIN_KV_CACHE_F32
        }
    }
}

/// A sliding window of attention with attention sinks.
public struct SlidingWindow: Sendable, Hashable {
    /// The number of newest tokens that are attended to.
    public var recent: Int
    /// The number of oldest tokens that are attended to as well (attention sinks).
    public var sinks: Int

    /// Creates a sliding window, by default without attention sinks, unlike `siskin --attention-sinks`, whose default
    /// is 4.
    public init(recent: Int, sinks: Int = 0) { (self.recent, self.sinks) = (recent, sinks) }
}

/// Options of a session. `nil` means the default.
public struct SessionOptions: Sendable, Hashable {
    /// The context length: the maximum number of tokens of the conversation or sequence. Default: that of the model,
    /// but at most 2048.
    public var context: Int?
    /// The maximum number of tokens of one prefill batch. A larger batch is faster and takes more memory; the generated
    /// text is the same. Default: 256.
    public var maxBatchTokens: Int?
    /// The maximum size of activations and KV cache together, in bytes. A session that would take more is rejected with
    /// an error that names the longest context that fits. Default: no limit.
    public var memoryBudget: Int?
    /// Limits attention to a sliding window, so that the KV cache is smaller. Default: the attention mask of the model.
    public var window: SlidingWindow?
    /// The dtype of the KV cache. Default: that of the model.
    public var kvCacheType: KVCacheType?
    /// The maximum number of tokens of an answer. Default: as many as the context has space for.
    public var maxTokens: Int?
    /// The sampling options.
    public var sampler: Sampler
    /// Stop strings: they end an answer where they occur, and are not a part of it.
    public var stopStrings: [String]

    /// Creates options.
    public init(
        context: Int? = nil,
        maxBatchTokens: Int? = nil,
        memoryBudget: Int? = nil,
        window: SlidingWindow? = nil,
        kvCacheType: KVCacheType? = nil,
        maxTokens: Int? = nil,
        sampler: Sampler = Sampler(),
        stopStrings: [String] = []
    ) {
        self.context = context
        self.maxBatchTokens = maxBatchTokens
        self.memoryBudget = memoryBudget
        self.window = window
        self.kvCacheType = kvCacheType
        self.maxTokens = maxTokens
        self.sampler = sampler
        self.stopStrings = stopStrings
    }

    /// Creates the native form of these options.
    func makeNative() throws(SiskinError) -> NativeHandle {
        let handle = NativeHandle(
            try makeHandle { siskin_session_options_new(&$0) },
            "session options",
            free: { siskin_session_options_free($0) }
        )
        let sampler = try sampler.makeNative()
        try handle.use { options throws(SiskinError) in
            if let context { try check(siskin_session_options_set_context(options, try native(context, "context"))) }
            if let maxBatchTokens {
                let tokens: Int = try native(maxBatchTokens, "maxBatchTokens")
                try check(siskin_session_options_set_max_batch_tokens(options, tokens))
            }
            if let memoryBudget {
                try check(siskin_session_options_set_memory_budget(options, try native(memoryBudget, "memoryBudget")))
            }
            if let window {
                let recent: Int = try native(window.recent, "recent")
                try check(siskin_session_options_set_window(options, recent, try native(window.sinks, "sinks")))
            }
            try check(siskin_session_options_set_kv_cache_type(options, kvCacheType.native))
            if let maxTokens {
                try check(siskin_session_options_set_max_tokens(options, try native(maxTokens, "maxTokens")))
            }
            for string in stopStrings {
                try check(withUTF8(string) { siskin_session_options_add_stop_string(options, $0, $1) })
            }
            try sampler.use { sampler throws(SiskinError) in
                try check(siskin_session_options_set_sampler(options, sampler))
            }
        }
        return handle
    }
}

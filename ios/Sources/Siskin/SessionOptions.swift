import CSiskin

/// The type of the KV cache.
public enum CacheType: Sendable, Hashable {
    /// The default of the model.
    case auto
    /// int8 with scales: half the memory of `f16`.
    case int8
    /// f16.
    case f16
    /// f32.
    case f32

    var native: UInt32 {
        switch self {
        case .auto: UInt32(SISKIN_CACHE_TYPE_AUTO)
        case .int8: UInt32(SISKIN_CACHE_TYPE_INT8)
        case .f16: UInt32(SISKIN_CACHE_TYPE_F16)
        case .f32: UInt32(SISKIN_CACHE_TYPE_F32)
        }
    }
}

/// Options of a session.
public struct SessionOptions: Sendable, Hashable {
    /// The context length: the maximum number of tokens of the conversation or sequence; 0: the model's own, but no
    /// more than 2048.
    public var context = 0
    /// The maximum number of tokens of one prefill batch; `nil`: 256. A larger batch is faster and takes more memory;
    /// the generated text is the same.
    public var batch: Int?
    /// The maximum size of activations and KV cache together, in bytes; 0: no limit. A session that would take more is
    /// rejected with an error that names the longest context that fits.
    public var budget: UInt64 = 0
    /// Limits attention to a sliding window, so that the KV cache is smaller; `nil`: the model's own attention mask.
    public var window: Window?
    /// The type of the KV cache.
    public var cacheType = CacheType.auto
    /// The maximum number of tokens of an answer; 0: as many as the context has room for.
    public var maxTokens = 0
    /// The sampling options; `nil`: the defaults.
    public var sampler: Sampler?
    /// Stop strings: they end an answer where they occur, and are not a part of it.
    public var stops: [String] = []

    /// A sliding window with attention sinks.
    public struct Window: Sendable, Hashable {
        /// How many of the newest tokens are visible.
        public var recent: Int
        /// How many of the oldest tokens stay visible (attention sinks).
        public var first: Int
        /// Creates a window.
        public init(recent: Int, first: Int = 0) { (self.recent, self.first) = (recent, first) }
    }

    /// The defaults.
    public init() {}

    /// Creates the native form of these options.
    func native() throws(SiskinError) -> Owner {
        let owner = Owner(try made { siskin_session_options_new(&$0) }, "session options", free: { siskin_session_options_free($0) })
        try owner.lend { native throws(SiskinError) in
            try check(siskin_session_options_set_context(native, try number(context, "context")))
            if let batch { try check(siskin_session_options_set_batch(native, try number(batch, "batch"))) }
            try check(siskin_session_options_set_budget(native, budget))
            let (recent, first) = (window?.recent ?? 0, window?.first ?? 0)
            try check(siskin_session_options_set_window(native, try number(recent, "recent"), try number(first, "first")))
            try check(siskin_session_options_set_cache_type(native, cacheType.native))
            try check(siskin_session_options_set_max_tokens(native, try number(maxTokens, "maxTokens")))
            for stop in stops { try check(withText(stop) { siskin_session_options_add_stop(native, $0, $1) }) }
            guard let sampler = try sampler?.native() else { return }
            try sampler.lend { sampler throws(SiskinError) in
                try check(siskin_session_options_set_sampler(native, sampler))
            }
        }
        return owner
    }
}

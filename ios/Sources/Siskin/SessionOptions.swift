import CSiskin

/// The type of keys and values.
public enum CacheType: Sendable, Hashable {
    /// What suits the model.
    case auto
    /// Bytes with a scale: half the memory of `f16`.
    case int8
    /// Halves.
    case f16
    /// Floats.
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

/// How a session is opened.
public struct SessionOptions: Sendable, Hashable {
    /// The most tokens of the conversation or text; 0: the model's own, but no more than 2048.
    public var context = 0
    /// The most tokens of a prompt that go through the model at once; `nil`: 256. More are faster and take more memory;
    /// the same text comes out.
    public var batch: Int?
    /// The most bytes of activations, keys and values together; 0: no limit. A session that would take more is refused
    /// with an error that names the longest context that fits.
    public var budget: UInt64 = 0
    /// Lets tokens see so many of the newest and of the oldest alone, so that less is kept; `nil`: all that the model
    /// sees.
    public var window: Window?
    /// The type of keys and values.
    public var cacheType = CacheType.auto
    /// The most tokens of an answer; 0: as many as there is room for.
    public var maxTokens = 0
    /// How tokens are chosen; `nil`: the usual way.
    public var sampler: Sampler?
    /// Texts that end an answer where they come; they are not a part of it.
    public var stops: [String] = []

    /// Which tokens are seen.
    public struct Window: Sendable, Hashable {
        /// So many of the newest.
        public var recent: Int
        /// So many of the oldest.
        public var first: Int
        /// A window of these.
        public init(recent: Int, first: Int = 0) { (self.recent, self.first) = (recent, first) }
    }

    /// The usual way.
    public init() {}

    /// The library's form of these options.
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

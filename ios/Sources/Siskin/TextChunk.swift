import CSiskin

/// A chunk of generated text.
public struct TextChunk: Sendable, Hashable {
    /// Text: whole characters. Empty while a character is incomplete, or while the text may be the beginning of a stop
    /// string.
    public let text: String
    /// The bytes of the token, which may be a partial character.
    public let bytes: [UInt8]
    /// The token id; `nil` for held-back text that is flushed at the end, and for a chunk that only reports the finish
    /// reason.
    public let token: UInt32?
    /// The log-probability of the token; `nil` unless `Sampler.logProbabilities` is set.
    public let logProbability: Float?
    /// The most probable tokens at this position; empty unless `Sampler.topLogProbabilities` is set.
    public let topLogProbabilities: [TokenLogProbability]
    /// Why generation ended: set in the last chunk, and only there.
    public let finishReason: FinishReason?

    init(_ chunk: siskin_text_chunk) {
        text = string(chunk.text, chunk.length)
        bytes = array(chunk.bytes, chunk.byte_count)
        token = chunk.has_token ? chunk.token : nil
        logProbability = chunk.log_probability.isNaN ? nil : chunk.log_probability
        topLogProbabilities = array(chunk.top, chunk.top_count).map {
            TokenLogProbability(token: $0.token, logProbability: $0.log_probability)
        }
        finishReason = FinishReason(chunk.finish_reason)
    }
}

/// A token and its log-probability.
public struct TokenLogProbability: Sendable, Hashable {
    /// The token id.
    public let token: UInt32
    /// Its log-probability.
    public let logProbability: Float
}

/// How likely a text is.
public struct TextScore: Sendable, Hashable {
    /// The sum of the log-probabilities of its tokens, each given all before it.
    public let logProbability: Double
    /// The number of these tokens.
    public let tokens: Int
}

/// Why generation ended.
public enum FinishReason: Sendable, Hashable {
    /// The model generated an end-of-sequence token.
    case eos
    /// A stop string occurred.
    case stop
    /// The maximum number of tokens was reached.
    case length
    /// The context is full.
    case context
    /// The timeout of a request to an engine expired.
    case timeout
    /// A request to an engine was canceled.
    case canceled
    /// A reason that this version of the package does not know.
    case unknown(UInt32)

    init?(_ native: siskin_finish_reason) {
        switch native {
        case SISKIN_FINISH_REASON_NONE: return nil
        case SISKIN_FINISH_REASON_EOS: self = .eos
        case SISKIN_FINISH_REASON_STOP: self = .stop
        case SISKIN_FINISH_REASON_LENGTH: self = .length
        case SISKIN_FINISH_REASON_CONTEXT: self = .context
        case SISKIN_FINISH_REASON_TIMEOUT: self = .timeout
        case SISKIN_FINISH_REASON_CANCELED: self = .canceled
        default: self = .unknown(native.rawValue)
        }
    }
}

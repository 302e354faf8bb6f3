import CSiskin

/// A piece of an answer.
public struct Piece: Sendable, Hashable {
    /// Text: whole characters. Empty while a character is incomplete, or while the text may be the beginning of a stop
    /// string.
    public let text: String
    /// The bytes of the token, which may be a partial character.
    public let bytes: [UInt8]
    /// The token id; `nil` for text that was held back until the end, and for the end itself.
    public let token: UInt32?
    /// Its log-probability, if the sampler reports it.
    public let logProbability: Float?
    /// The most probable tokens at this position, if the sampler reports them.
    public let top: [Choice]
    /// The finish reason: set in the last piece of every answer, and only there.
    public let ended: Ended?

    init(_ piece: siskin_piece) {
        text = Siskin.text(piece.text, piece.length)
        bytes = values(piece.bytes, piece.byte_count)
        token = piece.has_token ? piece.token : nil
        logProbability = piece.log_probability.isNaN ? nil : piece.log_probability
        top = values(piece.top, piece.top_count).map { Choice(token: $0.token, logProbability: $0.log_probability) }
        ended = Ended(piece.ended)
    }
}

/// A candidate token.
public struct Choice: Sendable, Hashable {
    /// The token id.
    public let token: UInt32
    /// Its log-probability.
    public let logProbability: Float
}

/// Finish reasons: why an answer ended.
public enum Ended: Sendable, Hashable {
    /// The model ended it with an end-of-sequence token.
    case model
    /// A stop string occurred.
    case stop
    /// The maximum number of tokens was reached.
    case length
    /// The context is full.
    case context
    /// A reason of a newer library that this package does not know.
    case unknown(Int32)

    init?(_ native: Int32) {
        switch native {
        case SISKIN_ENDED_NOT: return nil
        case SISKIN_ENDED_MODEL: self = .model
        case SISKIN_ENDED_STOP: self = .stop
        case SISKIN_ENDED_LENGTH: self = .length
        case SISKIN_ENDED_CONTEXT: self = .context
        default: self = .unknown(native)
        }
    }
}

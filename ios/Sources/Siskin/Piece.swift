import CSiskin

/// A piece of an answer.
public struct Piece: Sendable, Hashable {
    /// Text: whole characters. Empty while a character is not whole, or what came may be the beginning of a stop text.
    public let text: String
    /// The bytes of the token, which may be a part of a character.
    public let bytes: [UInt8]
    /// The token; `nil` for text that was held back until the end, and for the end itself.
    public let token: UInt32?
    /// The logarithm of its probability, where the sampler was asked for it.
    public let logProbability: Float?
    /// The likeliest tokens in its place, where the sampler was asked for them.
    public let top: [Choice]
    /// Why the answer ended: the last piece of every answer says so, and no other.
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

/// A token that might have been chosen.
public struct Choice: Sendable, Hashable {
    /// Its id.
    public let token: UInt32
    /// The logarithm of its probability.
    public let logProbability: Float
}

/// Why an answer ended.
public enum Ended: Sendable, Hashable {
    /// The model ended it.
    case model
    /// A stop text came.
    case stop
    /// It has as many tokens as were wanted.
    case length
    /// The context is full.
    case context
    /// For a reason that this package does not know, from a later library.
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

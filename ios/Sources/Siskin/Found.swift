import CSiskin

/// One result of an encoder: a class, a labeled span, an answer or a token.
public struct Found: Sendable, Hashable {
    /// The name of the class or label, the text of the answer or of the token.
    public let text: String
    /// Its span in the text, as a range of UTF-8 bytes.
    public let bytes: Range<Int>
    /// Its probability; the predicted value of a regression model.
    public let score: Float
    /// The token id, if the result is a token.
    public let token: UInt32?

    init(_ found: siskin_found) {
        text = Siskin.text(found.text, found.length)
        bytes = found.start..<max(found.start, found.end)
        score = found.score
        token = found.token == UInt32.max ? nil : found.token
    }

    /// Returns its span in the text that it was found in; `nil` for another text.
    public func range(in text: String) -> Range<String.Index>? {
        let units = text.utf8
        guard let start = units.index(units.startIndex, offsetBy: bytes.lowerBound, limitedBy: units.endIndex),
            let end = units.index(start, offsetBy: bytes.count, limitedBy: units.endIndex),
            let first = start.samePosition(in: text), let last = end.samePosition(in: text)
        else { return nil }
        return first..<last
    }
}

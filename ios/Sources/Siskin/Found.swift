import CSiskin

/// Something that an encoder found: a class, a run with a label, an answer or a token.
public struct Found: Sendable, Hashable {
    /// The name of the class or label, the words of the answer, or the text of the token.
    public let text: String
    /// The bytes of the text that it stands for, in UTF-8.
    public let bytes: Range<Int>
    /// Its probability; of the classes of a model of numbers (`regression`), the number.
    public let score: Float
    /// The token, where it is one.
    public let token: UInt32?

    init(_ found: siskin_found) {
        text = Siskin.text(found.text, found.length)
        bytes = found.start..<max(found.start, found.end)
        score = found.score
        token = found.token == UInt32.max ? nil : found.token
    }

    /// Where it stands in the text that it was found in; `nil` for another text.
    public func range(in text: String) -> Range<String.Index>? {
        let units = text.utf8
        guard let start = units.index(units.startIndex, offsetBy: bytes.lowerBound, limitedBy: units.endIndex),
            let end = units.index(start, offsetBy: bytes.count, limitedBy: units.endIndex),
            let first = start.samePosition(in: text), let last = end.samePosition(in: text)
        else { return nil }
        return first..<last
    }
}

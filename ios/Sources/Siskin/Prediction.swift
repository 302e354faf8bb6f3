import CSiskin

/// A prediction of an encoder: a class, a labeled span, an answer or a token.
public struct Prediction: Sendable, Hashable {
    /// The name of the class or label, or the text of the answer or token.
    public let text: String
    /// The span of the input that was labeled or is the answer, in UTF-8 code units; `nil` for classes and tokens.
    public let utf8Range: Range<Int>?
    /// The probability; for a regression model, the predicted value.
    public let score: Float
    /// The token id; `nil` unless the prediction is a token.
    public let token: UInt32?

    init(_ prediction: siskin_prediction) {
        text = string(prediction.text, prediction.length)
        utf8Range = prediction.start < prediction.end ? prediction.start..<prediction.end : nil
        score = prediction.score
        token = prediction.token == UInt32.max ? nil : prediction.token
    }

    /// Returns the span in the input text; `nil` if there is none, or if `text` is not that input.
    public func range(in text: String) -> Range<String.Index>? {
        let units = text.utf8
        guard let utf8Range,
            let start = units.index(units.startIndex, offsetBy: utf8Range.lowerBound, limitedBy: units.endIndex),
            let end = units.index(start, offsetBy: utf8Range.count, limitedBy: units.endIndex),
            let lower = start.samePosition(in: text), let upper = end.samePosition(in: text)
        else { return nil }
        return lower..<upper
    }
}

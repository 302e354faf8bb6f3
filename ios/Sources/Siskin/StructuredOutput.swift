import CSiskin
import Foundation

/// What a response must be. All but `choice` need a library that was built with grammars.
public enum StructuredOutput: Hashable, Sendable {
    /// One of these texts.
    case choice([String])
    /// A JSON object.
    case jsonObject
    /// JSON that is valid under this JSON Schema.
    case jsonSchema(String)
    /// A match of this regular expression.
    case regex(String)
    /// A sentence of this grammar in Lark.
    case lark(String)
    /// A sentence of this grammar in GBNF, the format of llama.cpp.
    case gbnf(String)

    /// JSON that `JSONDecoder` decodes as a type.
    ///
    /// The schema is derived by decoding the type from placeholder values. Properties are generated in the order in which
    /// `init(from:)` decodes them; those that it decodes with `decodeIfPresent`, as optionals are, may be left out.
    /// Supported are `Bool`, `String`, integers (up to 53 bits are generated), `Double`, `Float`, `Decimal`, `URL`, `UUID`,
    /// `Date` (decode it with `.iso8601`), enums with strings or integers as raw values that are `CaseIterable`,
    /// optionals, arrays, sets, dictionaries with strings as keys, and types that consist of these, even if they contain
    /// themselves. Others throw `SiskinError.Code.argument`, whose location is the path of the value.
    public static func jsonSchema<T: Decodable>(for type: T.Type) throws(SiskinError) -> StructuredOutput {
        .jsonSchema(try SchemaRecorder.schema(of: type))
    }

    /// Returns the kind and the definition of an output; those of any text for `nil`.
    static func native(_ output: Self?) throws(SiskinError) -> (siskin_structured_output, String) {
        switch output {
        case nil: (SISKIN_STRUCTURED_OUTPUT_NONE, "")
        case .choice(let texts): (SISKIN_STRUCTURED_OUTPUT_CHOICE, try list(texts))
        case .jsonObject: (SISKIN_STRUCTURED_OUTPUT_JSON_OBJECT, "")
        case .jsonSchema(let schema): (SISKIN_STRUCTURED_OUTPUT_JSON_SCHEMA, schema)
        case .regex(let pattern): (SISKIN_STRUCTURED_OUTPUT_REGEX, pattern)
        case .lark(let grammar): (SISKIN_STRUCTURED_OUTPUT_LARK, grammar)
        case .gbnf(let grammar): (SISKIN_STRUCTURED_OUTPUT_GBNF, grammar)
        }
    }

    private static func list(_ texts: [String]) throws(SiskinError) -> String {
        do { return String(decoding: try JSONEncoder().encode(texts), as: UTF8.self) } catch {
            throw SiskinError(.argument, location: "choice", message: "\(error)")
        }
    }
}

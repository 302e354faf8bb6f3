import Foundation

/// A JSON Schema that is written with the properties in their order.
indirect enum JSONSchema: Sendable {
    /// A schema that consists of keywords with values in JSON.
    case keywords([(String, String)])
    case array(of: JSONSchema)
    case dictionary(of: JSONSchema)
    case object([Property])
    case nullable(JSONSchema)
    case reference(String)

    /// A property of an object.
    struct Property: Sendable {
        let name: String
        let schema: JSONSchema
        let isRequired: Bool
    }

    static let boolean = keywords([("type", #""boolean""#)])
    static let number = keywords([("type", #""number""#)])
    static let string = keywords([("type", #""string""#)])

    /// A date and time in UTC that `JSONDecoder.DateDecodingStrategy.iso8601` decodes.
    static let dateTime = keywords([
        ("type", #""string""#),
        (
            "pattern",
            quoted(
                "^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
                    + "|02-(?:0[1-9]|1[0-9]|2[0-9]))T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
            )
        ),
    ])

    static func string(format: String) -> Self { keywords([("type", #""string""#), ("format", quoted(format))]) }

    static func integer(_ minimum: Int64, _ maximum: Int64) -> Self {
        keywords([("type", #""integer""#), ("minimum", "\(minimum)"), ("maximum", "\(maximum)")])
    }

    static func oneOf(strings: [String]) -> Self {
        keywords([("type", #""string""#), ("enum", list(strings.map(quoted)))])
    }

    static func oneOf(integers: [String]) -> Self { keywords([("type", #""integer""#), ("enum", list(integers))]) }

    /// The schema as JSON.
    var json: String { Self.object(fields) }

    /// The schema as JSON, with definitions.
    func json(definitions: [(String, JSONSchema)]) -> String {
        if definitions.isEmpty { return json }
        return Self.object(fields + [("$defs", Self.object(definitions.map { ($0.0, $0.1.json) }))])
    }

    private var fields: [(String, String)] {
        switch self {
        case .keywords(let keywords): keywords
        case .array(let items): [("type", #""array""#), ("items", items.json)]
        case .dictionary(let values): [("type", #""object""#), ("additionalProperties", values.json)]
        case .object(let properties): Self.fields(of: properties)
        case .nullable(let schema): [("anyOf", Self.list([schema.json, #"{"type":"null"}"#]))]
        case .reference(let name): [("$ref", Self.quoted("#/$defs/\(name)"))]
        }
    }

    private static func fields(of properties: [Property]) -> [(String, String)] {
        let required = properties.filter(\.isRequired).map { quoted($0.name) }
        var fields = [("type", #""object""#), ("properties", object(properties.map { ($0.name, $0.schema.json) }))]
        if !required.isEmpty { fields.append(("required", list(required))) }
        return fields + [("additionalProperties", "false")]
    }

    private static func object(_ fields: [(String, String)]) -> String {
        "{" + fields.map { "\(quoted($0.0)):\($0.1)" }.joined(separator: ",") + "}"
    }

    private static func list(_ values: [String]) -> String { "[" + values.joined(separator: ",") + "]" }

    private static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case "\u{0}"..<" ": quoted += String(format: "\\u%04x", scalar.value)
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

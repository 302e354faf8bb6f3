import Foundation

/// A type whose schema is known without decoding it.
protocol SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema
    /// Any value.
    static var placeholder: Self { get }
}

/// The largest integer up to which JSON numbers are exact in all programs.
private let maximumExactInteger: Int64 = 1 << 53 - 1

extension SchemaType where Self: FixedWidthInteger {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema {
        .integer(
            Swift.max(Int64(clamping: min), -maximumExactInteger),
            Swift.min(Int64(clamping: max), maximumExactInteger)
        )
    }

    static var placeholder: Self { 0 }
}

extension Int: SchemaType {}
extension Int8: SchemaType {}
extension Int16: SchemaType {}
extension Int32: SchemaType {}
extension Int64: SchemaType {}
extension UInt: SchemaType {}
extension UInt8: SchemaType {}
extension UInt16: SchemaType {}
extension UInt32: SchemaType {}
extension UInt64: SchemaType {}

extension SchemaType where Self: ExpressibleByIntegerLiteral {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .number }
    static var placeholder: Self { 0 }
}

extension Double: SchemaType {}
extension Float: SchemaType {}
extension Decimal: SchemaType {}

extension Bool: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .boolean }
    static var placeholder: Bool { false }
}

extension String: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .string }
    static var placeholder: String { "" }
}

extension Date: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .dateTime }
    static var placeholder: Date { Date(timeIntervalSinceReferenceDate: 0) }
}

extension URL: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .string(format: "uri") }
    static var placeholder: URL { URL(fileURLWithPath: "/") }
}

extension UUID: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) -> JSONSchema { .string(format: "uuid") }
    static var placeholder: UUID { UUID() }
}

extension Data: SchemaType {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema {
        throw recorder.fail(path, "Data is not supported; use String")
    }

    static var placeholder: Data { Data() }
}

extension Optional: SchemaType where Wrapped: Decodable {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema {
        let schema = try recorder.schema(of: Wrapped.self, at: path)
        if case .nullable = schema { return schema }
        return .nullable(schema)
    }

    static var placeholder: Self { nil }
}

extension Array: SchemaType where Element: Decodable {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema {
        .array(of: try recorder.schema(of: Element.self, at: path.element))
    }

    static var placeholder: Self { [] }
}

extension Set: SchemaType where Element: Decodable {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema {
        .array(of: try recorder.schema(of: Element.self, at: path.element))
    }

    static var placeholder: Self { [] }
}

extension Dictionary: SchemaType where Key: Decodable, Value: Decodable {
    static func schema(in recorder: SchemaRecorder, at path: SchemaPath) throws -> JSONSchema {
        if Key.self == String.self { return .dictionary(of: try recorder.schema(of: Value.self, at: path.element)) }
        throw recorder.fail(path, "the keys of a dictionary must be strings, not \(Key.self)")
    }

    static var placeholder: Self { [:] }
}

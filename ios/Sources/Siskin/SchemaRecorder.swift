import Foundation

/// Derives the JSON Schema of what `JSONDecoder` decodes as a type: decodes the type from placeholder values, and records
/// which keys and types its `init(from:)` asks for. Types that contain themselves are definitions, all others are written
/// where they are used.
final class SchemaRecorder {
    /// The schema of a type that was derived, and a value of it; both are `nil` while it is being derived.
    private final class Definition {
        let name: String
        var isReferenced = false
        var schema: JSONSchema?
        var placeholder: Any?
        init(name: String) { self.name = name }
    }

    /// Types that decode themselves with `init(from:)`.
    private var definitions: [ObjectIdentifier: Definition] = [:]
    private var order: [ObjectIdentifier] = []
    /// The first error, which an `init(from:)` may have caught.
    private var failure: SiskinError?

    /// Returns the schema of a type as JSON.
    static func schema<T: Decodable>(of type: T.Type) throws(SiskinError) -> String {
        let recorder = SchemaRecorder()
        let path = SchemaPath(root: "\(type)")
        let schema: JSONSchema
        do { schema = try recorder.schema(of: type, at: path) } catch {
            throw recorder.failure ?? recorder.fail(path, "\(error)")
        }
        if let failure = recorder.failure { throw failure }
        let referenced = recorder.order.compactMap { recorder.definitions[$0] }.filter(\.isReferenced)
        return schema.json(definitions: referenced.compactMap { definition in
            definition.schema.map { (definition.name, $0) }
        })
    }

    /// Records and returns an error.
    @discardableResult
    func fail(_ path: SchemaPath, _ message: String) -> SiskinError {
        let error = SiskinError(.argument, location: path.description, message: message)
        if failure == nil { failure = error }
        return failure ?? error
    }

    /// Returns the schema of a type that may be in the middle of being derived.
    func schema(of type: any Decodable.Type, at path: SchemaPath) throws -> JSONSchema {
        if let type = type as? any SchemaType.Type { return try type.schema(in: self, at: path) }
        if let definition = definitions[ObjectIdentifier(type)] { return reference(definition) }
        return try derive(type, at: path).schema
    }

    /// Returns the schema of a type and a value that it decodes.
    func record<T: Decodable>(_ type: T.Type, at path: SchemaPath) throws -> (schema: JSONSchema, placeholder: T) {
        if let type = type as? any SchemaType.Type {
            let schema = try type.schema(in: self, at: path)
            guard let placeholder = type.placeholder as? T else { throw fail(path, "\(T.self) has no placeholder") }
            return (schema, placeholder)
        }
        guard let definition = definitions[ObjectIdentifier(type)] else {
            let (schema, placeholder) = try derive(type, at: path)
            guard let placeholder = placeholder as? T else { throw fail(path, "\(T.self) has no placeholder") }
            return (schema, placeholder)
        }
        guard let placeholder = definition.placeholder as? T else {
            throw fail(path, "\(T.self) always contains itself; make this property optional, or an array")
        }
        return (reference(definition), placeholder)
    }

    private func derive(
        _ type: any Decodable.Type,
        at path: SchemaPath
    ) throws -> (schema: JSONSchema, placeholder: any Decodable) {
        if let cases = try enumeration(type, at: path) { return cases }
        let key = ObjectIdentifier(type)
        let definition = Definition(name: unusedName("\(type)"))
        definitions[key] = definition
        order.append(key)
        let node = SchemaNode()
        let placeholder = try decode(type, RecordingDecoder(recorder: self, node: node, path: path))
        if let failure { throw failure }
        try checkEnum(placeholder, at: path)
        let schema = node.schema
        guard definition.isReferenced else {
            definitions[key] = nil
            order.removeAll { $0 == key }
            return (schema, placeholder)
        }
        (definition.schema, definition.placeholder) = (schema, placeholder)
        return (reference(definition), placeholder)
    }

    private func decode(_ type: any Decodable.Type, _ decoder: RecordingDecoder) throws -> any Decodable {
        do { return try type.init(from: decoder) } catch {
            if let failure { throw failure }
            if type is any RawRepresentable.Type { throw fail(decoder.path, Self.unknownCases(type)) }
            throw fail(
                decoder.path,
                "init(from:) of \(type) rejects placeholder values, so that its schema cannot be derived; write it by hand, "
                    + "with StructuredOutput.jsonSchema(_:): \(error)"
            )
        }
    }

    /// An enum whose placeholder happens to be the raw value of a case has cases that were not seen.
    private func checkEnum(_ placeholder: Any, at path: SchemaPath) throws {
        guard placeholder is any RawRepresentable, Mirror(reflecting: placeholder).displayStyle == .enum else { return }
        throw fail(path, Self.unknownCases(type(of: placeholder)))
    }

    private static func unknownCases(_ type: Any.Type) -> String {
        "the cases of \(type) are unknown; conform it to CaseIterable"
    }

    /// Returns the schema and the first case of an enum whose raw values are known.
    private func enumeration(
        _ type: any Decodable.Type,
        at path: SchemaPath
    ) throws -> (schema: JSONSchema, placeholder: any Decodable)? {
        guard type is any RawRepresentable.Type, let iterable = type as? any CaseIterable.Type else { return nil }
        let cases = Self.allCases(of: iterable)
        guard let first = cases.first as? any Decodable else { throw fail(path, "\(type) has no cases") }
        let values = cases.compactMap { ($0 as? any RawRepresentable).map { $0.rawValue as Any } }
        let strings = values.compactMap { $0 as? String }
        if strings.count == cases.count { return (.oneOf(strings: strings), first) }
        let integers = values.compactMap { ($0 as? any BinaryInteger).map { "\($0)" } }
        if integers.count == cases.count { return (.oneOf(integers: integers), first) }
        throw fail(path, "the raw values of \(type) are neither strings nor integers")
    }

    private static func allCases<T: CaseIterable>(of type: T.Type) -> [Any] { Array(type.allCases) }

    private func reference(_ definition: Definition) -> JSONSchema {
        definition.isReferenced = true
        return .reference(definition.name)
    }

    /// The name of a type in letters that a reference may contain.
    private func unusedName(_ type: String) -> String {
        let isAllowed = { (letter: Character) in letter.isASCII && (letter.isLetter || letter.isNumber) }
        let name = String(type.map { isAllowed($0) ? $0 : "_" })
        let used = Set(definitions.values.map(\.name))
        var (unused, number) = (name, 1)
        while used.contains(unused) {
            number += 1
            unused = "\(name)\(number)"
        }
        return unused
    }
}

/// The path of a value, for errors: `Recipe.steps[].text`.
struct SchemaPath: CustomStringConvertible {
    private let root: String
    private(set) var keys: [any CodingKey] = []

    init(root: String) { self.root = root }

    func key(_ key: any CodingKey) -> SchemaPath {
        var path = self
        path.keys.append(key)
        return path
    }

    var element: SchemaPath { key(SchemaKey(index: 0)) }

    var description: String { keys.reduce(root) { $0 + ($1.intValue == nil ? ".\($1.stringValue)" : "[]") } }
}

/// The key of an element, or of the value of `super`.
struct SchemaKey: CodingKey {
    static let parent = SchemaKey(stringValue: "super")
    let stringValue: String
    let intValue: Int?

    init(stringValue: String) { (self.stringValue, intValue) = (stringValue, nil) }
    init(intValue: Int) { (stringValue, self.intValue) = ("\(intValue)", intValue) }
    init(index: Int) { self.init(intValue: index) }
}

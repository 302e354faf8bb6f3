/// What was decoded at one place.
final class SchemaNode {
    private enum Content {
        case nothing
        case value(JSONSchema)
        case object([(name: String, isRequired: Bool, node: SchemaNode)])
        case array(SchemaNode)
    }

    private var content = Content.nothing
    private var isNullable = false

    /// The schema of what was decoded; of an empty object if that was nothing.
    var schema: JSONSchema {
        let schema: JSONSchema = switch content {
        case .nothing: .object([])
        case .value(let schema): schema
        case .array(let element): .array(of: element.schema)
        case .object(let properties): .object(properties.map { name, isRequired, node in
            JSONSchema.Property(name: name, schema: node.schema, isRequired: isRequired)
        })
        }
        return isNullable ? .nullable(schema) : schema
    }

    func allowNull() { isNullable = true }

    func setValue(_ schema: JSONSchema) { if case .nothing = content { content = .value(schema) } }

    func beginObject() { if case .nothing = content { content = .object([]) } }

    /// Returns the node of the elements.
    func beginArray() -> SchemaNode {
        if case .array(let element) = content { return element }
        let element = SchemaNode()
        content = .array(element)
        return element
    }

    /// Whether a property may be left out.
    func isOptional(_ name: String) -> Bool {
        guard case .object(let properties) = content else { return false }
        return properties.contains { $0.name == name && !$0.isRequired }
    }

    /// Returns the node of a property. It is required unless it was looked for before.
    func property(_ name: String, isRequired: Bool) -> SchemaNode {
        guard case .object(let properties) = content else { return SchemaNode() }
        if let known = properties.first(where: { $0.name == name })?.node { return known }
        let node = SchemaNode()
        content = .object(properties + [(name, isRequired, node)])
        return node
    }
}

/// A decoder that hands out placeholder values and records what is asked for.
struct RecordingDecoder: Decoder {
    let recorder: SchemaRecorder
    let node: SchemaNode
    let path: SchemaPath

    var codingPath: [any CodingKey] { path.keys }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        node.beginObject()
        return KeyedDecodingContainer(RecordingKeyedContainer<Key>(decoder: self))
    }

    func unkeyedContainer() -> any UnkeyedDecodingContainer { RecordingUnkeyedContainer(decoder: self) }

    func singleValueContainer() -> any SingleValueDecodingContainer { RecordingValueContainer(decoder: self) }

    /// Records a value at this place.
    func decode<T: Decodable>(_ type: T.Type) throws -> T {
        let (schema, placeholder) = try recorder.record(type, at: path)
        node.setValue(schema)
        return placeholder
    }

    /// Records a value that may be missing: its type may be in the middle of being recorded.
    func decodeIfPresent<T: Decodable>(_ type: T.Type) throws -> T? {
        node.setValue(try recorder.schema(of: type, at: path))
        return nil
    }

    func property(_ key: any CodingKey, isRequired: Bool = true) -> RecordingDecoder {
        let property = node.property(key.stringValue, isRequired: isRequired)
        return RecordingDecoder(recorder: recorder, node: property, path: path.key(key))
    }
}

private struct RecordingKeyedContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let decoder: RecordingDecoder

    var codingPath: [any CodingKey] { decoder.codingPath }

    var allKeys: [Key] {
        decoder.recorder.fail(
            decoder.path,
            "the keys of this type are not fixed, as of an enum with associated values or without raw values; use a "
                + "struct, or an enum with raw values that is CaseIterable"
        )
        return []
    }

    func contains(_ key: Key) -> Bool {
        _ = decoder.property(key, isRequired: false)
        return true
    }

    func decodeNil(forKey key: Key) -> Bool {
        // What may be left out need not be null as well.
        if !decoder.node.isOptional(key.stringValue) { decoder.property(key).node.allowNull() }
        return false
    }

    func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T { try decoder.property(key).decode(type) }

    func decodeIfPresent<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T? {
        try decoder.property(key, isRequired: false).decodeIfPresent(type)
    }

    func nestedContainer<NestedKey: CodingKey>(
        keyedBy type: NestedKey.Type,
        forKey key: Key
    ) -> KeyedDecodingContainer<NestedKey> {
        decoder.property(key).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedDecodingContainer {
        decoder.property(key).unkeyedContainer()
    }

    func superDecoder() -> any Decoder { decoder.property(SchemaKey.parent) }

    func superDecoder(forKey key: Key) -> any Decoder { decoder.property(key) }
}

/// An array with one element.
private struct RecordingUnkeyedContainer: UnkeyedDecodingContainer {
    private let decoder: RecordingDecoder
    private(set) var currentIndex = 0

    init(decoder: RecordingDecoder) {
        let element = decoder.node.beginArray()
        self.decoder = RecordingDecoder(recorder: decoder.recorder, node: element, path: decoder.path.element)
    }

    var codingPath: [any CodingKey] { decoder.codingPath }
    var count: Int? { nil }
    var isAtEnd: Bool { currentIndex > 0 }

    private mutating func next() throws -> RecordingDecoder {
        currentIndex += 1
        if currentIndex == 1 { return decoder }
        throw decoder.recorder.fail(decoder.path, "arrays with a fixed number of elements are not supported; use a struct")
    }

    mutating func decodeNil() -> Bool {
        decoder.node.allowNull()
        return false
    }

    mutating func decode<T: Decodable>(_ type: T.Type) throws -> T { try next().decode(type) }

    mutating func nestedContainer<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        try next().container(keyedBy: type)
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { try next().unkeyedContainer() }

    mutating func superDecoder() throws -> any Decoder { try next() }
}

private struct RecordingValueContainer: SingleValueDecodingContainer {
    let decoder: RecordingDecoder

    var codingPath: [any CodingKey] { decoder.codingPath }

    func decodeNil() -> Bool {
        decoder.node.allowNull()
        return false
    }

    func decode<T: Decodable>(_ type: T.Type) throws -> T { try decoder.decode(type) }
}

import Foundation
import XCTest

@testable import Siskin

/// Schemas of types, and responses that are decoded.
final class TypedResponseTests: XCTestCase {
    private let boolean = #"{"type":"boolean"}"#
    private let string = #"{"type":"string"}"#

    private func integer(_ minimum: Int, _ maximum: Int) -> String {
        #"{"type":"integer","minimum":\#(minimum),"maximum":\#(maximum)}"#
    }

    private func orNull(_ schema: String) -> String { #"{"anyOf":[\#(schema),{"type":"null"}]}"# }

    private func array(_ items: String) -> String { #"{"type":"array","items":\#(items)}"# }

    private func reference(_ name: String) -> String { ##"{"$ref":"#/$defs/\##(name)"}"## }

    /// The schema of an object; properties are required unless their name ends in a question mark.
    private func object(_ properties: KeyValuePairs<String, String>) -> String {
        let fields = properties.map { "\"\($0.key.replacing("?", with: ""))\":\($0.value)" }.joined(separator: ",")
        let required = properties.filter { !$0.key.hasSuffix("?") }.map { "\"\($0.key)\"" }.joined(separator: ",")
        let keyword = required.isEmpty ? "" : #""required":[\#(required)],"#
        return #"{"type":"object","properties":{\#(fields)},\#(keyword)"additionalProperties":false}"#
    }

    private func assertSchema<T: Decodable>(_ type: T.Type, _ expected: String, line: UInt = #line) throws {
        XCTAssertEqual(try StructuredOutput.jsonSchema(for: type), .jsonSchema(expected), line: line)
    }

    func testScalarsHaveTheirRanges() throws {
        struct Integers: Decodable {
            let a: Int8, b: Int16, c: Int32, d: Int64, e: Int, f: UInt8, g: UInt16, h: UInt32, i: UInt64, j: UInt
        }
        let exact = 9_007_199_254_740_991
        try assertSchema(
            Integers.self,
            object([
                "a": integer(-128, 127), "b": integer(-32768, 32767), "c": integer(Int(Int32.min), Int(Int32.max)),
                "d": integer(-exact, exact), "e": integer(-exact, exact), "f": integer(0, 255), "g": integer(0, 65535),
                "h": integer(0, Int(UInt32.max)), "i": integer(0, exact), "j": integer(0, exact),
            ])
        )
        struct Scalars: Decodable {
            let a: Double, b: Float, c: Decimal, d: Bool, e: String, f: URL, g: UUID
        }
        let number = #"{"type":"number"}"#
        try assertSchema(
            Scalars.self,
            object([
                "a": number, "b": number, "c": number, "d": boolean, "e": string,
                "f": #"{"type":"string","format":"uri"}"#, "g": #"{"type":"string","format":"uuid"}"#,
            ])
        )
        try assertSchema(
            Date.self,
            #"{"type":"string","pattern":"^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"#
                + #"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-9]))"#
                + #"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"}"#
        )
        try assertSchema(Bool.self, boolean)
    }

    func testOptionalsMayBeLeftOut() throws {
        struct Optionals: Decodable {
            let a: Bool?, b: String, c: [Bool?]?, d: Int8?
        }
        try assertSchema(
            Optionals.self,
            object(["a?": boolean, "b": string, "c?": array(orNull(boolean)), "d?": integer(-128, 127)])
        )
        struct Explicit: Decodable {
            let required: Bool?, contained: Bool, isNull: Bool

            enum CodingKeys: CodingKey { case required, contained, isNull }

            init(from decoder: any Decoder) throws {
                let container = try decoder.container(keyedBy: CodingKeys.self)
                required = try container.decode(Bool?.self, forKey: .required)
                contained = container.contains(.contained) ? try container.decode(Bool.self, forKey: .contained) : false
                isNull = try container.decodeNil(forKey: .isNull) || container.decode(Bool.self, forKey: .isNull)
            }
        }
        try assertSchema(
            Explicit.self, object(["required": orNull(boolean), "contained?": boolean, "isNull": orNull(boolean)])
        )
        try assertSchema(Bool?.self, orNull(boolean))
    }

    func testContainersHaveTheSchemaOfTheirValues() throws {
        struct Containers: Decodable {
            let names: [String], ages: [String: [Bool]], set: Set<Bool>
        }
        let ages = #"{"type":"object","additionalProperties":\#(array(boolean))}"#
        try assertSchema(Containers.self, object(["names": array(string), "ages": ages, "set": array(boolean)]))
        struct Empty: Decodable {}
        try assertSchema([Empty].self, array(object([:])))
    }

    private enum Color: String, Codable, CaseIterable {
        case red
        case green = "dark \"green\"\n"
    }

    private enum Level: Int, Codable, CaseIterable {
        case low = 1
        case high = 5
    }

    func testRawValuesAreListed() throws {
        struct Enums: Decodable {
            let color: Color, level: Level?, role: Message.Role
        }
        let color = #"{"type":"string","enum":["red","dark \"green\"\u000a"]}"#
        let level = #"{"type":"integer","enum":[1,5]}"#
        try assertSchema(Enums.self, object(["color": color, "level?": level, "role": string]))
    }

    func testNestedContainersAreDerived() throws {
        struct Nested: Decodable {
            enum Keys: String, CodingKey { case outer, list, value = "the value" }

            init(from decoder: any Decoder) throws {
                let container = try decoder.container(keyedBy: Keys.self)
                let outer = try container.nestedContainer(keyedBy: Keys.self, forKey: .outer)
                _ = try outer.decode(Bool.self, forKey: .value)
                var list = try container.nestedUnkeyedContainer(forKey: .list)
                while !list.isAtEnd { _ = try list.nestedContainer(keyedBy: Keys.self).decode(Bool.self, forKey: .value) }
            }
        }
        let inner = object(["the value": boolean])
        try assertSchema(Nested.self, object(["outer": inner, "list": array(inner)]))
        class Base: Decodable {
            let base: Bool
        }
        class Derived: Base {
            let derived: Bool

            enum CodingKeys: CodingKey { case derived }

            required init(from decoder: any Decoder) throws {
                let container = try decoder.container(keyedBy: CodingKeys.self)
                derived = try container.decode(Bool.self, forKey: .derived)
                try super.init(from: container.superDecoder())
            }
        }
        try assertSchema(Derived.self, object(["derived": boolean, "super": object(["base": boolean])]))
    }

    private final class Node: Decodable {
        let value: Bool
        let children: [Node]
        let next: Node?
    }

    private struct Tree<Value: Decodable>: Decodable {
        let value: Value
        let children: [Tree<Value>]
    }

    func testTypesThatContainThemselvesAreReferenced() throws {
        let node = object(["value": boolean, "children": array(reference("Node")), "next?": reference("Node")])
        try assertSchema(Node.self, ##"{"$ref":"#/$defs/Node","$defs":{"Node":\##(node)}}"##)
        struct Trees: Decodable {
            let first: Tree<Bool>, second: Tree<[Bool]>, third: Tree<Bool>
        }
        let first = object(["value": boolean, "children": array(reference("Tree_Bool_"))])
        let second = object(["value": array(boolean), "children": array(reference("Tree_Array_Bool__"))])
        let trees = object([
            "first": reference("Tree_Bool_"), "second": reference("Tree_Array_Bool__"), "third": reference("Tree_Bool_"),
        ])
        let definitions = #""$defs":{"Tree_Bool_":\#(first),"Tree_Array_Bool__":\#(second)}"#
        try assertSchema(Trees.self, "\(trees.dropLast()),\(definitions)}")
        // A type that is only used twice is not.
        struct Point: Decodable { let x: Bool }
        struct Line: Decodable { let from: Point, to: Point }
        try assertSchema(Line.self, object(["from": object(["x": boolean]), "to": object(["x": boolean])]))
    }

    private enum Unlisted: String, Decodable { case yes, no }

    private enum UnlistedNumber: Int, Decodable { case zero, one }

    private enum Associated: Decodable { case some(Int), none }

    private enum Fraction: Double, Decodable, CaseIterable { case half = 0.5 }

    private struct Positive: Decodable {
        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer().decode(Int.self)
            if value <= 0 { throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "not positive")) }
        }
    }

    private struct Swallowed: Decodable {
        init(from decoder: any Decoder) throws { _ = try? decoder.singleValueContainer().decode(Data.self) }
    }

    private struct Coordinates: Decodable {
        init(from decoder: any Decoder) throws {
            var container = try decoder.unkeyedContainer()
            for _ in 0..<2 { _ = try container.decode(Double.self) }
        }
    }

    private final class Endless: Decodable { let next: Endless }

    private struct Field<Value: Decodable>: Decodable { let list: [[String: Value]] }

    private func assertRejected<T: Decodable>(_ type: T.Type, _ reason: String, line: UInt = #line) {
        XCTAssertThrowsError(try StructuredOutput.jsonSchema(for: Field<T>.self), line: line) { error in
            guard let error = error as? SiskinError else { return XCTFail("\(error)", line: line) }
            XCTAssertEqual(error.code, .argument, line: line)
            XCTAssertTrue(error.location.hasPrefix("Field<\(type)>.list[][]"), error.location, line: line)
            XCTAssertTrue(error.message.contains(reason), error.message, line: line)
        }
    }

    func testOtherTypesAreRejectedWithTheirPath() {
        assertRejected(Unlisted.self, "conform it to CaseIterable")
        assertRejected(UnlistedNumber.self, "conform it to CaseIterable")
        assertRejected(Associated.self, "the keys of this type are not fixed")
        assertRejected(Fraction.self, "neither strings nor integers")
        assertRejected(Positive.self, "rejects placeholder values")
        assertRejected(Swallowed.self, "Data is not supported")
        assertRejected(Data.self, "Data is not supported")
        assertRejected(Coordinates.self, "fixed number of elements")
        assertRejected([Int: Bool].self, "must be strings, not Int")
        assertRejected(Endless.self, "always contains itself")
    }

    private struct Report: Decodable, Equatable {
        struct Detail: Decodable, Equatable {
            let level: Level
            let isSure: Bool?
        }

        let color: Color
        let score: Int8
        let detail: Detail
    }

    private struct Due: Decodable { let date: Date, id: UUID }

    func testResponsesAreDecoded() async throws {
        let model = try await chatModel()
        // The model's context of 128 tokens is too short for white space. Its tokens are bytes.
        let bias = Dictionary(uniqueKeysWithValues: [9, 10, 13, 32].map { (UInt32($0), -Float.infinity) })
        let sampler = Sampler(temperature: 0, logitBias: bias)
        let session = try await Session(model: model, options: SessionOptions(sampler: sampler))
        try await session.setStructuredOutput(.choice(["yes", "no"]))
        let report = try await session.response(to: "Well?", as: Report.self)
        print("typed: \(report)")
        try await session.reset()
        _ = try await session.response(to: "When?", as: Due.self)
        try await session.reset()
        let messages = [Message(role: .user, content: "Well?")]
        let again = try await session.response(to: messages, as: Report.self)
        XCTAssertEqual(again, report)
        // What was set before is in force again.
        try await session.reset()
        let choice = try await collect(session.chat("Well?"))
        XCTAssertTrue(["yes", "no"].contains(choice.text), choice.text)
        await assertThrows(.argument) { try await session.response(to: "Well?", as: Unlisted.self) }
        try await session.setMaxTokens(4)
        await assertThrows(.tooLong) { try await session.response(to: "Well?", as: Report.self) }

        let served = try await Engine().add(model)
        let options = RequestOptions(sampler: sampler, structuredOutput: .choice(["yes", "no"]))
        let first = try await served.response(to: "Well?", as: Report.self, options: options)
        let second = try await served.response(to: messages, as: Report.self, options: options)
        XCTAssertEqual([first, second], [report, report])
        let short = RequestOptions(maxTokens: 4)
        await assertThrows(.tooLong) { try await served.response(to: "Well?", as: Report.self, options: short) }
        let cut = RequestOptions(sampler: .greedy, stopStrings: ["\""])
        await assertThrows(.corrupt) { try await served.response(to: "Well?", as: Report.self, options: cut) }
        try await served.engine.drain(milliseconds: 0)
        await assertThrows(.overloaded) { try await served.response(to: "Well?", as: Report.self) }
    }

    func testCanceledResponsesAreNotDecoded() async throws {
        let session = try await Session(model: try await chatModel(), options: greedy(nil))
        try session.pause()
        let response = Task { try await session.response(to: "Well?", as: Report.self) }
        try await Task.sleep(for: .milliseconds(50))
        session.cancel()
        await assertThrows(.canceled) { try await response.value }
    }
}

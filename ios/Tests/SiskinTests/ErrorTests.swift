import Foundation
import XCTest

@testable import Siskin

final class ErrorTests: XCTestCase {
    /// The names and values of the header.
    private func codes() throws -> [(name: String, number: Int32)] {
        let header = try String(decoding: data("../../ffi/include/siskin.h"), as: UTF8.self)
        return header.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard words.count == 3, words[0] == "#define", words[1].hasPrefix("SISKIN_ERROR_") else { return nil }
            return Int32(words[2]).map { (String(words[1]), $0) }
        }
    }

    func testEveryCodeOfTheHeaderHasItsCase() throws {
        let codes = try codes()
        XCTAssertGreaterThan(codes.count, 20)
        XCTAssertEqual(codes.count, SiskinError.Code.numbers.count)
        for (name, number) in codes {
            let code = SiskinError.Code(number: number)
            XCTAssertEqual(code.number, number, name)
            // `SISKIN_ERROR_TOO_LONG` becomes `tooLong`.
            let words = name.dropFirst("SISKIN_ERROR_".count).lowercased().split(separator: "_")
            let camel = words[0] + words.dropFirst().map(\.capitalized).joined()
            XCTAssertEqual("\(code)", String(camel))
        }
        XCTAssertEqual(SiskinError.Code(number: 12345), .unknown(12345))
        XCTAssertEqual(SiskinError.Code.unknown(12345).number, 12345)
    }

    func testEveryCodeComesThroughTheLibrary() throws {
        for number in try codes().map(\.number) + [12345] {
            let error = try Testing.error(number)
            XCTAssertThrowsError(try check(error)) { thrown in
                guard let thrown = thrown as? SiskinError else { return XCTFail("\(thrown)") }
                XCTAssertEqual(thrown.code.number, number)
                XCTAssertEqual(thrown.place, "testing")
                XCTAssertEqual(thrown.message, "as asked for")
                XCTAssertEqual(thrown.localizedDescription, "testing: as asked for")
            }
        }
        XCTAssertNoThrow(try check(try Testing.error(0)))
    }

    func testAPanicIsAnErrorAndTheModelLivesOn() async throws {
        _ = try Testing.error(0)
        let model = try await chatModel()
        let session = try await Session(model, options: greedy(4))
        await assertFails(.panic) { try await session.panic() }
        await assertFails(.poisoned) { try await session.prompt("x") }
        await assertFails(.poisoned) { try await session.stats() }
        await session.close()
        let other = try await Session(model, options: greedy(4))
        let answer = try await whole(other.answer(to: "x"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testWhoeverComesMeanwhileWaits() async throws {
        _ = try Testing.error(0)
        let session = try await Session(try await chatModel(), options: greedy(4))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<8 { group.addTask { try await session.hold(20) } }
            for _ in 0..<4 { group.addTask { try await session.prompt("x") } }
            for _ in 0..<8 { group.addTask { _ = try await session.stats() } }
            try await group.waitForAll()
        }
    }

    func testTheLibraryIsTheOneOfTheHeader() throws {
        XCTAssertNoThrow(try Library.checkVersion())
        XCTAssertGreaterThanOrEqual(Library.abiVersion, 1)
        XCTAssertEqual(Library.version.split(separator: ".").count, 3)
    }

    func testStructsHaveTheSizesOfC() throws {
        // As in tests/c/layout.h.
        let layout = try String(decoding: data("../c/layout.h"), as: UTF8.self)
        for (name, size) in sizes {
            XCTAssertTrue(layout.contains("sizeof(\(name)) == \(size)"), "\(name) has \(size) bytes in Swift")
        }
    }
}

import Foundation
import XCTest

@testable import Siskin

final class ErrorTests: XCTestCase {
    /// Returns the names and values of the error codes in the header.
    private func headerCodes() throws -> [(name: String, number: Int32)] {
        let header = try String(decoding: testData("../../ffi/include/siskin.h"), as: UTF8.self)
        return header.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard words.count == 3, words[0].hasPrefix("SISKIN_ERROR_"), words[1] == "=" else { return nil }
            return Int32(words[2].dropLast()).map { (String(words[0]), $0) }
        }
    }

    func testEveryCodeOfHeaderHasCase() throws {
        let codes = try headerCodes()
        XCTAssertGreaterThan(codes.count, 20)
        XCTAssertEqual(codes.count, SiskinError.Code.numbers.count)
        for (name, number) in codes {
            let code = SiskinError.Code(number: number)
            XCTAssertEqual(code.number, number, name)
            // `SISKIN_ERROR_TOO_LONG` is `tooLong`.
            let words = name.dropFirst("SISKIN_ERROR_".count).lowercased().split(separator: "_")
            let camelCase = words[0] + words.dropFirst().map(\.capitalized).joined()
            XCTAssertEqual("\(code)", String(camelCase))
        }
        XCTAssertEqual(SiskinError.Code(number: 12345), .unknown(12345))
        XCTAssertEqual(SiskinError.Code.unknown(12345).number, 12345)
    }

    func testErrorsOfLibraryAreThrown() throws {
        for number in try headerCodes().map(\.number) + [12345] {
            let pointer = try TestingLibrary.makeError(number)
            XCTAssertThrowsError(try check(pointer)) { error in
                guard let error = error as? SiskinError else { return XCTFail("\(error)") }
                XCTAssertEqual(error.code.number, number)
                if [.canceled, .busy, .outOfMemory].contains(error.code) {
                    // These errors are static: they have a fixed message and no location.
                    XCTAssertEqual(error.location, "")
                    XCTAssertFalse(error.message.isEmpty)
                    XCTAssertEqual(error.localizedDescription, error.message)
                } else {
                    XCTAssertEqual(error.location, "testing")
                    XCTAssertEqual(error.message, "requested by the test")
                    XCTAssertEqual(error.localizedDescription, "testing: requested by the test")
                }
            }
        }
        XCTAssertNoThrow(try check(try TestingLibrary.makeError(0)))
    }

    func testPanicPoisonsSessionOnly() async throws {
        try TestingLibrary.require()
        let model = try await chatModel()
        let session = try await Session(model: model, options: greedy(4))
        await assertThrows(.panic) { try await session.panic() }
        await assertThrows(.poisoned) { try await session.prompt("x") }
        await assertThrows(.poisoned) { try await session.stats() }
        await session.close()
        let other = try await Session(model: model, options: greedy(4))
        let answer = try await collect(other.chat("x"))
        XCTAssertFalse(answer.tokens.isEmpty)
    }

    func testConcurrentCallsWaitForTheirTurn() async throws {
        try TestingLibrary.require()
        let session = try await Session(model: try await chatModel(), options: greedy(4))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<8 { group.addTask { try await session.blockThread(milliseconds: 20) } }
            for _ in 0..<4 { group.addTask { try await session.prompt("x") } }
            for _ in 0..<8 { group.addTask { _ = try await session.stats() } }
            try await group.waitForAll()
        }
    }

    func testLibraryVersion() throws {
        XCTAssertNoThrow(try Library.checkVersion())
        XCTAssertGreaterThanOrEqual(Library.abiVersion, 1)
        XCTAssertEqual(Library.version.split(separator: ".").count, 3)
    }

    func testStructSizesMatchC() throws {
        let layout = try String(decoding: testData("../c/layout.h"), as: UTF8.self)
        for (name, size) in structSizes {
            XCTAssertTrue(layout.contains("sizeof(\(name)) == \(size)"), "\(name) has \(size) bytes in Swift")
        }
    }
}

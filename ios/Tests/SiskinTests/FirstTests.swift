import Foundation
import XCTest

@testable import Siskin

final class FirstTests: XCTestCase {
    func testTokensStream() async throws {
        let folder = URL(fileURLWithPath: ProcessInfo.processInfo.environment["SISKIN_TEST_MODELS"]!)
        let model = try await Model.open(folder.appending(path: "chat.siskin"))
        print(try model.info())
        let session = try await Session(model)
        var count = 0
        for try await piece in session.answer(to: "Why?") { count += 1; print(piece.text, terminator: "") }
        print(count)
    }
}

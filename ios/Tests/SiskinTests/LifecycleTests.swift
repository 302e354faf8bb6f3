import Foundation
import XCTest

@testable import Siskin

final class LifecycleTests: XCTestCase {
    func testSessionsHoldStillInTheBackground() async throws {
        let model = try await chatModel()
        let lifecycle = Lifecycle()
        let (first, second) = (try await Session(model, options: greedy()), try await Session(model, options: greedy()))
        lifecycle.follow(first)
        lifecycle.enterBackground()
        lifecycle.enterBackground()
        // A model that is followed later is suspended as well.
        lifecycle.follow(second)
        for session in [first, second] { await assertFails(.suspended) { try await session.prompt("x") } }
        lifecycle.enterForeground()
        for session in [first, second] {
            let answer = try await whole(session.answer(to: "x"))
            XCTAssertEqual(answer.tokens.count, 24)
        }
        // A suspension by the app itself is not lifted by an event without a preceding background phase.
        try first.suspend()
        lifecycle.enterForeground()
        await assertFails(.suspended) { try await first.prompt("x") }
    }

    func testMemoryIsGivenBack() async throws {
        let lifecycle = Lifecycle()
        let session = try await Session(try await chatModel(), options: greedy(4))
        lifecycle.follow(session)
        let before = try await whole(session.answer(to: "x"))
        lifecycle.memoryIsShort()
        try await Task.sleep(for: .milliseconds(20))
        try await session.forget()
        let after = try await whole(session.answer(to: "x"))
        XCTAssertEqual(before, after)
    }

    func testModelsHearOfHeatAndPower() async throws {
        let model = try await chatModel()
        let lifecycle = Lifecycle()
        lifecycle.heatIs(.critical)
        lifecycle.follow(model)
        try model.setPace(.full)
        let hot = try model.paceStats().duty
        XCTAssertLessThan(hot, 1)
        let cool = try await chatModel()
        try cool.setPace(.full)
        XCTAssertEqual(try cool.paceStats().duty, 1)
        lifecycle.follow(cool)
        XCTAssertEqual(try cool.paceStats().duty, hot)
        lifecycle.powerIs(Power(saving: true, onBattery: true, battery: 0.1))
        lifecycle.savingIs(false)
        lifecycle.batteryIs(0.5, onBattery: true)
        // The header's levels for iOS.
        XCTAssertEqual([Heat.nominal, .fair, .serious, .critical].map(\.level), [0, 1, 3, 4])
    }

    func testWhatIsFollowedIsNotKept() async throws {
        let lifecycle = Lifecycle()
        weak var gone: Model?
        do {
            let model = try await chatModel()
            lifecycle.follow(model)
            gone = model
        }
        XCTAssertNil(gone)
    }
}

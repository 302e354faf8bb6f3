import Foundation
import XCTest

@testable import Siskin

final class LifecycleTests: XCTestCase {
    func testSessionsArePausedInBackground() async throws {
        let model = try await chatModel()
        let lifecycle = Lifecycle()
        let first = try await Session(model: model, options: greedy())
        let second = try await Session(model: model, options: greedy())
        lifecycle.manage(first)
        lifecycle.enterBackground()
        lifecycle.enterBackground()
        // A session that is added in the background is paused as well.
        lifecycle.manage(second)
        for session in [first, second] { await assertThrows(.paused) { try await session.prompt("x") } }
        lifecycle.enterForeground()
        for session in [first, second] {
            let answer = try await collect(session.chat("x"))
            XCTAssertEqual(answer.tokens.count, 24)
        }
        // Entering the foreground without a preceding background phase does not resume a session that the app paused.
        try first.pause()
        lifecycle.enterForeground()
        await assertThrows(.paused) { try await first.prompt("x") }
    }

    func testMemoryWarningKeepsResults() async throws {
        let lifecycle = Lifecycle()
        let session = try await Session(model: try await chatModel(), options: greedy(4))
        lifecycle.manage(session)
        let before = try await collect(session.chat("x"))
        lifecycle.handleMemoryWarning()
        try await Task.sleep(for: .milliseconds(20))
        try await session.reset()
        let after = try await collect(session.chat("x"))
        XCTAssertEqual(before, after)
    }

    func testModelsReceiveDeviceState() async throws {
        let model = try await chatModel()
        let lifecycle = Lifecycle()
        lifecycle.update(thermalState: .critical)
        lifecycle.manage(model)
        try model.setThrottle(.adaptive)
        let hot = try model.throttleStats().dutyCycle
        XCTAssertLessThan(hot, 1)
        let other = try await chatModel()
        try other.setThrottle(.adaptive)
        XCTAssertEqual(try other.throttleStats().dutyCycle, 1)
        lifecycle.manage(other)
        XCTAssertEqual(try other.throttleStats().dutyCycle, hot)
        // The levels that the header gives for iOS.
        XCTAssertEqual([ThermalState.nominal, .fair, .serious, .critical].map(\.level), [0, 1, 3, 4])
    }

    func testPowerStateThrottlesModels() async throws {
        let model = try await chatModel()
        let lifecycle = Lifecycle()
        lifecycle.manage(model)
        try model.setThrottle(.adaptive)
        lifecycle.update(powerState: PowerState(isLowPowerModeEnabled: true, isOnBattery: true, batteryLevel: 0.1))
        XCTAssertLessThan(try model.throttleStats().dutyCycle, 1)
        lifecycle.update(isLowPowerModeEnabled: false)
        lifecycle.update(batteryLevel: 1, isOnBattery: false)
        XCTAssertEqual(try model.throttleStats().dutyCycle, 1)
    }

    func testLifecycleDoesNotKeepModelsAlive() async throws {
        let lifecycle = Lifecycle()
        weak var reference: Model?
        do {
            let model = try await chatModel()
            lifecycle.manage(model)
            reference = model
        }
        XCTAssertNil(reference)
    }
}

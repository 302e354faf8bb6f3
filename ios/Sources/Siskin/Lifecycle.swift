import Foundation

/// Keeps sessions and models in step with the app and the device.
///
/// Followed sessions are suspended in the background, resumed in the foreground, and trimmed of unused memory when
/// memory is low. Followed models receive the thermal and power state, and slow down accordingly if they have a pace:
/// `try model.setPace(.full)`.
///
/// On Apple platforms it observes all of this automatically during its lifetime. Elsewhere, the app must call it.
public final class Lifecycle: Sendable {
    private let state = State()
    #if canImport(Darwin)
    private let signals = Signals()
    #endif

    /// Starts observing.
    public init() {
        #if canImport(Darwin)
        signals.tell(self)
        #endif
    }

    /// Follows a session during its lifetime.
    public func follow(_ session: Session) {
        if state.add(session) { try? session.suspend() }
    }

    /// Follows a model during its lifetime.
    public func follow(_ model: Model) { tell([model], state.add(model)) }

    /// The app entered the background.
    public func enterBackground() {
        for session in state.move(background: true) { try? session.suspend() }
    }

    /// The app returns to the foreground.
    public func enterForeground() {
        for session in state.move(background: false) { try? session.resume() }
    }

    /// Memory is low. Sessions return unused memory, each as soon as its running call has ended.
    public func memoryIsShort() {
        for session in state.sessions {
            Task { try? await session.trim(.unused) }
        }
    }

    /// Sets the thermal state of the device.
    public func heatIs(_ heat: Heat) { tell(state.models, state.change { $0.heat = heat }) }

    /// Sets the power state of the device.
    public func powerIs(_ power: Power) { tell(state.models, state.change { $0.power = power }) }

    /// Sets whether power saving is on; the rest of the power state is unchanged.
    func savingIs(_ saving: Bool) { tell(state.models, state.change { $0.power.saving = saving }) }

    /// Sets the battery state; the rest of the power state is unchanged.
    func batteryIs(_ battery: Float?, onBattery: Bool) {
        tell(state.models, state.change { ($0.power.battery, $0.power.onBattery) = (battery, onBattery) })
    }

    private func tell(_ models: [Model], _ device: Device) {
        for model in models {
            try? model.setHeat(device.heat.level)
            try? model.setPower(saving: device.power.saving, onBattery: device.power.onBattery, battery: device.power.battery)
        }
    }
}

/// The thermal state of a device, as on Apple platforms.
public enum Heat: Sendable, Hashable {
    /// Normal.
    case nominal
    /// Slightly elevated.
    case fair
    /// High: the system throttles.
    case serious
    /// Critical.
    case critical

    /// The corresponding level of the library.
    var level: Int {
        switch self {
        case .nominal: 0
        case .fair: 1
        case .serious: 3
        case .critical: 4
        }
    }
}

/// The power state of a device.
public struct Power: Sendable, Hashable {
    /// Whether power saving is on.
    public var saving: Bool
    /// Whether it runs on battery.
    public var onBattery: Bool
    /// The battery level from 0 to 1, if known.
    public var battery: Float?

    /// Creates a power state.
    public init(saving: Bool = false, onBattery: Bool = false, battery: Float? = nil) {
        (self.saving, self.onBattery, self.battery) = (saving, onBattery, battery)
    }
}

/// The known state of the device.
private struct Device {
    var heat = Heat.nominal
    var power = Power()
}

/// The followed objects, and the known state.
private final class State: @unchecked Sendable {
    private struct Weak<T: AnyObject> {
        weak var value: T?
    }

    private let lock = NSLock()
    // Guarded by the lock.
    private var followedSessions: [Weak<Session>] = []
    private var followedModels: [Weak<Model>] = []
    private var isBackground = false
    private var device = Device()

    var sessions: [Session] { lock.withLock { followedSessions.compactMap(\.value) } }
    var models: [Model] { lock.withLock { followedModels.compactMap(\.value) } }

    /// Adds a session; returns whether the app is in the background.
    func add(_ session: Session) -> Bool {
        lock.withLock {
            followedSessions.removeAll { $0.value == nil || $0.value === session }
            followedSessions.append(Weak(value: session))
            return isBackground
        }
    }

    /// Adds a model; returns the known state of the device.
    func add(_ model: Model) -> Device {
        lock.withLock {
            followedModels.removeAll { $0.value == nil || $0.value === model }
            followedModels.append(Weak(value: model))
            return device
        }
    }

    /// Records whether the app is in the background; returns the sessions that this affects.
    func move(background: Bool) -> [Session] {
        lock.withLock {
            guard isBackground != background else { return [] }
            isBackground = background
            return followedSessions.compactMap(\.value)
        }
    }

    func change(_ change: (inout Device) -> Void) -> Device {
        lock.withLock {
            change(&device)
            return device
        }
    }
}

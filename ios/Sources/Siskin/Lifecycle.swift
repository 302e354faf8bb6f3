import Foundation

/// Keeps sessions and models in step with the app and the device.
///
/// Sessions that it follows are suspended in the background and resumed in front, and give memory back that holds
/// nothing when memory is short. Models that it follows hear of heat and power, and slow down with that where they are
/// held to a pace: `try model.setPace(.full)`.
///
/// On Apple's systems it hears of all this by itself for as long as it lives. Elsewhere, the app tells it.
public final class Lifecycle: Sendable {
    private let state = State()
    #if canImport(Darwin)
    private let signals = Signals()
    #endif

    /// Begins to listen.
    public init() {
        #if canImport(Darwin)
        signals.tell(self)
        #endif
    }

    /// Follows a session for as long as that lives.
    public func follow(_ session: Session) {
        if state.add(session) { try? session.suspend() }
    }

    /// Follows a model for as long as that lives.
    public func follow(_ model: Model) { tell([model], state.add(model)) }

    /// The app went to the background.
    public func enterBackground() {
        for session in state.move(background: true) { try? session.suspend() }
    }

    /// The app comes back to the front.
    public func enterForeground() {
        for session in state.move(background: false) { try? session.resume() }
    }

    /// Memory is short. Sessions give back what holds nothing, each as soon as its running call has ended.
    public func memoryIsShort() {
        for session in state.sessions {
            Task { try? await session.trim(.unused) }
        }
    }

    /// How hot the device is.
    public func heatIs(_ heat: Heat) { tell(state.models, state.change { $0.heat = heat }) }

    /// What the device runs on.
    public func powerIs(_ power: Power) { tell(state.models, state.change { $0.power = power }) }

    /// Whether the owner of the device asked it to save power; the rest of its power is as it was.
    func savingIs(_ saving: Bool) { tell(state.models, state.change { $0.power.saving = saving }) }

    /// What the device has in its battery; the rest of its power is as it was.
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

/// How hot a device is, as Apple's systems count.
public enum Heat: Sendable, Hashable {
    /// Nothing to do.
    case nominal
    /// A little warm.
    case fair
    /// Hot: the system slows things down.
    case serious
    /// Too hot.
    case critical

    /// The library's level of it.
    var level: Int {
        switch self {
        case .nominal: 0
        case .fair: 1
        case .serious: 3
        case .critical: 4
        }
    }
}

/// What a device runs on.
public struct Power: Sendable, Hashable {
    /// Whether its owner asked it to save power.
    public var saving: Bool
    /// Whether it runs on its battery alone.
    public var onBattery: Bool
    /// What is left in that, from 0 to 1, where it is known.
    public var battery: Float?

    /// Power of these.
    public init(saving: Bool = false, onBattery: Bool = false, battery: Float? = nil) {
        (self.saving, self.onBattery, self.battery) = (saving, onBattery, battery)
    }
}

/// What is known of the device.
private struct Device {
    var heat = Heat.nominal
    var power = Power()
}

/// Who is followed, and what is known.
private final class State: @unchecked Sendable {
    private struct Weak<T: AnyObject> {
        weak var value: T?
    }

    private let lock = NSLock()
    // Only touched by who holds the lock.
    private var followedSessions: [Weak<Session>] = []
    private var followedModels: [Weak<Model>] = []
    private var isBackground = false
    private var device = Device()

    var sessions: [Session] { lock.withLock { followedSessions.compactMap(\.value) } }
    var models: [Model] { lock.withLock { followedModels.compactMap(\.value) } }

    /// Adds a session; says whether the app is in the background.
    func add(_ session: Session) -> Bool {
        lock.withLock {
            followedSessions.removeAll { $0.value == nil || $0.value === session }
            followedSessions.append(Weak(value: session))
            return isBackground
        }
    }

    /// Adds a model; gives what is known of the device.
    func add(_ model: Model) -> Device {
        lock.withLock {
            followedModels.removeAll { $0.value == nil || $0.value === model }
            followedModels.append(Weak(value: model))
            return device
        }
    }

    /// Notes where the app is; gives the sessions that this changes.
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

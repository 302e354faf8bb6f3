import Foundation

/// Adapts sessions and models to the app's life cycle and the state of the device.
///
/// Managed sessions are paused in the background, resumed in the foreground, and release unused memory when memory is
/// low. Managed models receive the thermal and power state, and slow down accordingly if they are throttled:
/// `try model.setThrottle(.adaptive)`.
///
/// On Apple platforms, a lifecycle observes the system until it is deinitialized. On other platforms, the app calls its
/// methods.
public final class Lifecycle: Sendable {
    private let state = LifecycleState()
    #if canImport(Darwin)
    private let observers = SystemObservers()
    #endif

    /// Creates a lifecycle that observes the system, on Apple platforms.
    public init() {
        #if canImport(Darwin)
        observers.start(reportingTo: self)
        #endif
    }

    /// Manages a session, without keeping it alive.
    public func manage(_ session: Session) {
        if state.add(session) { try? session.pause() }
    }

    /// Manages a model, without keeping it alive.
    public func manage(_ model: Model) { apply(state.add(model), to: [model]) }

    /// Pauses all sessions: the app entered the background.
    public func enterBackground() {
        for session in state.setInBackground(true) { try? session.pause() }
    }

    /// Resumes all sessions that `enterBackground()` paused: the app enters the foreground.
    public func enterForeground() {
        for session in state.setInBackground(false) { try? session.resume() }
    }

    /// Releases the unused memory of all sessions, each as soon as its running call ends.
    public func handleMemoryWarning() {
        for session in state.sessions {
            Task { try? await session.trim(.unused) }
        }
    }

    /// Updates the thermal state of all models.
    public func update(thermalState: ThermalState) {
        apply(state.updateDevice { $0.thermal = thermalState }, to: state.models)
    }

    /// Updates the power state of all models.
    public func update(powerState: PowerState) {
        apply(state.updateDevice { $0.power = powerState }, to: state.models)
    }

    /// Updates low power mode, and leaves the rest of the power state unchanged.
    func update(isLowPowerModeEnabled: Bool) {
        apply(state.updateDevice { $0.power.isLowPowerModeEnabled = isLowPowerModeEnabled }, to: state.models)
    }

    /// Updates the battery state, and leaves the rest of the power state unchanged.
    func update(batteryLevel: Float?, isOnBattery: Bool) {
        let device = state.updateDevice {
            ($0.power.batteryLevel, $0.power.isOnBattery) = (batteryLevel, isOnBattery)
        }
        apply(device, to: state.models)
    }

    private func apply(_ device: DeviceState, to models: [Model]) {
        for model in models {
            try? model.setThermalState(device.thermal)
            try? model.setPowerState(device.power)
        }
    }
}

/// The last reported state of the device.
private struct DeviceState {
    var thermal = ThermalState.nominal
    var power = PowerState()
}

/// The managed objects, and the last reported state.
private final class LifecycleState: @unchecked Sendable {
    private struct Weak<T: AnyObject> {
        weak var value: T?
    }

    private let lock = NSLock()
    // Guarded by the lock.
    private var managedSessions: [Weak<Session>] = []
    private var managedModels: [Weak<Model>] = []
    private var isInBackground = false
    private var device = DeviceState()

    var sessions: [Session] { lock.withLock { managedSessions.compactMap(\.value) } }
    var models: [Model] { lock.withLock { managedModels.compactMap(\.value) } }

    /// Adds a session; returns whether the app is in the background.
    func add(_ session: Session) -> Bool {
        lock.withLock {
            managedSessions.removeAll { $0.value == nil || $0.value === session }
            managedSessions.append(Weak(value: session))
            return isInBackground
        }
    }

    /// Adds a model; returns the last reported state of the device.
    func add(_ model: Model) -> DeviceState {
        lock.withLock {
            managedModels.removeAll { $0.value == nil || $0.value === model }
            managedModels.append(Weak(value: model))
            return device
        }
    }

    /// Records whether the app is in the background; returns the sessions if the state changed.
    func setInBackground(_ isInBackground: Bool) -> [Session] {
        lock.withLock {
            guard self.isInBackground != isInBackground else { return [] }
            self.isInBackground = isInBackground
            return managedSessions.compactMap(\.value)
        }
    }

    /// Changes the state of the device, and returns it.
    func updateDevice(_ change: (inout DeviceState) -> Void) -> DeviceState {
        lock.withLock {
            change(&device)
            return device
        }
    }
}

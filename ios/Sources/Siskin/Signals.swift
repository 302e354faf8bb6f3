// Notifications of Apple platforms about the app and the device.
#if canImport(Darwin)
import Foundation

#if canImport(UIKit)
import UIKit
#endif

/// Observes the system for a `Lifecycle` until it is deallocated.
final class Signals: @unchecked Sendable {
    // Set by `tell` before it is shared, and by the main-thread work that `tell` starts.
    private let lock = NSLock()
    private var observers: [any NSObjectProtocol] = []
    private let pressure = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: .global())

    deinit {
        pressure.cancel()
        observers.forEach { NotificationCenter.default.removeObserver($0) }
    }

    /// Reports the current state to `lifecycle`, and all changes.
    func tell(_ lifecycle: Lifecycle) {
        pressure.setEventHandler { [weak lifecycle] in lifecycle?.memoryIsShort() }
        pressure.activate()
        let heat: @Sendable (Lifecycle) -> Void = { $0.heatIs(Heat(ProcessInfo.processInfo.thermalState)) }
        let saving: @Sendable (Lifecycle) -> Void = { $0.savingIs(ProcessInfo.processInfo.isLowPowerModeEnabled) }
        heat(lifecycle)
        saving(lifecycle)
        observe(ProcessInfo.thermalStateDidChangeNotification, lifecycle, heat)
        observe(.NSProcessInfoPowerStateDidChange, lifecycle, saving)
        #if canImport(UIKit) && !os(watchOS)
        observe(UIApplication.didEnterBackgroundNotification, lifecycle) { $0.enterBackground() }
        observe(UIApplication.willEnterForegroundNotification, lifecycle) { $0.enterForeground() }
        observe(UIApplication.didReceiveMemoryWarningNotification, lifecycle) { $0.memoryIsShort() }
        observe(UIDevice.batteryStateDidChangeNotification, lifecycle) { Signals.tellBattery($0) }
        observe(UIDevice.batteryLevelDidChangeNotification, lifecycle) { Signals.tellBattery($0) }
        Signals.tellBattery(lifecycle)
        #endif
    }

    private func observe(
        _ name: Notification.Name,
        _ lifecycle: Lifecycle,
        _ tell: @escaping @Sendable (Lifecycle) -> Void
    ) {
        let observer = NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) {
            [weak lifecycle] _ in
            if let lifecycle { tell(lifecycle) }
        }
        lock.withLock { observers.append(observer) }
    }

    #if canImport(UIKit) && !os(watchOS)
    /// The battery level is only known if the app enabled battery monitoring.
    private static func tellBattery(_ lifecycle: Lifecycle) {
        Task { @MainActor [weak lifecycle] in
            let device = UIDevice.current
            guard device.isBatteryMonitoringEnabled else { return }
            lifecycle?.batteryIs(
                device.batteryLevel < 0 ? nil : device.batteryLevel,
                onBattery: device.batteryState == .unplugged
            )
        }
    }
    #endif
}

extension Heat {
    /// Converts the thermal state of `ProcessInfo`.
    public init(_ state: ProcessInfo.ThermalState) {
        switch state {
        case .nominal: self = .nominal
        case .fair: self = .fair
        case .serious: self = .serious
        case .critical: self = .critical
        @unknown default: self = .serious
        }
    }
}
#endif

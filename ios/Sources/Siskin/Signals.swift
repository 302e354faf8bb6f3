// What Apple's systems say of the app and the device.
#if canImport(Darwin)
import Foundation

#if canImport(UIKit)
import UIKit
#endif

/// Listens to the system for a `Lifecycle`, until it is let go.
final class Signals: @unchecked Sendable {
    // Set by `tell` before anybody else has it, and by what `tell` begins on the main thread.
    private let lock = NSLock()
    private var observers: [any NSObjectProtocol] = []
    private let pressure = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: .global())

    deinit {
        pressure.cancel()
        observers.forEach { NotificationCenter.default.removeObserver($0) }
    }

    /// Tells `lifecycle` what is so now, and whatever changes.
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
    /// What is in the battery is only known where the app asked the system to watch it.
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
    /// What `ProcessInfo` says.
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

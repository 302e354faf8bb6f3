// Notifications of Apple platforms about the app and the device.
#if canImport(Darwin)
import Foundation

#if canImport(UIKit)
import UIKit
#endif

/// Observes the system for a `Lifecycle` until it is deinitialized.
final class SystemObservers: @unchecked Sendable {
    // Guards `observers`.
    private let lock = NSLock()
    private var observers: [any NSObjectProtocol] = []
    private let memoryPressure = DispatchSource.makeMemoryPressureSource(
        eventMask: [.warning, .critical],
        queue: .global()
    )

    deinit {
        memoryPressure.cancel()
        observers.forEach { NotificationCenter.default.removeObserver($0) }
    }

    /// Reports the current state and all changes to `lifecycle`.
    func start(reportingTo lifecycle: Lifecycle) {
        memoryPressure.setEventHandler { [weak lifecycle] in lifecycle?.handleMemoryWarning() }
        memoryPressure.activate()
        let updateThermalState: @Sendable (Lifecycle) -> Void = {
            $0.update(thermalState: ProcessInfo.processInfo.thermalState)
        }
        let updateLowPowerMode: @Sendable (Lifecycle) -> Void = {
            $0.update(isLowPowerModeEnabled: ProcessInfo.processInfo.isLowPowerModeEnabled)
        }
        updateThermalState(lifecycle)
        updateLowPowerMode(lifecycle)
        observe(ProcessInfo.thermalStateDidChangeNotification, lifecycle, updateThermalState)
        observe(.NSProcessInfoPowerStateDidChange, lifecycle, updateLowPowerMode)
        #if canImport(UIKit) && !os(watchOS)
        observe(UIApplication.didEnterBackgroundNotification, lifecycle) { $0.enterBackground() }
        observe(UIApplication.willEnterForegroundNotification, lifecycle) { $0.enterForeground() }
        observe(UIApplication.didReceiveMemoryWarningNotification, lifecycle) { $0.handleMemoryWarning() }
        observe(UIDevice.batteryStateDidChangeNotification, lifecycle) { SystemObservers.updateBattery($0) }
        observe(UIDevice.batteryLevelDidChangeNotification, lifecycle) { SystemObservers.updateBattery($0) }
        SystemObservers.updateBattery(lifecycle)
        #endif
    }

    private func observe(
        _ name: Notification.Name,
        _ lifecycle: Lifecycle,
        _ report: @escaping @Sendable (Lifecycle) -> Void
    ) {
        let observer = NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) {
            [weak lifecycle] _ in
            if let lifecycle { report(lifecycle) }
        }
        lock.withLock { observers.append(observer) }
    }

    #if canImport(UIKit) && !os(watchOS)
    /// Reports the battery state, which is only known if the app has enabled battery monitoring.
    private static func updateBattery(_ lifecycle: Lifecycle) {
        Task { @MainActor [weak lifecycle] in
            let device = UIDevice.current
            guard device.isBatteryMonitoringEnabled else { return }
            lifecycle?.update(
                batteryLevel: device.batteryLevel < 0 ? nil : device.batteryLevel,
                isOnBattery: device.batteryState == .unplugged
            )
        }
    }
    #endif
}
#endif

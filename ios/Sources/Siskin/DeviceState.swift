// The state of the device that throttling depends on.
import Foundation

#if canImport(Darwin)
/// The thermal state of a device.
public typealias ThermalState = ProcessInfo.ThermalState
#else
/// The thermal state of a device, with the cases of `ProcessInfo.ThermalState` on Apple platforms.
public enum ThermalState: Sendable, Hashable {
    /// Within normal limits.
    case nominal
    /// Slightly elevated.
    case fair
    /// High: the system is throttled.
    case serious
    /// Critical: the device needs to cool down.
    case critical
}
#endif

extension ThermalState {
    /// The corresponding level in the C API.
    var level: UInt32 {
        switch self {
        case .nominal: return 0
        case .fair: return 1
        case .serious: return 3
        case .critical: return 4
        #if canImport(Darwin)
        @unknown default: return 3
        #endif
        }
    }
}

/// The power state of a device.
public struct PowerState: Sendable, Hashable {
    /// Whether low power mode is enabled.
    public var isLowPowerModeEnabled: Bool
    /// Whether the device runs on battery.
    public var isOnBattery: Bool
    /// The battery level from 0 to 1; `nil` if unknown.
    public var batteryLevel: Float?

    /// Creates a power state.
    public init(isLowPowerModeEnabled: Bool = false, isOnBattery: Bool = false, batteryLevel: Float? = nil) {
        self.isLowPowerModeEnabled = isLowPowerModeEnabled
        self.isOnBattery = isOnBattery
        self.batteryLevel = batteryLevel
    }
}

import CSiskin

/// How computation with a model is throttled.
public enum Throttle: Sendable, Hashable {
    /// No throttling: the thermal and power states are recorded, but have no effect.
    case off
    /// As fast as the thermal and power states allow.
    case adaptive
    /// At most this many tokens per second for each sequence during decoding, with no more threads than that requires.
    /// Prefill and encoding run as fast as the thermal and power states allow.
    case tokensPerSecond(Double)
    /// A duty cycle: the fraction of the time spent computing, above 0, at most 1.
    case dutyCycle(Double)
    /// Background work: one thread, a quarter of the time.
    case background

    var native: (mode: siskin_throttle_mode, value: Float) {
        switch self {
        case .off: (SISKIN_THROTTLE_OFF, 0)
        case .adaptive: (SISKIN_THROTTLE_ADAPTIVE, 0)
        case .tokensPerSecond(let rate): (SISKIN_THROTTLE_TOKENS_PER_SECOND, Float(rate))
        case .dutyCycle(let fraction): (SISKIN_THROTTLE_DUTY_CYCLE, Float(fraction))
        case .background: (SISKIN_THROTTLE_BACKGROUND, 0)
        }
    }
}

/// Throttling statistics.
public struct ThrottleStats: Sendable, Hashable {
    /// The number of forward passes.
    public let forwardPasses: Int
    /// The time spent in forward passes.
    public let computeTime: Duration
    /// The time spent waiting before forward passes.
    public let waitTime: Duration
    /// The number of threads used by the last forward pass; `nil` before the first one.
    public let threads: Int?
    /// The current duty cycle.
    public let dutyCycle: Double

    init(_ stats: siskin_throttle_stats) {
        forwardPasses = Int(clamping: stats.passes)
        computeTime = .nanoseconds(Int64(clamping: stats.compute_nanoseconds))
        waitTime = .nanoseconds(Int64(clamping: stats.wait_nanoseconds))
        threads = stats.threads == 0 ? nil : Int(stats.threads)
        dutyCycle = Double(stats.duty_cycle)
    }
}

/// Throttling. These functions may be called at any time, including while the model computes.
extension Model {
    /// Sets how all computation with the model is throttled. Results do not depend on it.
    public func setThrottle(_ throttle: Throttle) throws(SiskinError) {
        let (mode, value) = throttle.native
        try handle.use { model throws(SiskinError) in try check(siskin_model_set_throttle(model, mode, value)) }
    }

    /// Sets the thermal state of the device. `Lifecycle` does so automatically. When the device cools down, speed
    /// rises step by step.
    public func setThermalState(_ state: ThermalState) throws(SiskinError) {
        try handle.use { model throws(SiskinError) in try check(siskin_model_set_thermal_state(model, state.level)) }
    }

    /// Sets the power state of the device. `Lifecycle` does so automatically.
    public func setPowerState(_ state: PowerState) throws(SiskinError) {
        try handle.use { model throws(SiskinError) in
            let level = state.batteryLevel ?? -1
            try check(siskin_model_set_power_state(model, state.isLowPowerModeEnabled, state.isOnBattery, level))
        }
    }

    /// Returns the throttling statistics.
    public func throttleStats() throws(SiskinError) -> ThrottleStats {
        try handle.use { model throws(SiskinError) in
            ThrottleStats(try readStruct(siskin_throttle_stats(), \.struct_size) {
                siskin_model_throttle_stats(model, &$0)
            })
        }
    }
}

import CSiskin

/// The pace of computation with a model.
public enum Pace: Sendable, Hashable {
    /// No throttling: heat and power are recorded, but nothing is slowed down.
    case off
    /// As fast as heat and power allow.
    case full
    /// A fixed number of tokens per second for each sequence, with no more threads than that takes.
    case tokens(perSecond: Float)
    /// The duty cycle: the fraction of the time spent computing, above 0, at most 1.
    case duty(Float)
    /// Background work: one thread, a quarter of the time.
    case background

    var native: (UInt32, Float) {
        switch self {
        case .off: (UInt32(SISKIN_PACE_OFF), 0)
        case .full: (UInt32(SISKIN_PACE_FULL), 0)
        case .tokens(let tokens): (UInt32(SISKIN_PACE_TOKENS), tokens)
        case .duty(let duty): (UInt32(SISKIN_PACE_DUTY), duty)
        case .background: (UInt32(SISKIN_PACE_BACKGROUND), 0)
        }
    }
}

/// Statistics of throttled computation.
public struct PaceStats: Sendable, Hashable {
    /// Forward passes of the model.
    public let passes: UInt64
    /// The time spent in them.
    public let worked: Duration
    /// The time spent waiting before them.
    public let waited: Duration
    /// Threads of the last pass; 0 before the first one.
    public let threads: Int
    /// The current duty cycle.
    public let duty: Float

    init(_ stats: siskin_pace_stats) {
        passes = stats.passes
        worked = .nanoseconds(Int64(clamping: stats.worked_nanoseconds))
        waited = .nanoseconds(Int64(clamping: stats.waited_nanoseconds))
        threads = Int(stats.threads)
        duty = stats.duty
    }
}

/// Any task may call these at any time, including while the model computes.
extension Model {
    /// Sets the pace of all computation with the model. Results do not depend on it.
    public func setPace(_ pace: Pace) throws(SiskinError) {
        let (kind, value) = pace.native
        try owner.lend { model throws(SiskinError) in try check(siskin_model_set_pace(model, kind, value)) }
    }

    /// Sets the thermal state of the device, from 0 to 6. `DeviceWatch` does this automatically.
    public func setHeat(_ level: Int) throws(SiskinError) {
        let level: UInt32 = try number(level, "level")
        try owner.lend { model throws(SiskinError) in try check(siskin_model_set_heat(model, level)) }
    }

    /// Sets the power state of the device: whether power saving is on, whether it runs on battery, and the battery
    /// level from 0 to 1, if known. `DeviceWatch` does this automatically.
    public func setPower(saving: Bool, onBattery: Bool, battery: Float? = nil) throws(SiskinError) {
        try owner.lend { model throws(SiskinError) in
            try check(siskin_model_set_power(model, saving, onBattery, battery ?? -1))
        }
    }

    /// Returns the statistics of throttled computation.
    public func paceStats() throws(SiskinError) -> PaceStats {
        try owner.lend { model throws(SiskinError) in
            PaceStats(try filled(siskin_pace_stats(), \.struct_size) { siskin_model_pace_stats(model, &$0) })
        }
    }
}

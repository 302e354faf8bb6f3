import CSiskin

/// How fast models compute.
public enum Pace: Sendable, Hashable {
    /// Nothing is held: heat and power are noted, and nothing is slowed down.
    case off
    /// As fast as heat and power allow.
    case full
    /// So many tokens a second of each text that is written, with no more threads than that takes.
    case tokens(perSecond: Float)
    /// The part of the time in which there may be computing: above 0, at most 1.
    case duty(Float)
    /// Work that nobody waits for: one thread, a quarter of the time.
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

/// What was done while a pace was held.
public struct PaceStats: Sendable, Hashable {
    /// Passes through the model.
    public let passes: UInt64
    /// The time that they took.
    public let worked: Duration
    /// The time that was let go by before them.
    public let waited: Duration
    /// Threads of the last pass; 0: there was none.
    public let threads: Int
    /// The part of the time in which there may be computing now.
    public let duty: Float

    init(_ stats: siskin_pace_stats) {
        passes = stats.passes
        worked = .nanoseconds(Int64(clamping: stats.worked_nanoseconds))
        waited = .nanoseconds(Int64(clamping: stats.waited_nanoseconds))
        threads = Int(stats.threads)
        duty = stats.duty
    }
}

/// Any task may call these at any time, also while the model works.
extension Model {
    /// Holds all that compute with the model to a pace. Results do not depend on it.
    public func setPace(_ pace: Pace) throws(SiskinError) {
        let (kind, value) = pace.native
        try owner.lend { model throws(SiskinError) in try check(siskin_model_set_pace(model, kind, value)) }
    }

    /// Says how hot the device is, from 0 to 6. `DeviceWatch` does this by itself.
    public func setHeat(_ level: Int) throws(SiskinError) {
        let level: UInt32 = try number(level, "level")
        try owner.lend { model throws(SiskinError) in try check(siskin_model_set_heat(model, level)) }
    }

    /// Says what the device runs on: whether its owner asked it to save power, whether it runs on its battery alone, and
    /// what is left in that, from 0 to 1, where it is known. `DeviceWatch` does this by itself.
    public func setPower(saving: Bool, onBattery: Bool, battery: Float? = nil) throws(SiskinError) {
        try owner.lend { model throws(SiskinError) in
            try check(siskin_model_set_power(model, saving, onBattery, battery ?? -1))
        }
    }

    /// What was done while a pace was held.
    public func paceStats() throws(SiskinError) -> PaceStats {
        try owner.lend { model throws(SiskinError) in
            PaceStats(try filled(siskin_pace_stats(), \.struct_size) { siskin_model_pace_stats(model, &$0) })
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How fast a model may compute. Results do not depend on it. */
public sealed class Throttle(internal val mode: Int, internal val value: Float) {
    /** No throttling: the thermal and power states are recorded, but have no effect. */
    public data object Off : Throttle(0, 0f)

    /** As fast as the thermal and power states allow. */
    public data object Adaptive : Throttle(1, 0f)

    /**
     * At most this many tokens per second for each sequence during decoding, with no more threads than that requires.
     * Prefill and encoding run as fast as the thermal and power states allow.
     */
    public data class TokensPerSecond(
        /** Above 0. */
        public val rate: Float,
    ) : Throttle(2, rate)

    /** A duty cycle. */
    public data class DutyCycle(
        /** The fraction of the time spent computing: above 0, at most 1. */
        public val fraction: Float,
    ) : Throttle(3, fraction)

    /** Background work: one thread, for a quarter of the time. */
    public data object Background : Throttle(4, 0f)
}

/** The thermal state of the device. The ordinals are the values of `PowerManager.THERMAL_STATUS_...`. */
public enum class ThermalState {
    /** Not throttled. */
    NONE,

    /** Light throttling that does not affect the user. */
    LIGHT,

    /** Moderate throttling. */
    MODERATE,

    /** Severe throttling that affects the user. */
    SEVERE,

    /** The device has done everything it can to cool down. */
    CRITICAL,

    /** Components are shutting down. */
    EMERGENCY,

    /** The device is about to shut down. */
    SHUTDOWN,
}

/** The power state of the device. */
public data class PowerState(
    /** Whether the system's power save mode is on. */
    public val isPowerSaveMode: Boolean,
    /** Whether the device runs on battery. */
    public val isOnBattery: Boolean,
    /** The battery level from 0 to 1; `null` if it is unknown. */
    public val batteryLevel: Float? = null,
)

/** Throttling statistics. */
@ConsistentCopyVisibility
public data class ThrottleStats internal constructor(
    /** The number of forward passes of the model. */
    public val forwardPasses: Long,
    /** The time spent in them. */
    public val computeNanoseconds: Long,
    /** The time spent waiting before them. */
    public val waitNanoseconds: Long,
    /** The number of threads used by the last forward pass; `null` before the first one. */
    public val threads: Int?,
    /** The current duty cycle. */
    public val dutyCycle: Float,
) {
    internal companion object {
        fun read(bytes: ByteArray): ThrottleStats = Unpacker(bytes).run {
            ThrottleStats(long(), long(), long(), int().takeIf { it > 0 }, float())
        }
    }
}

internal object NativeThrottle {
    @JvmStatic external fun setMode(model: Long, mode: Int, value: Float)

    @JvmStatic external fun setThermalState(model: Long, state: Int)

    @JvmStatic external fun setPowerState(model: Long, saving: Boolean, onBattery: Boolean, battery: Float)

    @JvmStatic external fun stats(model: Long): ByteArray
}

// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** The pace of all computation with a model. Results do not depend on it. */
public sealed class Pace(internal val kind: Int, internal val value: Float) {
    /** No throttling: heat and power are recorded, but nothing is slowed down. */
    public data object Off : Pace(0, 0f)

    /** As fast as heat and power allow. */
    public data object Full : Pace(1, 0f)

    /** A fixed number of tokens per second for each sequence, with no more threads than that takes. */
    public class Tokens(
        /** Tokens per second. */
        public val perSecond: Float,
    ) : Pace(2, perSecond)

    /** The duty cycle: the fraction of the time spent computing. */
    public class Duty(
        /** Above 0, at most 1. */
        public val part: Float,
    ) : Pace(3, part)

    /** Background work: one thread, a quarter of the time. */
    public data object Background : Pace(4, 0f)
}

/** Statistics of throttled computation. */
public class PaceStats internal constructor(
    /** Forward passes of the model. */
    public val passes: Long,
    /** The time spent in them. */
    public val workedNanoseconds: Long,
    /** The time spent waiting before them. */
    public val waitedNanoseconds: Long,
    /** Threads of the last pass; 0 before the first one. */
    public val threads: Int,
    /** The current duty cycle. */
    public val duty: Float,
)

/** Sets the pace of all computation with the model, at any time. */
public fun Model.setPace(pace: Pace): Unit = owner.lend { NativeGovernor.setPace(it, pace.kind, pace.value) }

/**
 * Sets the thermal state of the device, from 0 to 6 as in Android's thermal status. When the device cools down, the
 * pace rises step by step.
 */
public fun Model.setHeat(level: Int): Unit = owner.lend { NativeGovernor.setHeat(it, natural("level", level)) }

/**
 * Sets the power state of the device: whether power saving is on, whether it runs on battery, and the battery level
 * from 0 to 1, `null` if unknown.
 */
public fun Model.setPower(saving: Boolean, onBattery: Boolean, battery: Float? = null): Unit =
    owner.lend { NativeGovernor.setPower(it, saving, onBattery, battery ?: -1f) }

/** Returns the statistics of throttled computation. */
public fun Model.paceStats(): PaceStats = Unpacker(owner.lend(NativeGovernor::stats)).run {
    PaceStats(long(), long(), long(), int(), float())
}

internal object NativeGovernor {
    @JvmStatic external fun setPace(model: Long, pace: Int, value: Float)

    @JvmStatic external fun setHeat(model: Long, level: Int)

    @JvmStatic external fun setPower(model: Long, saving: Boolean, onBattery: Boolean, battery: Float)

    @JvmStatic external fun stats(model: Long): ByteArray
}

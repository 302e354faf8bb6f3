// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** The pace that all that compute with a model are held to. Results do not depend on it. */
public sealed class Pace(internal val kind: Int, internal val value: Float) {
    /** Nothing is held: heat and power are noted, and nothing is slowed down. */
    public data object Off : Pace(0, 0f)

    /** As fast as heat and power allow. */
    public data object Full : Pace(1, 0f)

    /** So many tokens a second of each text that is written, with no more threads than that takes. */
    public class Tokens(
        /** Tokens a second. */
        public val perSecond: Float,
    ) : Pace(2, perSecond)

    /** The part of the time in which there may be computing. */
    public class Duty(
        /** Above 0, at most 1. */
        public val part: Float,
    ) : Pace(3, part)

    /** Work that nobody waits for: one thread, a quarter of the time. */
    public data object Background : Pace(4, 0f)
}

/** What was done while a pace was held. */
public class PaceStats internal constructor(
    /** Passes through the model. */
    public val passes: Long,
    /** The time that they took. */
    public val workedNanoseconds: Long,
    /** The time that was let go by before them. */
    public val waitedNanoseconds: Long,
    /** Threads of the last pass; 0: there was none. */
    public val threads: Int,
    /** The part of the time in which there may be computing now. */
    public val duty: Float,
)

/** Holds all that compute with the model to a pace, at any time. */
public fun Model.setPace(pace: Pace): Unit = owner.lend { NativeGovernor.setPace(it, pace.kind, pace.value) }

/**
 * Says how hot the device is, from 0 to 6 as Android's thermal status counts. Where it cools down, the pace rises step
 * by step.
 */
public fun Model.setHeat(level: Int): Unit = owner.lend { NativeGovernor.setHeat(it, natural("level", level)) }

/**
 * Says what the device runs on: whether its owner asked it to save power, whether it runs on its battery alone, and what
 * is left in that, from 0 to 1; `null` where that is not known.
 */
public fun Model.setPower(saving: Boolean, onBattery: Boolean, battery: Float? = null): Unit =
    owner.lend { NativeGovernor.setPower(it, saving, onBattery, battery ?: -1f) }

/** What was done while a pace was held. */
public fun Model.paceStats(): PaceStats = Unpacker(owner.lend(NativeGovernor::stats)).run {
    PaceStats(long(), long(), long(), int(), float())
}

internal object NativeGovernor {
    @JvmStatic external fun setPace(model: Long, pace: Int, value: Float)

    @JvmStatic external fun setHeat(model: Long, level: Int)

    @JvmStatic external fun setPower(model: Long, saving: Boolean, onBattery: Boolean, battery: Float)

    @JvmStatic external fun stats(model: Long): ByteArray
}

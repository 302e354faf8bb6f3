// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/**
 * Sampling options. `null` means the default, or off. A value out of its range is rejected when the options are used.
 */
public class Sampler {
    /** Temperature: the divisor of the logits; 0: greedy. Default: 0.8. */
    public var temperature: Double? = null

    /** Top-k: keep this many of the most probable tokens; 0 is off. Default: 40. */
    public var topK: Int? = null

    /** Top-p: keep the fewest most probable tokens whose probabilities sum to this; 1 is off. Default: 0.95. */
    public var topP: Double? = null

    /**
     * Min-p: keep tokens with at least this fraction of the most probable token's probability; 0 is off. Default: 0.05.
     */
    public var minP: Double? = null

    /**
     * Locally typical sampling: keep the tokens nearest to the expected surprise up to this probability mass; 1 is off.
     */
    public var typicalP: Double? = null

    /** XTC: the probability with which top choices are excluded; 0 is off. */
    public var xtcProbability: Double? = null

    /** XTC: the probability from which a token is a top choice. */
    public var xtcThreshold: Double? = null

    /** Dynamic temperature: how far the temperature may move in either direction; 0 is off. */
    public var dynamicRange: Double? = null

    /** Dynamic temperature: the exponent of the normalized entropy. */
    public var dynamicExponent: Double? = null

    /** Repetition penalty: the divisor of logits of tokens in the history; 1 is off. */
    public var repetitionPenalty: Double? = null

    /** Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off. */
    public var frequencyPenalty: Double? = null

    /** Presence penalty: subtracted from a logit if its token is in the history; 0 is off. */
    public var presencePenalty: Double? = null

    /** The number of past tokens that the three penalties consider. */
    public var penaltyLast: Int? = null

    /** DRY: the scale of the penalty for continuing a repetition; 0 is off. */
    public var dryMultiplier: Double? = null

    /** DRY: the factor by which the penalty grows for each further repeated token. */
    public var dryBase: Double? = null

    /** DRY: the length up to which repetitions are not penalized. */
    public var dryAllowed: Int? = null

    /** DRY: the number of past tokens that are considered. */
    public var dryLast: Int? = null

    /** Mirostat 2 instead of top-k, top-p, min-p, typical and XTC. */
    public var mirostat: Boolean? = null

    /** Mirostat: the target surprise, in bits. */
    public var mirostatTau: Double? = null

    /** Mirostat: the learning rate. */
    public var mirostatEta: Double? = null

    /** Report the log-probability of each token. */
    public var logProbabilities: Boolean? = null

    /** Also report the log-probabilities of this many of the most probable tokens. */
    public var topLogProbabilities: Int? = null

    /** The random seed: the same seed, options, model and prompt give the same text on every machine. */
    public var seed: Long? = null

    /** Logit biases by token id; negative infinity forbids a token. */
    public var biases: Map<Int, Float> = emptyMap()

    /** The options in the order of their native constants, which begin with 1. */
    private fun options(): List<Number?> = listOf(
        temperature, topK, topP, minP, typicalP, xtcProbability, xtcThreshold, dynamicRange, dynamicExponent,
        repetitionPenalty, frequencyPenalty, presencePenalty, penaltyLast, dryMultiplier, dryBase, dryAllowed, dryLast,
        mirostat?.number(), mirostatTau, mirostatEta, logProbabilities?.number(), topLogProbabilities,
    )

    internal fun <T> lend(use: (Long) -> T): T = lent(NativeSampler.create(), NativeSampler::free) { sampler ->
        options().forEachIndexed { index, value ->
            if (value != null) NativeSampler.set(sampler, index + 1, value.toDouble())
        }
        seed?.let { NativeSampler.setSeed(sampler, it) }
        biases.forEach { (token, bias) -> NativeSampler.addBias(sampler, token, bias) }
        use(sampler)
    }

    /** Presets. */
    public companion object {
        /** Greedy decoding: always the most probable token. */
        @JvmStatic
        public fun greedy(): Sampler = Sampler().apply { temperature = 0.0 }
    }
}

internal fun Boolean.number(): Int = if (this) 1 else 0

internal object NativeSampler {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun set(sampler: Long, option: Int, value: Double)

    @JvmStatic external fun setSeed(sampler: Long, seed: Long)

    @JvmStatic external fun addBias(sampler: Long, token: Int, bias: Float)

    @JvmStatic external fun free(sampler: Long)
}

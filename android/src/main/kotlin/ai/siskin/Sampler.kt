// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/**
 * Sampling options. `null` is the library's default. A value out of range is rejected when the options are used.
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
     * Locally typical sampling: keep the tokens whose surprisal is nearest to the entropy, up to this probability mass;
     * 1 is off.
     */
    public var typicalP: Double? = null

    /** XTC: the probability with which top choices are excluded; 0 is off. */
    public var xtcProbability: Double? = null

    /** XTC: the probability from which a token is a top choice. */
    public var xtcThreshold: Double? = null

    /** Dynamic temperature: how far the temperature may move in either direction; 0 is off. */
    public var dynamicTemperatureRange: Double? = null

    /** Dynamic temperature: the exponent of the normalized entropy. */
    public var dynamicTemperatureExponent: Double? = null

    /** Repetition penalty: positive logits of past tokens are divided by this, negative ones multiplied; 1 is off. */
    public var repetitionPenalty: Double? = null

    /** Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off. */
    public var frequencyPenalty: Double? = null

    /** Presence penalty: subtracted from a logit if its token is in the history; 0 is off. */
    public var presencePenalty: Double? = null

    /** The number of past tokens that the three penalties consider. */
    public var penaltyLastN: Int? = null

    /** DRY: the scale of the penalty for continuing a repetition; 0 is off. */
    public var dryMultiplier: Double? = null

    /** DRY: the factor by which the penalty grows for each further repeated token. */
    public var dryBase: Double? = null

    /** DRY: the length up to which repetitions are not penalized. */
    public var dryAllowedLength: Int? = null

    /** DRY: the number of past tokens that are considered. */
    public var dryLastN: Int? = null

    /** Whether to use Mirostat 2 instead of top-k, top-p, min-p, typical and XTC. */
    public var mirostat: Boolean? = null

    /** Mirostat: the target surprisal, in bits. */
    public var mirostatTau: Double? = null

    /** Mirostat: the learning rate. */
    public var mirostatEta: Double? = null

    /** Whether to report the log-probability of each token. */
    public var logProbabilities: Boolean? = null

    /** The number of most probable tokens whose log-probabilities are reported at each position. */
    public var topLogProbabilities: Int? = null

    /** The random seed: the same seed, options, model and prompt give the same text on every machine. */
    public var seed: Long? = null

    /** Logit biases by token id; negative infinity forbids a token. */
    public var logitBias: Map<Int, Float> = emptyMap()

    /** The options in the order of the native constants, which begin with 1. */
    private fun options(): List<Number?> = listOf(
        temperature, topK, topP, minP, typicalP, xtcProbability, xtcThreshold,
        dynamicTemperatureRange, dynamicTemperatureExponent,
        repetitionPenalty, frequencyPenalty, presencePenalty, penaltyLastN,
        dryMultiplier, dryBase, dryAllowedLength, dryLastN,
        mirostat?.toInt(), mirostatTau, mirostatEta, logProbabilities?.toInt(), topLogProbabilities,
    )

    internal fun <T> withNative(use: (Long) -> T): T =
        useNative(NativeSampler.create(), NativeSampler::free) { sampler ->
            options().forEachIndexed { index, value ->
                if (value != null) NativeSampler.set(sampler, index + 1, value.toDouble())
            }
            seed?.let { NativeSampler.setSeed(sampler, it) }
            logitBias.forEach { (token, bias) -> NativeSampler.addLogitBias(sampler, token, bias) }
            use(sampler)
        }

    /** Presets. */
    public companion object {
        /** Greedy decoding: always the most probable token. */
        @JvmStatic
        public fun greedy(): Sampler = Sampler().apply { temperature = 0.0 }
    }
}

internal object NativeSampler {
    @JvmStatic external fun create(): Long

    @JvmStatic external fun set(sampler: Long, option: Int, value: Double)

    @JvmStatic external fun setSeed(sampler: Long, seed: Long)

    @JvmStatic external fun addLogitBias(sampler: Long, token: Int, bias: Float)

    @JvmStatic external fun free(sampler: Long)
}

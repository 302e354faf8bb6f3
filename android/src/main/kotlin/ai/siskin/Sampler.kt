// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

/** How tokens are chosen. What is `null` is as usual, or off. A value out of its range is refused where it is used. */
public class Sampler {
    /** What logits are divided by; 0: always the likeliest token. Usually 0.8. */
    public var temperature: Double? = null

    /** Keep so many of the likeliest tokens; 0 is off. Usually 40. */
    public var topK: Int? = null

    /** Keep the fewest likeliest tokens with this share of the probability; 1 is off. Usually 0.95. */
    public var topP: Double? = null

    /** Keep tokens at least so many times as likely as the likeliest; 0 is off. Usually 0.05. */
    public var minP: Double? = null

    /** Keep the tokens nearest to the expected surprise with this share; 1 is off. */
    public var typicalP: Double? = null

    /** How often top choices are excluded; 0 is off. */
    public var xtcProbability: Double? = null

    /** The probability from which a token is a top choice. */
    public var xtcThreshold: Double? = null

    /** How far the temperature may move either way; 0 is off. */
    public var dynamicRange: Double? = null

    /** The power to which the entropy's share is raised where the temperature moves. */
    public var dynamicExponent: Double? = null

    /** What logits of tokens in the history are divided by; 1 is off. */
    public var repetitionPenalty: Double? = null

    /** Taken from a logit for every time that its token is in the history; 0 is off. */
    public var frequencyPenalty: Double? = null

    /** Taken from a logit when its token is in the history; 0 is off. */
    public var presencePenalty: Double? = null

    /** How many tokens the three penalties look back on. */
    public var penaltyLast: Int? = null

    /** The size of the penalty for continuing a repetition (DRY); 0 is off. */
    public var dryMultiplier: Double? = null

    /** How much that grows for each further repeated token. */
    public var dryBase: Double? = null

    /** The length up to which repetitions stay unpunished. */
    public var dryAllowed: Int? = null

    /** How many tokens DRY looks back on. */
    public var dryLast: Int? = null

    /** Mirostat 2 in the place of top-k, top-p, min-p, typical and XTC. */
    public var mirostat: Boolean? = null

    /** Mirostat's target surprise, in bits. */
    public var mirostatTau: Double? = null

    /** How fast Mirostat moves towards its target. */
    public var mirostatEta: Double? = null

    /** Report the logarithm of each token's probability. */
    public var logProbabilities: Boolean? = null

    /** Report so many of the likeliest tokens as well. */
    public var topLogProbabilities: Int? = null

    /** Where random numbers start: the same seed, options, model and prompt give the same text on every machine. */
    public var seed: Long? = null

    /** What is added to the logits of tokens; minus infinity forbids one. */
    public var biases: Map<Int, Float> = emptyMap()

    /** The options in the order of their numbers, which begin with 1. */
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

    /** Ways to choose. */
    public companion object {
        /** Always the likeliest token. */
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

import CSiskin

/// How tokens are chosen. What is `nil` is as usual.
public struct Sampler: Sendable, Hashable {
    /// What logits are divided by; 0: always the likeliest token. Usually 0.8.
    public var temperature: Double?
    /// Keep so many of the likeliest tokens; 0 is off. Usually 40.
    public var topK: Int?
    /// Keep the fewest likeliest tokens with this share of the probability; 1 is off. Usually 0.95.
    public var topP: Double?
    /// Keep tokens at least so many times as likely as the likeliest; 0 is off. Usually 0.05.
    public var minP: Double?
    /// Keep the tokens nearest to the expected surprise with this share; 1 is off.
    public var typicalP: Double?
    /// How often top choices are excluded; 0 is off.
    public var xtcProbability: Double?
    /// The probability from which a token is a top choice.
    public var xtcThreshold: Double?
    /// How far the temperature may move either way; 0 is off.
    public var dynamicRange: Double?
    /// The power to which the entropy's share is raised where the temperature moves.
    public var dynamicExponent: Double?
    /// What logits of tokens in the history are divided by; 1 is off.
    public var repetitionPenalty: Double?
    /// Taken from a logit for every time that its token is in the history; 0 is off.
    public var frequencyPenalty: Double?
    /// Taken from a logit when its token is in the history; 0 is off.
    public var presencePenalty: Double?
    /// How many tokens the three penalties look back on.
    public var penaltyLast: Int?
    /// The size of the penalty for continuing a repetition (DRY); 0 is off.
    public var dryMultiplier: Double?
    /// How much that grows for each further repeated token.
    public var dryBase: Double?
    /// The length up to which repetitions stay unpunished.
    public var dryAllowed: Int?
    /// How many tokens DRY looks back on.
    public var dryLast: Int?
    /// Mirostat 2 in the place of top-k, top-p, min-p, typical and XTC.
    public var mirostat: Bool?
    /// Mirostat's target surprise, in bits.
    public var mirostatTau: Double?
    /// How fast Mirostat moves towards its target.
    public var mirostatEta: Double?
    /// Report the logarithm of each token's probability.
    public var logProbabilities: Bool?
    /// Report so many of the likeliest tokens as well.
    public var topLogProbabilities: Int?
    /// Where random numbers start: the same seed, options, model and prompt give the same text on every machine.
    public var seed: UInt64?
    /// What is added to the logits of tokens; minus infinity forbids one.
    public var bias: [UInt32: Float] = [:]

    /// The usual way to choose.
    public init() {}

    /// Always the likeliest token.
    public static var greedy: Sampler {
        var sampler = Sampler()
        sampler.temperature = 0
        return sampler
    }

    private var numbers: [(Int32, Double?)] {
        [
            (SISKIN_SAMPLER_TEMPERATURE, temperature),
            (SISKIN_SAMPLER_TOP_K, topK.map(Double.init)),
            (SISKIN_SAMPLER_TOP_P, topP),
            (SISKIN_SAMPLER_MIN_P, minP),
            (SISKIN_SAMPLER_TYPICAL_P, typicalP),
            (SISKIN_SAMPLER_XTC_PROBABILITY, xtcProbability),
            (SISKIN_SAMPLER_XTC_THRESHOLD, xtcThreshold),
            (SISKIN_SAMPLER_DYNAMIC_RANGE, dynamicRange),
            (SISKIN_SAMPLER_DYNAMIC_EXPONENT, dynamicExponent),
            (SISKIN_SAMPLER_REPETITION_PENALTY, repetitionPenalty),
            (SISKIN_SAMPLER_FREQUENCY_PENALTY, frequencyPenalty),
            (SISKIN_SAMPLER_PRESENCE_PENALTY, presencePenalty),
            (SISKIN_SAMPLER_PENALTY_LAST, penaltyLast.map(Double.init)),
            (SISKIN_SAMPLER_DRY_MULTIPLIER, dryMultiplier),
            (SISKIN_SAMPLER_DRY_BASE, dryBase),
            (SISKIN_SAMPLER_DRY_ALLOWED, dryAllowed.map(Double.init)),
            (SISKIN_SAMPLER_DRY_LAST, dryLast.map(Double.init)),
            (SISKIN_SAMPLER_MIROSTAT, mirostat.map { $0 ? 1 : 0 }),
            (SISKIN_SAMPLER_MIROSTAT_TAU, mirostatTau),
            (SISKIN_SAMPLER_MIROSTAT_ETA, mirostatEta),
            (SISKIN_SAMPLER_LOG_PROBABILITIES, logProbabilities.map { $0 ? 1 : 0 }),
            (SISKIN_SAMPLER_TOP_LOG_PROBABILITIES, topLogProbabilities.map(Double.init)),
        ]
    }

    /// The library's form of it.
    func native() throws(SiskinError) -> Owner {
        let owner = Owner(try made { siskin_sampler_new(&$0) }, "sampler", free: { siskin_sampler_free($0) })
        try owner.lend { native throws(SiskinError) in
            for case (let option, let value?) in numbers {
                try check(siskin_sampler_set(native, UInt32(option), value))
            }
            if let seed { try check(siskin_sampler_set_seed(native, seed)) }
            for (token, value) in bias { try check(siskin_sampler_add_bias(native, token, value)) }
        }
        return owner
    }
}

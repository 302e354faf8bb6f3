import CSiskin

/// Sampling options. `nil` means the default.
public struct Sampler: Sendable, Hashable {
    /// Temperature: the divisor of the logits; 0: greedy. Default: 0.8.
    public var temperature: Double?
    /// Top-k: keep this many of the most probable tokens; 0 is off. Default: 40.
    public var topK: Int?
    /// Top-p: keep the fewest most probable tokens whose probabilities sum to this; 1 is off. Default: 0.95.
    public var topP: Double?
    /// Min-p: keep tokens with at least this fraction of the most probable token's probability; 0 is off. Default:
    /// 0.05.
    public var minP: Double?
    /// Locally typical sampling: keep the tokens nearest to the expected surprise up to this probability mass; 1 is
    /// off.
    public var typicalP: Double?
    /// XTC: the probability with which top choices are excluded; 0 is off.
    public var xtcProbability: Double?
    /// XTC: the probability from which a token is a top choice.
    public var xtcThreshold: Double?
    /// Dynamic temperature: how far the temperature may move in either direction; 0 is off.
    public var dynamicRange: Double?
    /// Dynamic temperature: the exponent of the normalized entropy.
    public var dynamicExponent: Double?
    /// Repetition penalty: the divisor of logits of tokens in the history; 1 is off.
    public var repetitionPenalty: Double?
    /// Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off.
    public var frequencyPenalty: Double?
    /// Presence penalty: subtracted from a logit if its token is in the history; 0 is off.
    public var presencePenalty: Double?
    /// The number of past tokens that the three penalties consider.
    public var penaltyLast: Int?
    /// DRY: the scale of the penalty for continuing a repetition; 0 is off.
    public var dryMultiplier: Double?
    /// DRY: the factor by which the penalty grows for each further repeated token.
    public var dryBase: Double?
    /// DRY: the length up to which repetitions are not penalized.
    public var dryAllowed: Int?
    /// DRY: the number of past tokens that are considered.
    public var dryLast: Int?
    /// Mirostat 2 instead of top-k, top-p, min-p, typical and XTC.
    public var mirostat: Bool?
    /// Mirostat: the target surprise, in bits.
    public var mirostatTau: Double?
    /// Mirostat: the learning rate.
    public var mirostatEta: Double?
    /// Report the log-probability of each token.
    public var logProbabilities: Bool?
    /// Also report the log-probabilities of this many of the most probable tokens.
    public var topLogProbabilities: Int?
    /// The random seed: the same seed, options, model and prompt give the same text on every machine.
    public var seed: UInt64?
    /// Logit biases by token id; negative infinity forbids a token.
    public var bias: [UInt32: Float] = [:]

    /// The defaults.
    public init() {}

    /// Greedy decoding: always the most probable token.
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

    /// Creates the native form.
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

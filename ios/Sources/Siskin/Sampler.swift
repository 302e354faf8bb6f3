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
    /// Locally typical sampling: keep the tokens whose surprisal is nearest to the entropy, up to this probability
    /// mass; 1, the default, is off.
    public var typicalP: Double?
    /// XTC: the probability with which top choices are excluded; 0, the default, is off.
    public var xtcProbability: Double?
    /// XTC: the probability from which a token is a top choice.
    public var xtcThreshold: Double?
    /// Dynamic temperature: how far the temperature may move in either direction; 0, the default, is off.
    public var dynamicTemperatureRange: Double?
    /// Dynamic temperature: the exponent of the normalized entropy.
    public var dynamicTemperatureExponent: Double?
    /// Repetition penalty: positive logits of past tokens are divided by this, negative ones multiplied; 1 is off.
    public var repetitionPenalty: Double?
    /// Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off.
    public var frequencyPenalty: Double?
    /// Presence penalty: subtracted from a logit if its token is in the history; 0 is off.
    public var presencePenalty: Double?
    /// The length of the history that the three penalties consider, in tokens.
    public var penaltyLastN: Int?
    /// DRY: the multiplier of the penalty for continuing a repetition; 0, the default, is off.
    public var dryMultiplier: Double?
    /// DRY: the factor by which the penalty grows for each further repeated token.
    public var dryBase: Double?
    /// DRY: the length up to which repetitions are not penalized.
    public var dryAllowedLength: Int?
    /// DRY: the length of the history that is considered, in tokens.
    public var dryLastN: Int?
    /// Whether to use Mirostat 2 instead of top-k, top-p, min-p, typical and XTC. Default: `false`.
    public var mirostat: Bool?
    /// Mirostat: the target surprisal, in bits.
    public var mirostatTau: Double?
    /// Mirostat: the learning rate.
    public var mirostatEta: Double?
    /// Whether to report the log-probability of each token. Default: `false`.
    public var logProbabilities: Bool?
    /// How many of the most probable tokens to report with their log-probabilities. Default: 0.
    public var topLogProbabilities: Int?
    /// The random seed: the same seed, options, model and prompt give the same text on every machine.
    public var seed: UInt64?
    /// Logit biases by token id; negative infinity forbids a token.
    public var logitBias: [UInt32: Float]

    /// Creates sampling options.
    public init(
        temperature: Double? = nil,
        topK: Int? = nil,
        topP: Double? = nil,
        minP: Double? = nil,
        typicalP: Double? = nil,
        xtcProbability: Double? = nil,
        xtcThreshold: Double? = nil,
        dynamicTemperatureRange: Double? = nil,
        dynamicTemperatureExponent: Double? = nil,
        repetitionPenalty: Double? = nil,
        frequencyPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        penaltyLastN: Int? = nil,
        dryMultiplier: Double? = nil,
        dryBase: Double? = nil,
        dryAllowedLength: Int? = nil,
        dryLastN: Int? = nil,
        mirostat: Bool? = nil,
        mirostatTau: Double? = nil,
        mirostatEta: Double? = nil,
        logProbabilities: Bool? = nil,
        topLogProbabilities: Int? = nil,
        seed: UInt64? = nil,
        logitBias: [UInt32: Float] = [:]
    ) {
        (self.temperature, self.topK, self.topP, self.minP) = (temperature, topK, topP, minP)
        (self.typicalP, self.xtcProbability, self.xtcThreshold) = (typicalP, xtcProbability, xtcThreshold)
        self.dynamicTemperatureRange = dynamicTemperatureRange
        self.dynamicTemperatureExponent = dynamicTemperatureExponent
        self.repetitionPenalty = repetitionPenalty
        self.frequencyPenalty = frequencyPenalty
        self.presencePenalty = presencePenalty
        self.penaltyLastN = penaltyLastN
        (self.dryMultiplier, self.dryBase) = (dryMultiplier, dryBase)
        (self.dryAllowedLength, self.dryLastN) = (dryAllowedLength, dryLastN)
        (self.mirostat, self.mirostatTau, self.mirostatEta) = (mirostat, mirostatTau, mirostatEta)
        self.logProbabilities = logProbabilities
        self.topLogProbabilities = topLogProbabilities
        (self.seed, self.logitBias) = (seed, logitBias)
    }

    /// Greedy decoding: always the most probable token.
    public static let greedy = Sampler(temperature: 0)

    private var values: [(siskin_sampler_option, Double?)] {
        [
            (SISKIN_SAMPLER_TEMPERATURE, temperature),
            (SISKIN_SAMPLER_TOP_K, topK.map(Double.init)),
            (SISKIN_SAMPLER_TOP_P, topP),
            (SISKIN_SAMPLER_MIN_P, minP),
            (SISKIN_SAMPLER_TYPICAL_P, typicalP),
            (SISKIN_SAMPLER_XTC_PROBABILITY, xtcProbability),
            (SISKIN_SAMPLER_XTC_THRESHOLD, xtcThreshold),
            (SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_RANGE, dynamicTemperatureRange),
            (SISKIN_SAMPLER_DYNAMIC_TEMPERATURE_EXPONENT, dynamicTemperatureExponent),
            (SISKIN_SAMPLER_REPETITION_PENALTY, repetitionPenalty),
            (SISKIN_SAMPLER_FREQUENCY_PENALTY, frequencyPenalty),
            (SISKIN_SAMPLER_PRESENCE_PENALTY, presencePenalty),
            (SISKIN_SAMPLER_PENALTY_LAST_N, penaltyLastN.map(Double.init)),
            (SISKIN_SAMPLER_DRY_MULTIPLIER, dryMultiplier),
            (SISKIN_SAMPLER_DRY_BASE, dryBase),
            (SISKIN_SAMPLER_DRY_ALLOWED_LENGTH, dryAllowedLength.map(Double.init)),
            (SISKIN_SAMPLER_DRY_LAST_N, dryLastN.map(Double.init)),
            (SISKIN_SAMPLER_MIROSTAT, mirostat.map { $0 ? 1 : 0 }),
            (SISKIN_SAMPLER_MIROSTAT_TAU, mirostatTau),
            (SISKIN_SAMPLER_MIROSTAT_ETA, mirostatEta),
            (SISKIN_SAMPLER_LOG_PROBABILITIES, logProbabilities.map { $0 ? 1 : 0 }),
            (SISKIN_SAMPLER_TOP_LOG_PROBABILITIES, topLogProbabilities.map(Double.init)),
        ]
    }

    /// Creates the native form of these options.
    func makeNative() throws(SiskinError) -> NativeHandle {
        let handle = NativeHandle(
            try makeHandle { siskin_sampler_new(&$0) },
            "sampler",
            free: { siskin_sampler_free($0) }
        )
        try handle.use { sampler throws(SiskinError) in
            for case (let option, let value?) in values {
                try check(siskin_sampler_set(sampler, option, value))
            }
            if let seed { try check(siskin_sampler_set_seed(sampler, seed)) }
            for (token, bias) in logitBias { try check(siskin_sampler_add_bias(sampler, token, bias)) }
        }
        return handle
    }
}

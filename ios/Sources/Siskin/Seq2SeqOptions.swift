import CSiskin

/// Tasks of sequence-to-sequence models.
public enum Seq2SeqTask: Sendable, Hashable {
    /// The task of the model's configuration.
    case `default`
    /// Summarization.
    case summarize
    /// Translation. Languages are given by the model's names for them, or by the language code that such a name begins
    /// with; `nil` if the model supports a single language pair.
    case translate(from: String? = nil, to: String? = nil)
}

/// Options of sequence-to-sequence generation. `nil` means the default of the model's configuration for the task.
public struct Seq2SeqOptions: Sendable, Hashable {
    /// The task.
    public var task: Seq2SeqTask
    /// The number of beams of beam search; 1: greedy decoding or sampling.
    public var beams: Int?
    /// The number of texts to return for each input, best first.
    public var nBest: Int?
    /// The maximum number of tokens of a generated text.
    public var maxTokens: Int?
    /// Length penalty: the exponent of a text's length by which its score is divided.
    public var lengthPenalty: Double?
    /// Diverse beam search: the number of groups that the beams are divided into.
    public var beamGroups: Int?
    /// Diverse beam search: the penalty of a group for tokens that other groups chose.
    public var diversityPenalty: Double?
    /// How texts with more tokens than the model accepts are handled. Windows end at sentence boundaries.
    public var onOverflow: OverflowMode?
    /// The text before each input, such as the name of a task.
    public var prefix: String?
    /// The sampling options, for a single beam.
    public var sampler: Sampler?

    /// Creates options.
    public init(
        task: Seq2SeqTask = .default,
        beams: Int? = nil,
        nBest: Int? = nil,
        maxTokens: Int? = nil,
        lengthPenalty: Double? = nil,
        beamGroups: Int? = nil,
        diversityPenalty: Double? = nil,
        onOverflow: OverflowMode? = nil,
        prefix: String? = nil,
        sampler: Sampler? = nil
    ) {
        self.task = task
        self.beams = beams
        self.nBest = nBest
        self.maxTokens = maxTokens
        self.lengthPenalty = lengthPenalty
        self.beamGroups = beamGroups
        self.diversityPenalty = diversityPenalty
        self.onOverflow = onOverflow
        self.prefix = prefix
        self.sampler = sampler
    }

    private var values: [(siskin_seq2seq_option, Double?)] {
        [
            (SISKIN_SEQ2SEQ_BEAMS, beams.map(Double.init)),
            (SISKIN_SEQ2SEQ_N_BEST, nBest.map(Double.init)),
            (SISKIN_SEQ2SEQ_MAX_TOKENS, maxTokens.map(Double.init)),
            (SISKIN_SEQ2SEQ_LENGTH_PENALTY, lengthPenalty),
            (SISKIN_SEQ2SEQ_BEAM_GROUPS, beamGroups.map(Double.init)),
            (SISKIN_SEQ2SEQ_DIVERSITY_PENALTY, diversityPenalty),
        ]
    }

    /// Creates the native form of these options, for a model.
    func makeNative(for model: Model) throws(SiskinError) -> NativeHandle {
        let pointer = try model.handle.use { model throws(SiskinError) in try makeTaskOptions(model) }
        let handle = NativeHandle(pointer, "seq2seq options", free: { siskin_seq2seq_options_free($0) })
        let sampler = try sampler?.makeNative()
        try handle.use { options throws(SiskinError) in
            for case (let option, let value?) in values {
                try check(siskin_seq2seq_options_set(options, option, value))
            }
            if let (mode, overlap) = try onOverflow?.makeNative() {
                try check(siskin_seq2seq_options_set_overflow(options, mode, overlap))
            }
            if let prefix { try check(withUTF8(prefix) { siskin_seq2seq_options_set_prefix(options, $0, $1) }) }
            try sampler?.use { sampler throws(SiskinError) in
                try check(siskin_seq2seq_options_set_sampler(options, sampler))
            }
        }
        return handle
    }

    private func makeTaskOptions(_ model: OpaquePointer) throws(SiskinError) -> OpaquePointer {
        switch task {
        case .default: try makeHandle { siskin_seq2seq_options_new(model, &$0) }
        case .summarize: try makeHandle { siskin_seq2seq_options_new_summary(model, &$0) }
        case .translate(let source, let target):
            try makeHandle { out in
                withUTF8(source ?? "") { source, sourceLength in
                    withUTF8(target ?? "") {
                        siskin_seq2seq_options_new_translation(model, source, sourceLength, $0, $1, &out)
                    }
                }
            }
        }
    }
}

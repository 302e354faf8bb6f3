import CSiskin

/// Generation options of a writer. `nil` means the default of the model's configuration.
public struct Writing: Sendable, Hashable {
    /// The task.
    public var task = Task.usual
    /// The number of beams of beam search; 1: greedy decoding or sampling with one beam.
    public var beams: Int?
    /// The number of texts returned for each input, best first.
    public var best: Int?
    /// The maximum number of tokens of a text.
    public var maxTokens: Int?
    /// Length penalty: the exponent of a text's length by which its score is divided.
    public var lengthPenalty: Double?
    /// Diverse beam search: the number of groups that the beams are divided into.
    public var groups: Int?
    /// Diverse beam search: the penalty of a group for tokens that other groups chose.
    public var diversity: Double?
    /// How texts that are too long for the model are handled. Windows end at sentence boundaries.
    public var long: LongTexts?
    /// The prefix of each text, such as the name of a task.
    public var before: String?
    /// The sampling options for a single beam.
    public var sampler: Sampler?

    /// Tasks of a writer.
    public enum Task: Sendable, Hashable {
        /// The defaults of the model's configuration.
        case usual
        /// Summarization.
        case summary
        /// Translation. Languages are given by the model's names for them, or by the language code that such a name
        /// begins with; empty if the model supports a single language pair.
        case translation(from: String, to: String)
    }

    /// Creates the defaults of the model's configuration for a task.
    public init(_ task: Task = .usual) { self.task = task }

    private var numbers: [(Int32, Double?)] {
        [
            (SISKIN_WRITING_BEAMS, beams.map(Double.init)),
            (SISKIN_WRITING_BEST, best.map(Double.init)),
            (SISKIN_WRITING_MAX_TOKENS, maxTokens.map(Double.init)),
            (SISKIN_WRITING_LENGTH_PENALTY, lengthPenalty),
            (SISKIN_WRITING_GROUPS, groups.map(Double.init)),
            (SISKIN_WRITING_DIVERSITY, diversity),
        ]
    }

    /// Creates the native form, for a model.
    func native(_ model: Model) throws(SiskinError) -> Owner {
        let writing = try model.owner.lend { model throws(SiskinError) in try make(model) }
        let owner = Owner(writing, "writing", free: { siskin_writing_free($0) })
        try owner.lend { writing throws(SiskinError) in
            for case (let option, let value?) in numbers {
                try check(siskin_writing_set(writing, UInt32(option), value))
            }
            if let (kind, overlap) = try long?.native() { try check(siskin_writing_set_long(writing, kind, overlap)) }
            if let before { try check(withText(before) { siskin_writing_set_before(writing, $0, $1) }) }
            guard let sampler = try sampler?.native() else { return }
            try sampler.lend { sampler throws(SiskinError) in try check(siskin_writing_set_sampler(writing, sampler)) }
        }
        return owner
    }

    private func make(_ model: OpaquePointer) throws(SiskinError) -> OpaquePointer {
        switch task {
        case .usual: try made { siskin_writing_new(model, &$0) }
        case .summary: try made { siskin_writing_new_summary(model, &$0) }
        case .translation(let from, let to):
            try made { out in
                withText(from) { from, fromLength in
                    withText(to) { siskin_writing_new_translation(model, from, fromLength, $0, $1, &out) }
                }
            }
        }
    }
}

import CSiskin

/// How a writer writes. What is `nil` is as the model's own configuration asks for.
public struct Writing: Sendable, Hashable {
    /// What is written.
    public var task = Task.usual
    /// How many texts are begun at the same time, of which the likeliest are kept; 1: the likeliest token each time.
    public var beams: Int?
    /// How many texts are given for each, the best first.
    public var best: Int?
    /// The most tokens of a text.
    public var maxTokens: Int?
    /// The power of a text's length that its score is divided by.
    public var lengthPenalty: Double?
    /// Into how many groups beams are divided, each of which looks for something else.
    public var groups: Int?
    /// What groups lose for the same tokens.
    public var diversity: Double?
    /// What is done with texts that are too long for the model. Parts end where sentences do.
    public var long: LongTexts?
    /// What stands before each text, such as the name of a task.
    public var before: String?
    /// How tokens are chosen where there is one beam.
    public var sampler: Sampler?

    /// What a writer can be asked for.
    public enum Task: Sendable, Hashable {
        /// What the model's own configuration asks for.
        case usual
        /// A summary.
        case summary
        /// A translation. Languages are named as the model names them, or by the code with which its own names begin;
        /// empty where the model knows one pair alone.
        case translation(from: String, to: String)
    }

    /// What the model's own configuration asks for, for a task.
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

    /// The library's form of it, for a model.
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

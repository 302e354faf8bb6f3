import CSiskin

/// Options of a transcriber.
public struct TranscriberOptions: Sendable, Hashable {
    /// The spoken language, such as `en`; `nil`: detect it.
    public var language: String?
    /// Whether to translate to English.
    public var translate: Bool
    /// Whether to split the text into segments with timestamps. Audio longer than a window is always split.
    public var timestamps: Bool
    /// A prompt: names and words that are likely to occur in the audio.
    public var prompt: String?
    /// Whether to condition each window on the text of the previous windows.
    public var conditionOnPreviousText: Bool
    /// The number of beams of beam search; 1: greedy decoding.
    public var beams: Int
    /// The no-speech probability above which a window is skipped as silent, unless its mean log-probability is high.
    public var noSpeechThreshold: Double
    /// The maximum number of tokens of a window; `nil`: half of the model's context.
    public var maxTokens: Int?

    /// Creates options.
    public init(
        language: String? = nil,
        translate: Bool = false,
        timestamps: Bool = false,
        prompt: String? = nil,
        conditionOnPreviousText: Bool = false,
        beams: Int = 1,
        noSpeechThreshold: Double = 0.6,
        maxTokens: Int? = nil
    ) {
        self.language = language
        self.translate = translate
        self.timestamps = timestamps
        self.prompt = prompt
        self.conditionOnPreviousText = conditionOnPreviousText
        self.beams = beams
        self.noSpeechThreshold = noSpeechThreshold
        self.maxTokens = maxTokens
    }

    func apply(to transcriber: OpaquePointer) throws(SiskinError) {
        let values: [(siskin_transcribe_option, Double)] = [
            (SISKIN_TRANSCRIBE_TRANSLATE, translate ? 1 : 0),
            (SISKIN_TRANSCRIBE_TIMESTAMPS, timestamps ? 1 : 0),
            (SISKIN_TRANSCRIBE_BEAMS, Double(beams)),
            (SISKIN_TRANSCRIBE_CONDITION_ON_PREVIOUS_TEXT, conditionOnPreviousText ? 1 : 0),
            (SISKIN_TRANSCRIBE_NO_SPEECH_THRESHOLD, noSpeechThreshold),
            // The library limits it to half of the context.
            (SISKIN_TRANSCRIBE_MAX_TOKENS, maxTokens.map(Double.init) ?? Double(UInt32.max)),
        ]
        for (option, value) in values { try check(siskin_transcriber_set(transcriber, option, value)) }
        try check(withUTF8(language ?? "") { siskin_transcriber_set_language(transcriber, $0, $1) })
        try check(withUTF8(prompt ?? "") { siskin_transcriber_set_prompt(transcriber, $0, $1) })
    }
}

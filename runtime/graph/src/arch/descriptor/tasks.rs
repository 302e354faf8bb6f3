//! What a family's models do besides what their topology says.

/// The tasks of a family.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// Whether the encoder reads speech, which the decoder transcribes.
    pub transcription: bool,
    /// The prefix of texts to summarize, unless the configuration has one; empty: none.
    pub summarization_prefix: &'static str,
    /// How a translation is requested, by `model_type`.
    pub translation: fn(&str) -> TranslationPrompt,
}

/// How languages are passed to a translation model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationPrompt {
    /// By a task name or a language token before the text.
    TaskName,
    /// By tokens of the source and target languages.
    SourceAndTarget,
    /// By a token of the target language before the text, if there are such tokens.
    Target,
}

impl Tasks {
    /// None but those of the topology.
    pub const NONE: Self =
        Self { transcription: false, summarization_prefix: "", translation: |_| TranslationPrompt::Target };

    /// Tasks that a prefix of the text names, as in T5.
    pub const NAMED: Self = Self {
        summarization_prefix: "summarize: ",
        translation: |_| TranslationPrompt::TaskName,
        ..Self::NONE
    };
}

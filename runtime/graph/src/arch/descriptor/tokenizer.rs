//! Attributes of tokens that GGUF files omit.

/// Attributes of tokens that a family's tokenizers have and its GGUF files do not store.
#[derive(Clone, Copy, Debug)]
pub struct TokenizerDefaults {
    /// Parts of the `general.name` of the files, in lower case.
    pub names: &'static [&'static str],
    /// Tokens that take the spaces before them.
    pub strip_left: &'static [&'static str],
    /// Tokens that take the spaces after them, in addition to `special_strip_right`.
    pub strip_right: &'static [&'static str],
    /// Whether special tokens take the spaces after them.
    pub special_strip_right: bool,
    /// Tokens that do not take the spaces after them.
    pub keep_right: &'static [&'static str],
}

impl TokenizerDefaults {
    /// The files store all attributes.
    pub const NONE: Self =
        Self { names: &[], strip_left: &[], strip_right: &[], special_strip_right: false, keep_right: &[] };
}

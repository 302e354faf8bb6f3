//! How models mark what they think before they respond.

/// The texts around reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// The beginning.
    pub begin: &'static str,
    /// The end.
    pub end: &'static str,
}

const fn tags(begin: &'static str, end: &'static str) -> ReasoningTags {
    ReasoningTags { begin, end }
}

/// All known tags.
static TAGS: [ReasoningTags; 6] = [
    tags("<think>", "</think>"),
    tags("[THINK]", "[/THINK]"),
    tags("<|START_THINKING|>", "<|END_THINKING|>"),
    tags("<|channel>thought\n", "<channel|>"),
    tags("<seed:think>", "</seed:think>"),
    tags("<thought>", "</thought>"),
];

impl ReasoningTags {
    /// Returns the tags before reasoning that a template rendered: those with which `before` ends.
    pub fn before(before: &str) -> Option<Self> {
        TAGS.into_iter().find(|tags| before.trim_end().ends_with(tags.begin.trim_end()))
    }

    /// Returns the tags in the source of a template.
    pub fn in_source(source: &str) -> Option<Self> {
        TAGS.into_iter().find(|tags| source.contains(tags.end) && source.contains(tags.begin.trim_end()))
    }

    /// Returns whether a response to `prompt` begins inside reasoning.
    pub fn is_open(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.begin.trim_end())
    }
}

//! Strings of a template with taint tracking: which of their bytes came from outside the template.
//!
//! Every string operation records, for each byte of its result, whether the template itself wrote it. Control tokens
//! are only recognized in bytes that the template wrote, so that a message cannot spell one, however the template
//! joins, cuts or changes it. Numbers and other values that are converted to text count as untrusted.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// The size that a span is counted as in a template's memory, in bytes.
pub(super) const SPAN_BYTES: usize = size_of::<UntrustedSpan>();

/// An untrusted span: a range of a text that came from outside the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedSpan {
    /// The byte range in the text.
    pub range: Range<usize>,
    /// Its position in a message, if it is unchanged.
    pub source: Option<MessagePosition>,
}

/// A position in the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePosition {
    /// The index of the message.
    pub message: usize,
    /// The first byte in the message's content.
    pub offset: usize,
}

impl MessagePosition {
    fn advanced(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// An immutable string with its untrusted spans, in ascending order and without overlaps.
#[derive(Clone, Debug)]
pub(super) struct SpannedText {
    text: Arc<str>,
    spans: Option<Arc<[UntrustedSpan]>>,
}

impl SpannedText {
    /// Creates text that the template itself wrote.
    pub(super) fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), spans: None }
    }

    /// Creates text that came from outside.
    pub(super) fn untrusted(text: impl Into<Arc<str>>) -> Self {
        Self::from_outside(text.into(), None)
    }

    /// Creates the content of the message with index `message`.
    pub(super) fn content(text: impl Into<Arc<str>>, message: usize) -> Self {
        Self::from_outside(text.into(), Some(MessagePosition { message, offset: 0 }))
    }

    fn from_outside(text: Arc<str>, source: Option<MessagePosition>) -> Self {
        let spans = (!text.is_empty()).then(|| [UntrustedSpan { range: 0..text.len(), source }].into());
        Self { text, spans }
    }

    pub(super) fn spans(&self) -> &[UntrustedSpan] {
        self.spans.as_deref().unwrap_or_default()
    }

    /// Returns the string without its spans. Code that creates a [`SpannedText`] from it again must decide whether it is
    /// trusted.
    pub(super) fn as_arc(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.text.len() + self.spans().len() * SPAN_BYTES
    }

    /// Returns the spans that overlap `range`.
    fn overlapping(&self, range: &Range<usize>) -> &[UntrustedSpan] {
        let spans = self.spans();
        let first = spans.partition_point(|span| span.range.end <= range.start);
        let count = spans[first..].partition_point(|span| span.range.start < range.end);
        &spans[first..first + count]
    }

    /// Returns whether any byte of `range` is untrusted.
    fn is_untrusted(&self, range: &Range<usize>) -> bool {
        !range.is_empty() && !self.overlapping(range).is_empty()
    }

    /// Returns a slice of the text.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        if range == (0..self.text.len()) {
            return self.clone();
        }
        let mut builder = TextBuilder::default();
        builder.push_slice(self, range);
        builder.finish()
    }

    /// Returns a slice of the text with its spans; `part` must be a subslice of the string, as returned by searching
    /// and trimming.
    pub(super) fn part(&self, part: &str) -> Self {
        self.range_of(part).map_or_else(|| Self::untrusted(part), |range| self.slice(range))
    }

    /// Returns where `part` is in the string, or `None` if it is not a subslice of it.
    fn range_of(&self, part: &str) -> Option<Range<usize>> {
        let start = (part.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        start.checked_add(part.len()).filter(|&end| end <= self.text.len()).map(|end| start..end)
    }

    /// Returns whether any byte is untrusted.
    pub(super) fn has_untrusted(&self) -> bool {
        self.spans.is_some()
    }

    /// Returns `result`, which was derived from the text: untrusted as a whole if any byte of the text is.
    pub(super) fn changed(&self, result: impl Into<Arc<str>>) -> Self {
        if self.has_untrusted() { Self::untrusted(result) } else { Self::trusted(result) }
    }

    /// Returns the text with each character replaced by what `change` appends for it.
    pub(super) fn map_characters(&self, mut change: impl FnMut(char, &mut String)) -> Self {
        let mut builder = TextBuilder::default();
        let mut changed = String::new();
        for (at, character) in self.text.char_indices() {
            changed.clear();
            change(character, &mut changed);
            builder.push_changed(&changed, self, at..at + character.len_utf8());
        }
        builder.finish()
    }
}

impl Deref for SpannedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for SpannedText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Builds a [`SpannedText`] from parts of known origin.
#[derive(Debug, Default)]
pub(super) struct TextBuilder {
    text: String,
    spans: Vec<UntrustedSpan>,
}

impl TextBuilder {
    /// Appends trusted text.
    pub(super) fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends a trusted character.
    pub(super) fn push(&mut self, character: char) {
        self.text.push(character);
    }

    /// Appends a computed value, such as a number. It is untrusted, as it may depend on a message.
    pub(super) fn push_computed(&mut self, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.mark(start..self.text.len(), None);
    }

    /// Appends a text with its spans.
    pub(super) fn push_text(&mut self, text: &SpannedText) {
        self.push_slice(text, 0..text.len());
    }

    /// Appends a part of a text with its spans, as [`SpannedText::part`] returns it.
    pub(super) fn push_part(&mut self, text: &SpannedText, part: &str) {
        match text.range_of(part) {
            Some(range) => self.push_slice(text, range),
            None => self.push_computed(part),
        }
    }

    /// Appends a text `count` times.
    pub(super) fn push_repeated(&mut self, text: &SpannedText, count: usize) {
        if !text.is_empty() {
            (0..count).for_each(|_| self.push_text(text));
        }
    }

    /// Appends a slice of a text with its spans.
    pub(super) fn push_slice(&mut self, text: &SpannedText, part: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(&text[part.clone()]);
        for span in text.overlapping(&part) {
            let (first, last) = (span.range.start.max(part.start), span.range.end.min(part.end));
            let source = span.source.map(|source| source.advanced(first - span.range.start));
            self.mark(start + first - part.start..start + last - part.start, source);
        }
    }

    /// Appends `changed`, which was derived from `from[range]`: untrusted as a whole if any byte of that is.
    pub(super) fn push_changed(&mut self, changed: &str, from: &SpannedText, range: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(changed);
        if from.is_untrusted(&range) {
            self.mark(start..self.text.len(), None);
        }
    }

    fn mark(&mut self, range: Range<usize>, source: Option<MessagePosition>) {
        if range.is_empty() {
            return;
        }
        if let Some(last) = self.spans.last_mut()
            && last.range.end == range.start
            && last.source.map(|source| source.advanced(last.range.len())) == source
        {
            last.range.end = range.end;
            return;
        }
        self.spans.push(UntrustedSpan { range, source });
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn finish(self) -> SpannedText {
        let spans = (!self.spans.is_empty()).then(|| self.spans.into());
        SpannedText { text: self.text.into(), spans }
    }

    /// Returns the string and its untrusted spans.
    pub(super) fn into_parts(self) -> (String, Vec<UntrustedSpan>) {
        (self.text, self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &SpannedText) -> Vec<(Range<usize>, Option<usize>)> {
        let span = |span: &UntrustedSpan| (span.range.clone(), span.source.map(|source| source.offset));
        text.spans().iter().map(span).collect()
    }

    #[test]
    fn spans_follow_the_bytes() {
        let content = SpannedText::content("héllo", 3);
        let mut builder = TextBuilder::default();
        builder.push_str("<|");
        builder.push_slice(&content, 0..3);
        builder.push_slice(&content, 3..6);
        builder.push('>');
        builder.push_changed("XY", &content, 0..1);
        builder.push_changed("Z", &SpannedText::trusted("z"), 0..1);
        let text = builder.finish();
        assert_eq!(&*text, "<|héllo>XYZ");
        assert_eq!(spans(&text), [(2..8, Some(0)), (9..11, None)]);
        assert_eq!(spans(&text.slice(3..10)), [(0..5, Some(1)), (6..7, None)]);
        assert_eq!(spans(&text.slice(0..2)), []);
        assert_eq!(spans(&text.part(text.trim_start_matches("<|h"))), [(0..5, Some(1)), (6..8, None)]);
        let upper = text.map_characters(|character, out| out.extend(character.to_uppercase()));
        assert_eq!((&*upper, spans(&upper)), ("<|HÉLLO>XYZ", vec![(2..8, None), (9..11, None)]));
        assert_eq!(spans(&SpannedText::untrusted("")), []);
    }
}

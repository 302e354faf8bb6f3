//! Causal language modeling: predicting the next token.

use std::ops::Range;
use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;

use super::{
    SpecialTokens, TaskBatch, TaskEntry, TrainingTask, check_parts, in_vocabulary, missing, push_with_outputs,
};
use crate::data::records::Records;
use crate::data::windows::Windows;
use crate::random::Random;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "causal_lm",
    fields: &[("text", false)],
    label: None,
    head: OutputHead::Next,
    sides: [false, true],
    make: |settings, tokenizer, records| {
        let mut frame = SpecialTokens::of(tokenizer)?;
        if frame.after.is_empty() {
            frame.after.extend(tokenizer.eos());
        }
        if settings.packing && frame.is_empty() {
            return Err(missing("end-of-text", "packing needs one between documents"));
        }
        let packing = if settings.packing { Packing::Packed } else { Packing::PerDocument };
        Ok(Arc::new(CausalLm::new(records, frame, settings.max_length, packing)?))
    },
};

/// How documents become sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Each document is a sequence, or several if it is too long. No token attends to another document.
    #[default]
    PerDocument,
    /// All framed documents are one stream that is cut into sequences. Tokens attend to documents before their own.
    Packed,
}

/// Sequences of the decoder; every row is an output row, and its target is the token that follows.
///
/// The last token of a document is followed by the suffix of its frame. If that is empty, its row has weight 0. The
/// last token of a frame is only a target, except between documents of a stream. Every token is in one sequence, and
/// every one but the first of a document (of the stream) is a target once.
pub struct CausalLm {
    records: Arc<dyn Records>,
    frame: SpecialTokens,
    windows: Windows,
    stream: Option<Stream>,
}

/// All documents as one stream.
struct Stream {
    /// The cumulative number of tokens up to and including each record.
    ends: Vec<u64>,
    size: usize,
}

impl Stream {
    fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the tokens of an example; the last token of the stream is only a target.
    fn part(&self, example: usize) -> Range<u64> {
        let start = (example as u64).saturating_mul(self.size as u64);
        start..start.saturating_add(self.size as u64).min(self.total().saturating_sub(1))
    }
}

impl CausalLm {
    /// Creates the task with sequences of at most `length` rows.
    pub fn new(
        records: Arc<dyn Records>,
        frame: SpecialTokens,
        length: usize,
        packing: Packing,
    ) -> Result<Self> {
        check_parts(&*records, 1..=1, "one")?;
        if length == 0 {
            return Err(Error::argument("max_length", "must be at least 1"));
        }
        for &id in frame.before.iter().chain(&frame.after) {
            in_vocabulary("frame", id, records.vocabulary())?;
        }
        let size = |record: usize| match records.length(record, 0) {
            0 => 0,
            length => length + frame.len(),
        };
        let stream = (packing == Packing::Packed).then(|| {
            let mut end = 0;
            let mut up_to = |record: usize| {
                end += size(record) as u64;
                end
            };
            Stream { ends: (0..records.count()).map(&mut up_to).collect(), size: length }
        });
        let ending = usize::from(!frame.after.is_empty());
        let windows = Windows::new(&*records, length, |record| match packing {
            Packing::PerDocument => size(record).saturating_sub(ending),
            Packing::Packed => 0,
        });
        Ok(Self { records, frame, windows, stream })
    }

    /// Returns the length of a document with its frame.
    fn framed(&self, record: usize) -> usize {
        self.records.length(record, 0) + self.frame.len()
    }

    /// Reads a range of a framed document.
    fn read(&self, record: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        let (before, length) = (self.frame.before.len(), self.records.length(record, 0));
        let inside = |at: usize, from: usize, most: usize| at.saturating_sub(from).min(most);
        let cut = |from: usize, most: usize| inside(range.start, from, most)..inside(range.end, from, most);
        out.extend(&self.frame.before[cut(0, before)]);
        let own = cut(before, length);
        if !own.is_empty() {
            self.records.read(record, 0, own, out)?;
        }
        out.extend(&self.frame.after[cut(before + length, self.frame.after.len())]);
        Ok(())
    }

    /// Returns the rows of an example, and the target of the last, if there is one.
    fn tokens(&self, example: usize) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        let Some(stream) = &self.stream else {
            let (record, start) = self.windows.place(example);
            let end = self.framed(record).min(start.saturating_add(self.windows.size()).saturating_add(1));
            self.read(record, start..end, &mut tokens)?;
            return Ok(tokens);
        };
        let part = stream.part(example);
        let (mut at, end) = (part.start, part.end + 1);
        let mut record = stream.ends.partition_point(|&end| end <= at);
        while at < end && record < stream.ends.len() {
            let first = record.checked_sub(1).map_or(0, |before| stream.ends[before]);
            let upto = end.min(stream.ends[record]);
            if at < upto {
                self.read(record, (at - first) as usize..(upto - first) as usize, &mut tokens)?;
            }
            at = upto;
            record += 1;
        }
        Ok(tokens)
    }
}

impl TrainingTask for CausalLm {
    fn count(&self) -> usize {
        match &self.stream {
            Some(stream) => stream.total().saturating_sub(1).div_ceil(stream.size as u64) as usize,
            None => self.windows.count(),
        }
    }

    fn rows(&self, example: usize) -> usize {
        if let Some(stream) = &self.stream {
            let part = stream.part(example);
            return (part.end - part.start) as usize;
        }
        let (record, start) = self.windows.place(example);
        let ending = usize::from(!self.frame.after.is_empty());
        (self.framed(record) - ending - start).min(self.windows.size())
    }

    fn add(&self, example: usize, _: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let tokens = self.tokens(example)?;
        let rows = self.rows(example);
        push_with_outputs(&mut made.batch.decoder, &tokens[..rows]);
        for row in 0..rows {
            match tokens.get(row + 1) {
                Some(&next) => made.target(next, 1.0),
                None => made.target(tokens[row], 0.0),
            }
        }
        Ok(())
    }
}

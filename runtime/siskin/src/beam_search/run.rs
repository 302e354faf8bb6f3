//! Running the hypotheses through the model.

use super::{Beams, FinishedHypothesis};
use crate::Result;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_graph::AdapterSlot;

/// Runs the tokens of sequences through the model, as many per batch as the context takes, and calls `each` with the
/// index of every sequence whose last token was processed, and its logits.
pub(crate) fn feed(
    context: &mut Context,
    pieces: &[(usize, &[u32])],
    adapter: AdapterSlot,
    each: &mut dyn FnMut(usize, &[f32]),
) -> Result<()> {
    for &(sequence, tokens) in pieces {
        let length = context.length(sequence)?.saturating_add(tokens.len());
        context.set_expected_length(sequence, length)?;
    }
    let (rows, max_outputs) = context.decoder_limits();
    let mut rest: Vec<(usize, usize, &[u32])> =
        pieces.iter().enumerate().map(|(index, &(sequence, tokens))| (index, sequence, tokens)).collect();
    rest.retain(|(_, _, tokens)| !tokens.is_empty());
    let mut rest = rest.as_mut_slice();
    while !rest.is_empty() {
        let (mut room, mut count) = (rows, 0);
        let mut batch = Vec::new();
        for (_, sequence, tokens) in rest.iter().take(max_outputs) {
            let taken = tokens.len().min(room);
            if taken == 0 {
                break;
            }
            let is_whole = taken == tokens.len();
            let outputs = if is_whole { OutputRows::Last } else { OutputRows::None };
            batch.push(BatchEntry { adapter, ..BatchEntry::new(*sequence, &tokens[..taken], outputs) });
            room -= taken;
            count += usize::from(is_whole);
        }
        context.forward(&batch)?;
        rest.iter()
            .take(count)
            .enumerate()
            .for_each(|(row, (index, _, _))| each(*index, context.output(row)));
        let cut = batch.last().filter(|_| batch.len() > count).map_or(0, |piece| piece.tokens.len());
        rest = &mut rest[count..];
        if let Some((_, _, tokens)) = rest.first_mut() {
            *tokens = &tokens[cut..];
        }
    }
    Ok(())
}

/// The beam search of one prompt, with its sequences of the context.
pub(crate) struct BeamSearch {
    beams: Beams,
    sequences: Vec<usize>,
}

impl BeamSearch {
    /// Starts `beams` in `sequence`, whose last token gave these logits. Call [`settle`](Self::settle) before the next
    /// step.
    pub(crate) fn begin(mut beams: Beams, sequence: usize, logits: &[f32], scratch: &mut Vec<f32>) -> Self {
        beams.step(|_| logits, scratch);
        Self { beams, sequences: vec![sequence] }
    }

    /// Returns whether no hypothesis is running.
    pub(crate) fn is_over(&self) -> bool {
        self.width() == 0
    }

    /// Returns the number of running sequences.
    pub(crate) fn width(&self) -> usize {
        self.beams.begun().count()
    }

    /// Returns the last tokens, which must go through the model.
    pub(crate) fn pieces(&self, adapter: AdapterSlot) -> impl Iterator<Item = BatchEntry<'_>> {
        self.beams.begun().map(move |begun| {
            let tokens = &begun.text[begun.text.len() - 1..];
            BatchEntry { adapter, ..BatchEntry::new(begun.sequence, tokens, OutputRows::Last) }
        })
    }

    /// Advances the search by the logits of the last tokens, which are in the context's outputs from row `first` on.
    /// Call [`settle`](Self::settle) afterwards.
    pub(crate) fn step(&mut self, context: &Context, first: usize, scratch: &mut Vec<f32>) {
        self.beams.step(|row| context.output(first + row), scratch);
    }

    /// Gives each running hypothesis its own sequence: the first one that extends a sequence keeps it, others fork it.
    /// Sequences without a continuation are removed first, to free their memory.
    pub(crate) fn settle(&mut self, context: &mut Context) -> Result<()> {
        let beams = &mut self.beams;
        self.sequences.retain(|&sequence| {
            let goes_on = beams.begun().any(|begun| begun.sequence == sequence);
            if !goes_on {
                context.remove(sequence);
            }
            goes_on
        });
        let mut used = Vec::new();
        for begun in beams.begun_mut() {
            if used.contains(&begun.sequence) {
                begun.sequence = context.fork(begun.sequence)?;
                self.sequences.push(begun.sequence);
            }
            used.push(begun.sequence);
        }
        Ok(())
    }

    /// Releases the sequences and returns the finished hypotheses.
    pub(crate) fn finish(self, context: &mut Context) -> Vec<FinishedHypothesis> {
        self.sequences.iter().for_each(|&sequence| context.remove(sequence));
        self.beams.finish()
    }
}

//! Early exit (DeeBERT): the encoder is split at its exits, each with a head whose scores may be
//! confident enough.

use super::{Context, SequenceInput};
use crate::{Batch, ForwardPass, ModelPart};
use siskin_format::{Error, Result};
use siskin_graph::{Exit, Graph, ValueId, pass::cut};

/// The layers up to an exit, and the head on top of them, as numbers of passes.
#[derive(Clone, Copy)]
pub(super) struct ExitSegment {
    /// The number of layers up to this exit, skipped layers included.
    layers: usize,
    /// Computes the hidden states of this exit from those of the exit before; `None` if no layer is in between.
    body: Option<usize>,
    /// Computes the scores from the hidden states of the body, or from those of the exit before if there is no body.
    head: usize,
}

/// The intermediate result of a sequence at an exit.
pub struct ExitResult<'a> {
    /// Index of the sequence.
    pub text: usize,
    /// The number of layers it has passed, skipped layers included.
    pub layers: usize,
    /// Its class scores.
    pub scores: &'a [f32],
    /// Whether this is the last exit.
    pub last: bool,
}

impl ExitSegment {
    /// Splits an encoder's graph of `layers` layers at its exits, for batches of up to `rows` rows of up to `texts`
    /// sequences; `add` numbers a pass.
    pub(super) fn all(
        graph: &Graph,
        layers: usize,
        (rows, texts): (usize, usize),
        add: &mut dyn FnMut(ForwardPass) -> usize,
    ) -> Result<Vec<Self>> {
        if graph.exits.is_empty()
            || graph.has_global_attention()
            || graph.has_convolution()
            || graph.frames_per_row() > 0
        {
            return Err(Error::unsupported("exit", "the model has no heads on layers before the last"));
        }
        let mut pass = |graph: Graph, outputs: usize| {
            add(ForwardPass {
                graph,
                part: ModelPart::Encoder,
                max_rows: rows,
                max_output_rows: outputs,
                positions: rows,
            })
        };
        let mut from: Option<ValueId> = None;
        let mut parts = Vec::new();
        for &Exit { layers, hidden, output } in &graph.exits {
            let body = pass(cut::part(graph, from, hidden), rows);
            let head = pass(cut::part(graph, Some(hidden), output), texts);
            parts.push(Self { layers, body: Some(body), head });
            from = Some(hidden);
        }
        if graph.exits.last().is_some_and(|exit| exit.output != graph.output) {
            let head = pass(cut::part(graph, from, graph.output), texts);
            parts.push(Self { layers, body: None, head });
        }
        Ok(parts)
    }
}

/// Encodes whole sequences in one batch, and passes the scores of each remaining sequence to `look` at every exit; if
/// that returns `false`, the sequence exits.
pub fn encode_with_early_exit(
    context: &mut Context,
    texts: &[SequenceInput<'_>],
    look: &mut dyn FnMut(ExitResult<'_>) -> bool,
) -> Result<()> {
    let outcome = context.builder().list(texts)?.and_then(|()| run(context, texts.len(), look));
    context.builder().forget(texts);
    context.settle(outcome)
}

/// Runs the listed sequences of a context through the parts of its encoder, and passes the scores of each remaining
/// sequence to `look` at every exit; if that returns `false`, the sequence exits.
fn run(context: &mut Context, texts: usize, look: &mut dyn FnMut(ExitResult<'_>) -> bool) -> Result<()> {
    // The remaining sequences, in the order of their rows.
    let mut on: Vec<usize> = (0..texts).collect();
    for number in 0..context.passes.segments.len() {
        let ExitSegment { layers, body, head } = context.passes.segments[number];
        if on.is_empty() {
            break;
        }
        let firsts = std::mem::take(&mut context.batch.output_rows);
        if let Some(body) = body {
            context.batch.output_rows = (0..context.batch.rows.len()).collect();
            context.run(body)?;
            let rows = (0..context.batch.rows.len()).flat_map(|row| context.output(row)).copied();
            let external_input = rows.collect();
            context.batch.external_input = external_input;
        }
        context.batch.output_rows = firsts;
        context.run(head)?;
        let last = number + 1 == context.passes.segments.len();
        let goes_on: Vec<bool> = on
            .iter()
            .enumerate()
            .map(|(row, &text)| look(ExitResult { text, layers, scores: context.output(row), last }))
            .collect();
        context.batch.keep(&goes_on);
        let mut going = goes_on.iter();
        on.retain(|_| *going.next().unwrap_or(&false));
    }
    Ok(())
}

impl Batch {
    /// Removes the rows of sequences that exit. `goes_on` says for each sequence whether it stays.
    fn keep(&mut self, goes_on: &[bool]) {
        let columns = self.external_input.len() / self.rows.len().max(1);
        let ends = self.output_rows.iter().skip(1).copied().chain([self.rows.len()]);
        let spans: Vec<(usize, usize)> = self.output_rows.iter().copied().zip(ends).collect();
        self.output_rows.clear();
        let mut kept = 0;
        for (&(start, end), _) in spans.iter().zip(goes_on).filter(|(_, goes_on)| **goes_on) {
            self.output_rows.push(kept);
            self.rows.copy_within(start..end, kept);
            self.external_input.copy_within(start * columns..end * columns, kept * columns);
            kept += end - start;
        }
        self.rows.truncate(kept);
        let mut going = goes_on.iter();
        self.sequences.retain(|_| *going.next().unwrap_or(&false));
        self.row_frames.truncate(kept);
        self.external_input.truncate(kept * columns);
    }
}

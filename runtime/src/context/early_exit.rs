//! Texts that leave early: the encoder in parts, each with a head that may say enough.

use super::texts::SequenceInput;
use super::{Context, Side, Stage};
use crate::cache::CacheOptions;
use crate::graph::{Exit, Graph, ValueId, pass::cut};
use crate::plan::Weights;
use crate::{Error, Result};

/// Layers up to an exit, and what is on top of them.
pub(super) struct Part {
    /// How many layers there are up to here, of which some may be left out.
    layers: usize,
    /// From what the part before gave to what goes to the next, where there is one.
    body: Option<Stage>,
    /// Scores of what the body gave, or where there is none, of what the part before gave.
    head: Stage,
}

/// What a text that was read came to.
pub(crate) struct Look<'a> {
    /// Which of the texts.
    pub text: usize,
    /// How many layers it went through, those that are left out included.
    pub layers: usize,
    /// The scores of its classes.
    pub scores: &'a [f32],
    /// Whether it goes no further anyway.
    pub last: bool,
}

impl Part {
    /// The parts of an encoder's graph, and the words that they need.
    pub(super) fn all(
        graph: &Graph,
        weights: &Weights,
        options: &CacheOptions,
        threads: usize,
        (layers, texts): (usize, usize),
    ) -> Result<(Vec<Self>, usize)> {
        if graph.exits.is_empty() || graph.marks() || graph.looks_beside() || graph.frames_per_row() > 0 {
            return Err(Error::unsupported("exit", "the model has no heads on layers before the last"));
        }
        let rows = options.text;
        let mut words = 0;
        let mut stage = |graph: Graph, wanted: usize| {
            let (stage, own) = Stage::new(graph, weights, options, threads, (rows, wanted, rows))?;
            words = words.max(own);
            Ok::<_, Error>(stage)
        };
        let mut from: Option<ValueId> = None;
        let mut parts = Vec::new();
        for &Exit { layers, hidden, output } in &graph.exits {
            let body = stage(cut::part(graph, from, hidden), rows)?;
            let head = stage(cut::part(graph, Some(hidden), output), texts)?;
            parts.push(Self { layers, body: Some(body), head });
            from = Some(hidden);
        }
        if graph.exits.last().is_some_and(|exit| exit.output != graph.output) {
            let head = stage(cut::part(graph, from, graph.output), texts)?;
            parts.push(Self { layers, body: None, head });
        }
        Ok((parts, words))
    }

    pub(super) fn body(&self) -> Option<&Stage> {
        self.body.as_ref()
    }

    pub(super) fn head(&self) -> &Stage {
        &self.head
    }
}

impl Context {
    /// Reads whole texts in one batch, and shows the scores of each text that goes on to `look` after every part of the
    /// encoder; where that says `false`, the text leaves.
    pub(crate) fn read_in_parts(
        &mut self,
        texts: &[SequenceInput<'_>],
        look: &mut dyn FnMut(Look<'_>) -> bool,
    ) -> Result<()> {
        let listed = self.check_texts(texts)?;
        self.batch.clear();
        let outcome = self.list(texts, &listed).and_then(|()| self.run_parts(texts, look));
        for text in texts {
            // Never fails: a text of no tokens needs no room.
            let _ = self.cache.read(text.sequence, 0, 0, false);
        }
        self.batch.clear();
        self.settle(outcome)
    }

    fn run_parts(
        &mut self,
        texts: &[SequenceInput<'_>],
        look: &mut dyn FnMut(Look<'_>) -> bool,
    ) -> Result<()> {
        // The texts that go on, in the order of their rows.
        let mut on: Vec<usize> = (0..texts.len()).collect();
        for number in 0..self.parts.len() {
            if on.is_empty() {
                break;
            }
            let firsts = std::mem::take(&mut self.batch.wanted);
            if self.parts[number].body.is_some() {
                self.batch.wanted = (0..self.batch.rows.len()).collect();
                self.run(Side::Body(number))?;
                let rows = (0..self.batch.rows.len()).flat_map(|row| self.output(row)).copied();
                let carried = rows.collect();
                self.batch.carried = carried;
            }
            self.batch.wanted = firsts;
            self.run(Side::Head(number))?;
            let (layers, last) = (self.parts[number].layers, number + 1 == self.parts.len());
            let goes_on: Vec<bool> = on
                .iter()
                .enumerate()
                .map(|(row, &text)| look(Look { text, layers, scores: self.output(row), last }))
                .collect();
            self.keep(&goes_on);
            let mut going = goes_on.iter();
            on.retain(|_| *going.next().unwrap_or(&false));
        }
        Ok(())
    }

    /// Takes the rows of texts that leave out of the batch. `goes_on` says of each text in it whether it stays.
    fn keep(&mut self, goes_on: &[bool]) {
        let batch = &mut self.batch;
        let columns = batch.carried.len() / batch.rows.len().max(1);
        let ends = batch.wanted.iter().skip(1).copied().chain([batch.rows.len()]);
        let spans: Vec<(usize, usize)> = batch.wanted.iter().copied().zip(ends).collect();
        batch.wanted.clear();
        let mut kept = 0;
        for (&(start, end), _) in spans.iter().zip(goes_on).filter(|(_, goes_on)| **goes_on) {
            batch.wanted.push(kept);
            batch.rows.copy_within(start..end, kept);
            batch.carried.copy_within(start * columns..end * columns, kept * columns);
            kept += end - start;
        }
        batch.rows.truncate(kept);
        let mut going = goes_on.iter();
        batch.sequences.retain(|_| *going.next().unwrap_or(&false));
        batch.row_frames.truncate(kept);
        batch.carried.truncate(kept * columns);
    }
}

//! Batch parallelism: a worker runs some of a batch's sequences through all steps by itself, in an arena of its own.
//! It needs no synchronization with other workers, and its activations stay in its own cache.

use std::ops::Range;

use super::super::Batch;
use super::matmul::PRODUCT_ROWS;
use super::prefetch::PrefetchingWorker;
use super::{CpuPass, Workspace};
use crate::plan::{BufferView, Plan, PlanStep};
use crate::thread_pool::Worker;
use siskin_format::Result;
use siskin_graph::{AttentionMask, RowKind};

/// With fewer rows per share, reading all weights again costs more than synchronization.
const MIN_ROWS: usize = 64;
/// The minimum number of shares per worker, so that a preempted worker does not delay the others.
const MIN_PARTS: usize = 2;

/// State for batch parallelism.
pub(crate) struct BatchParallel {
    /// The plan for the rows of one share.
    plan: Plan,
    workspace: Workspace,
    /// The words of each worker's arena.
    words: usize,
    /// The outputs of the whole batch, after the workers' arenas.
    output: BufferView,
}

impl BatchParallel {
    /// Creates the state for a thread pool that otherwise runs `whole` together; `None` if steps mix sequences, or if
    /// the shares would have too few rows. `plan` builds the same plan for one thread and this many rows.
    pub(crate) fn new(
        whole: &Plan,
        threads: usize,
        plan: impl FnOnce(usize) -> Result<(Plan, Workspace, usize)>,
    ) -> Result<Option<Self>> {
        // 1.5 times the share for sequences of equal length.
        let rows = 3 * whole.max_rows.tokens / (2 * MIN_PARTS * threads.max(1));
        if threads < 2 || rows < MIN_ROWS || !whole.steps.iter().all(is_of_texts) {
            return Ok(None);
        }
        let (plan, workspace, words) = plan(rows)?;
        let stride = plan.output.columns.next_multiple_of(16);
        // If outputs dominate the memory, a second copy of them is too expensive.
        if stride * (whole.max_rows.outputs + threads * plan.max_rows.outputs) > whole.words / 2 {
            return Ok(None);
        }
        let words = words.next_multiple_of(16);
        let output = BufferView { offset: words * threads, stride, columns: plan.output.columns };
        Ok(Some(Self { plan, workspace, words, output }))
    }

    /// Returns the words of an arena for all workers and for up to `output_rows` outputs.
    pub(crate) fn all_words(&self, output_rows: usize) -> usize {
        self.output.offset + output_rows * self.output.stride
    }

    /// Returns where the outputs of a batch run with batch parallelism are.
    pub(super) fn output(&self) -> BufferView {
        self.output
    }

    /// Returns the shares of a batch for `worker_count` workers, if it is large enough and can be divided evenly.
    fn cut(&self, batch: &Batch, worker_count: usize) -> Option<Vec<BatchShare>> {
        let rows = batch.rows.len();
        let is_plain =
            batch.global_rows.is_empty() && batch.global_token_mask.is_empty() && batch.features.is_empty();
        if worker_count < 2
            || rows < worker_count * MIN_PARTS * MIN_ROWS
            || !is_plain
            || !batch.output_rows.is_sorted()
        {
            return None;
        }
        // A share has as many rows as a matmul tile, unless a sequence is longer.
        let parts = cut(batch, worker_count, rows.div_ceil(worker_count * PRODUCT_ROWS).max(MIN_PARTS))?;
        let fits = |part: &BatchShare| {
            part.rows <= self.plan.max_rows.tokens && part.output_rows <= self.plan.max_rows.outputs
        };
        (parts.iter().all(fits) && is_fair(&parts, worker_count)).then_some(parts)
    }
}

/// A sequence of a batch: its rows, and its range in the batch's outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    rows: Range<usize>,
    output_rows: Range<usize>,
}

/// Some sequences of a batch, with their numbers of rows and outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchShare {
    texts: Vec<Text>,
    rows: usize,
    output_rows: usize,
}

impl BatchShare {
    fn add(&mut self, text: Text) {
        self.rows += text.rows.len();
        self.output_rows += text.output_rows.len();
        self.texts.push(text);
    }

    /// Builds the batch of its rows, with `columns` external input values per row.
    fn batch(&self, whole: &Batch, columns: usize) -> Batch {
        let mut part = Batch::with_capacity(self.rows, self.output_rows);
        for Text { rows, output_rows } in &self.texts {
            let output_rows = &whole.output_rows[output_rows.clone()];
            let first = part.rows.len();
            part.output_rows.extend(output_rows.iter().map(|row| row - rows.start + first));
            whole.rows[rows.clone()].iter().for_each(|row| part.push(*row));
            part.external_input
                .extend_from_slice(&whole.external_input[rows.start * columns..rows.end * columns]);
        }
        part
    }
}

impl CpuPass<'_> {
    /// Returns the shares for `worker_count` workers; `None` if running each step together is better.
    pub(super) fn dealt(&self, worker_count: usize) -> Option<(&BatchParallel, Vec<BatchShare>)> {
        let apart = self.apart.filter(|_| self.observation.is_none())?;
        Some((apart, apart.cut(self.batch, worker_count)?))
    }

    /// Runs all steps for each share; the outputs are where [`BatchParallel::output`] says.
    pub(super) fn share_apart(&self, worker: &Worker<'_>, apart: &BatchParallel, parts: &[BatchShare]) {
        let columns = self.batch.external_input.len() / self.batch.rows.len().max(1);
        let alone = |part: usize| {
            let part = &parts[part];
            let forward = CpuPass {
                plan: &apart.plan,
                workspace: apart.workspace,
                arena: self.arena.room(worker.index * apart.words..(worker.index + 1) * apart.words),
                batch: &part.batch(self.batch, columns),
                apart: None,
                ..*self
            };
            forward.steps(&PrefetchingWorker::new(&worker.alone()));
            for (from, to) in part.texts.iter().flat_map(|text| text.output_rows.clone()).enumerate() {
                // SAFETY: only this worker accesses the outputs of these sequences and its own arena.
                unsafe {
                    let output = forward.arena.row(apart.plan.output, from);
                    self.arena.row_mut(apart.output, to).copy_from_slice(output);
                }
            }
        };
        worker.share(parts.len(), || self.is_stopped(), alone, || false);
    }
}

/// Assigns the sequences of a batch, in order, to `each` shares per worker, always to the one with the fewest rows; a
/// worker's shares are adjacent. `None` if the rows of a sequence are not contiguous.
fn cut(batch: &Batch, worker_count: usize, each: usize) -> Option<Vec<BatchShare>> {
    let mut parts = vec![BatchShare::default(); worker_count * each];
    let (mut first, mut count) = (0, 0);
    for rows in batch.rows.chunk_by(|a, b| a.sequence == b.sequence) {
        let end = first + rows.len();
        let at = |row: usize| batch.output_rows.partition_point(|output_rows| *output_rows < row);
        let text = Text { rows: first..end, output_rows: at(first)..at(end) };
        let smallest = parts.chunks_mut(each).min_by_key(|parts| rows_of(parts));
        if let Some(part) = smallest.and_then(|parts| parts.iter_mut().min_by_key(|part| part.rows)) {
            part.add(text);
        }
        (first, count) = (end, count + 1);
    }
    (count == batch.sequences.len()).then_some(parts)
}

fn rows_of(parts: &[BatchShare]) -> usize {
    parts.iter().map(|part| part.rows).sum()
}

/// Returns whether the load is balanced.
fn is_fair(parts: &[BatchShare], worker_count: usize) -> bool {
    let max_rows = parts.chunks((parts.len() / worker_count).max(1)).map(rows_of).max().unwrap_or(0);
    // 1/16 more costs half of what batch parallelism saves.
    16 * max_rows * worker_count <= 17 * rows_of(parts) && parts.iter().all(|part| part.rows > 0)
}

/// Returns whether a step has rows of whole sequences and only mixes rows of the same sequence.
fn is_of_texts(step: &PlanStep) -> bool {
    let of_texts = |rows: &RowKind| matches!(rows, RowKind::Tokens | RowKind::Outputs);
    match step {
        PlanStep::Rows { rows, .. } | PlanStep::Linear { rows, .. } | PlanStep::LoraLinear { rows, .. } => {
            of_texts(rows)
        }
        PlanStep::StoreKv { attention, .. } | PlanStep::Attention { attention, .. } => {
            use AttentionMask::{BigBird, CausalEncoder, CrossAttention, Full, Linformer, LocalWindow};
            matches!(
                attention.attention_mask,
                Full | CausalEncoder(_) | LocalWindow(_) | BigBird { .. } | Linformer | CrossAttention
            )
        }
        PlanStep::Arrange { .. }
        | PlanStep::ExpertLinear { .. }
        | PlanStep::CausalConv1d { .. }
        | PlanStep::LinearAttention { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenRow;
    use siskin_graph::AdapterSlot;

    fn batch(lengths: &[usize], output_rows: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for (sequence, &length) in lengths.iter().enumerate() {
            for position in 0..length {
                batch.push(TokenRow {
                    sequence,
                    position,
                    token: 0,
                    token_type: 0,
                    global_index: None,
                    rope_length: length,
                    adapter: AdapterSlot::MODEL,
                });
            }
        }
        batch.output_rows.extend_from_slice(output_rows);
        batch
    }

    #[test]
    fn members_get_as_much_in_whole_texts() {
        let batch = batch(&[100, 100, 100, 100, 64, 40], &[0, 210, 503]);
        let parts = cut(&batch, 2, 2).unwrap();
        assert_eq!(parts.iter().map(|part| part.rows).collect::<Vec<_>>(), [164, 100, 140, 100]);
        assert!(is_fair(&parts, 2));
        // The second and the last sequence.
        let own = parts[2].batch(&batch, 0);
        assert_eq!((own.rows.len(), own.rows[0].sequence, own.rows[100].sequence), (140, 1, 5));
        assert_eq!((own.output_rows, &parts[2].texts[1].output_rows), (vec![139], &(2..3)));
    }

    #[test]
    fn what_cannot_be_shared_fairly_is_not_cut() {
        let cut = |lengths: &[usize], worker_count| cut(&batch(lengths, &[]), worker_count, 2).unwrap();
        assert!(is_fair(&cut(&[128; 4], 2), 2));
        assert!(!is_fair(&cut(&[128; 5], 2), 2));
        assert!(!is_fair(&cut(&[128, 128], 2), 2));
        let mut turns = batch(&[2, 2], &[]);
        turns.rows.swap(1, 2);
        assert_eq!(super::cut(&turns, 1, 1), None);
    }
}

//! Draft tokens of a smaller model, or of the same model without some of its layers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{DraftBudget, Proposer, RETRY};
use siskin_backend::block_table::SequenceId;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_format::{Error, Result};

/// The weight of a new measurement.
const WEIGHT: f64 = 0.1;
/// The number of draft tokens of a retry: the second one is a pass of a single token, whose time is measured.
const RETRIED: usize = 2;
/// How many tokens of a text the draft model catches up with in a pass of the target model.
const CATCH_UP: usize = 32;

/// A model that drafts the tokens of another one with the same vocabulary (arXiv:2211.17192). It may be the same model
/// without some of its layers (self-speculative decoding, arXiv:2309.08168). Clones share it.
#[derive(Clone)]
pub struct DraftModel {
    shared: Arc<Mutex<DraftContext>>,
}

struct DraftContext {
    context: Context,
    /// How long a token takes; 0 while unknown.
    seconds: f64,
}

impl DraftModel {
    /// Creates a draft model, of whose context each request that it drafts for takes a sequence.
    ///
    /// # Errors
    /// If tokens cannot be taken back from a sequence of the model, as with recurrent states.
    pub fn new(context: Context) -> Result<Self> {
        let layout = context.block_table().layout();
        if layout.groups.is_empty() || layout.state_group().is_some() {
            let message = "a draft model must support rolling back its KV cache; models with recurrent states and \
                           external models do not";
            return Err(Error::unsupported("draft", message));
        }
        Ok(Self { shared: Arc::new(Mutex::new(DraftContext { context, seconds: 0.0 })) })
    }

    /// Returns a proposer for a request of up to `max_length` tokens.
    pub fn proposer(&self, max_length: usize) -> DraftModelProposer {
        let tokens = Vec::with_capacity(max_length);
        DraftModelProposer { model: self.clone(), sequence: None, tokens, wait: 0, failures: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, DraftContext> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drafts the tokens of one request with a [`DraftModel`].
pub struct DraftModelProposer {
    model: DraftModel,
    /// The sequence of the text; draft tokens are made on forks.
    sequence: Option<SequenceId>,
    /// The tokens of the sequence.
    tokens: Vec<u32>,
    /// Passes until the next draft token.
    wait: u32,
    /// How often drafting has failed.
    failures: u32,
}

impl DraftModelProposer {
    /// Drafts up to `count` tokens. A long text is caught up with in parts, without draft tokens.
    fn draft(
        &mut self,
        shared: &mut DraftContext,
        tokens: &[u32],
        count: usize,
        drafts: &mut Vec<u32>,
    ) -> Result<()> {
        let DraftContext { context, seconds } = shared;
        let sequence = *self.sequence.get_or_insert_with(|| context.create());
        let limit = tokens.len().saturating_sub(1);
        let common = self.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count();
        if common < self.tokens.len() {
            context.truncate(sequence, common)?;
            self.tokens.truncate(common);
        }
        let missing = &tokens[common..];
        let part = CATCH_UP.min(context.decoder_limits().0);
        if missing.len() > part {
            let part = &missing[..part];
            context.forward(&[BatchEntry::new(sequence, part, OutputRows::None)])?;
            self.tokens.extend_from_slice(part);
            return Ok(());
        }
        context.forward(&[BatchEntry::new(sequence, missing, OutputRows::Last)])?;
        self.tokens.extend_from_slice(missing);
        let Some(first) = most_likely(context.output(0)) else { return Ok(()) };
        drafts.push(first);
        if count < 2 {
            return Ok(());
        }
        let fork = context.fork(sequence)?;
        let drafted = draft_on(context, fork, first, count - 1, seconds, drafts);
        context.remove(fork);
        drafted
    }

    fn forget(&mut self, context: &mut Context) {
        self.tokens.clear();
        self.sequence.take().into_iter().for_each(|sequence| context.remove(sequence));
    }
}

impl Proposer for DraftModelProposer {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        if self.wait > 1 {
            self.wait -= 1;
            return;
        }
        let model = self.model.clone();
        let mut shared = model.lock();
        let is_retry = std::mem::take(&mut self.wait) == 1;
        let count = match budget.worthwhile(shared.seconds) {
            0 if is_retry => RETRIED.min(budget.limit),
            0 => {
                self.wait = RETRY;
                return;
            }
            count => count,
        };
        // The last draft token is not processed.
        let room = (shared.context.block_table().context_length() + 1).saturating_sub(tokens.len());
        if room == 0 {
            self.wait = u32::MAX;
            return self.forget(&mut shared.context);
        }
        let before = drafts.len();
        if self.draft(&mut shared, tokens, count.min(room), drafts).is_err() {
            // The sequence has unknown contents, or there is no memory for it. It begins anew later.
            drafts.truncate(before);
            self.forget(&mut shared.context);
            self.wait = RETRY << self.failures.min(8);
            self.failures += 1;
        }
    }
}

impl Drop for DraftModelProposer {
    fn drop(&mut self) {
        if self.sequence.is_some() {
            let model = self.model.clone();
            self.forget(&mut model.lock().context);
        }
    }
}

/// Appends up to `count` draft tokens after `token` in a sequence, and measures how long they take.
fn draft_on(
    context: &mut Context,
    sequence: SequenceId,
    mut token: u32,
    count: usize,
    seconds: &mut f64,
    drafts: &mut Vec<u32>,
) -> Result<()> {
    for _ in 0..count {
        let begin = Instant::now();
        context.forward(&[BatchEntry::new(sequence, &[token], OutputRows::Last)])?;
        let elapsed = begin.elapsed().as_secs_f64();
        *seconds = if *seconds == 0.0 { elapsed } else { *seconds + WEIGHT * (elapsed - *seconds) };
        let Some(next) = most_likely(context.output(0)) else { break };
        drafts.push(next);
        token = next;
    }
    Ok(())
}

/// Returns the token with the highest logit, the first of several.
fn most_likely(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, &logit) in (0..).zip(logits) {
        if best.is_none_or(|(_, highest)| logit > highest) && !logit.is_nan() {
            best = Some((token, logit));
        }
    }
    best.map(|(token, _)| token)
}

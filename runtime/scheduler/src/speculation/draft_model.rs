//! Guesses of a smaller model, or of the same model without some of its layers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{DraftBudget, Proposer};
use siskin_backend::block_table::SequenceId;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_format::{Error, Result};

/// The weight of a new measurement.
const WEIGHT: f64 = 0.1;
/// Passes without guesses after which one is made, since the text may have changed.
const RETRY: u32 = 64;

/// A model that guesses the tokens of another one with the same vocabulary (arXiv:2211.17192). It may be the same model
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
    /// Creates a draft model, of whose context each request that it guesses for takes a sequence.
    ///
    /// # Errors
    /// If tokens cannot be taken back from a sequence of the model, as with recurrent states.
    pub fn new(context: Context) -> Result<Self> {
        let layout = context.block_table().layout();
        if layout.groups.is_empty() || layout.state_group().is_some() {
            let message = "a draft model must be able to take tokens back; models with recurrent states and external \
                           models cannot";
            return Err(Error::unsupported("draft", message));
        }
        Ok(Self { shared: Arc::new(Mutex::new(DraftContext { context, seconds: 0.0 })) })
    }

    /// Returns a proposer for a request.
    pub fn proposer(&self) -> DraftModelProposer {
        DraftModelProposer { model: self.clone(), sequence: None, tokens: Vec::new(), skipped: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, DraftContext> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guesses the tokens of one request with a [`DraftModel`].
pub struct DraftModelProposer {
    model: DraftModel,
    sequence: Option<SequenceId>,
    /// The tokens of the sequence.
    tokens: Vec<u32>,
    /// Passes since the last guess.
    skipped: u32,
}

impl DraftModelProposer {
    /// Guesses up to `count` tokens. A long text is caught up with a batch at a time, without guesses.
    fn guess(
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
        let batch = context.decoder_limits().0;
        if missing.len() > batch {
            let chunk = &missing[..batch];
            context.forward(&[BatchEntry::new(sequence, chunk, OutputRows::None)])?;
            self.tokens.extend_from_slice(chunk);
            return Ok(());
        }
        context.forward(&[BatchEntry::new(sequence, missing, OutputRows::Last)])?;
        self.tokens.extend_from_slice(missing);
        for index in 0..count {
            let Some(token) = most_likely(context.output(0)) else { break };
            drafts.push(token);
            if index + 1 == count {
                break;
            }
            let begin = Instant::now();
            context.forward(&[BatchEntry::new(sequence, &[token], OutputRows::Last)])?;
            self.tokens.push(token);
            let elapsed = begin.elapsed().as_secs_f64();
            *seconds = if *seconds == 0.0 { elapsed } else { *seconds + WEIGHT * (elapsed - *seconds) };
        }
        Ok(())
    }

    fn forget(&mut self, context: &mut Context) {
        self.tokens.clear();
        self.sequence.take().into_iter().for_each(|sequence| context.remove(sequence));
    }
}

impl Proposer for DraftModelProposer {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        let model = self.model.clone();
        let mut shared = model.lock();
        let count = match budget.worthwhile(shared.seconds) {
            0 if self.skipped < RETRY => {
                self.skipped += 1;
                return;
            }
            0 => 1,
            count => count,
        };
        self.skipped = 0;
        let room = shared.context.block_table().context_length().saturating_sub(tokens.len());
        let before = drafts.len();
        if self.guess(&mut shared, tokens, count.min(room), drafts).is_err() {
            // The sequence has unknown contents, or there is no memory for it. It begins anew with the next guess.
            drafts.truncate(before);
            self.forget(&mut shared.context);
        }
    }
}

impl Drop for DraftModelProposer {
    fn drop(&mut self) {
        let model = self.model.clone();
        self.forget(&mut model.lock().context);
    }
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

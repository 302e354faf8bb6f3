//! What becomes of the logits of a pass: samplers score prompts and choose the next tokens.

use std::time::Duration;

use super::{DecoderRunner, Ended, MAX_FORCED};
use crate::engine::sampler::{RequestOutcome, Sampled};
use crate::policy::{StepEntry, StepPlan};
use crate::request::{RequestId, RequestState};
use siskin_backend::context::Context;

impl DecoderRunner {
    /// Records a pass and samples the next tokens.
    pub(super) fn commit(
        &mut self,
        context: &mut Context,
        plan: &StepPlan,
        elapsed: Duration,
        ended: &mut Ended,
    ) {
        self.stats.steps += 1;
        self.stats.rows += plan.rows as u64;
        self.stats.pass_times.record(elapsed);
        (self.sessions_awaited, self.last_pass) = (0, elapsed);
        self.scheduler.commit(plan, elapsed);
        // Their rows were rolled back. They end now: a session may reset its handle before the next pass.
        let is_canceled = |entry: &&StepEntry| {
            self.cache.sequence(entry.request).is_some_and(|sequence| context.is_canceled(sequence))
        };
        let canceled = plan.entries.iter().filter(is_canceled);
        ended.extend(canceled.map(|entry| (entry.request, RequestOutcome::Canceled)));
        let (mut row, mut drafts) = (0, plan.drafts.as_slice());
        for entry in plan.entries.iter().filter(|entry| entry.outputs > 0) {
            let (own, rest) = drafts.split_at(entry.drafts);
            self.score(context, entry, row, ended);
            let is_last = |state: &RequestState| entry.from + entry.count == state.tokens.len();
            if self.scheduler.request(entry.request).is_some_and(is_last) {
                self.sample(context, entry, row + entry.outputs - 1, own, ended);
            }
            row += entry.outputs + entry.drafts;
            drafts = rest;
        }
    }

    /// Gives the sampler of a prompt that is scored the logits before each token of it.
    fn score(&mut self, context: &Context, entry: &StepEntry, first: usize, ended: &mut Ended) {
        let id = entry.request;
        let Some(state) = self.scheduler.request(id).filter(|state| state.scores_prompt) else { return };
        let is_canceled = self.cache.sequence(id).is_none_or(|sequence| context.is_canceled(sequence));
        let Some(request) = self.active.get_mut(id).filter(|_| !is_canceled) else { return };
        for (row, index) in (first..).zip(entry.scored(state.prompt_length)) {
            if let Err(error) = request.sampler.score(index, state.tokens[index], context.output(row)) {
                ended.push((id, RequestOutcome::Failed(error)));
                return;
            }
        }
    }

    /// Samples the tokens of a request from the output rows from `first` on: the next one, and one more for each of
    /// `drafts` that is the token sampled before it.
    fn sample(
        &mut self,
        context: &mut Context,
        entry: &StepEntry,
        first: usize,
        drafts: &[u32],
        ended: &mut Ended,
    ) {
        let id = entry.request;
        let Some(request) = self.active.get_mut(id) else { return };
        let Some(sequence) = self.cache.sequence(id) else { return };
        if context.is_canceled(sequence) {
            return;
        }
        let mut accepted = 0;
        let end = loop {
            let sampled = request.sampler.sample(context.output(first + accepted));
            match sampled {
                Ok(Sampled::Token(token)) if self.scheduler.append(id, token) => {
                    if drafts.get(accepted) != Some(&token) {
                        break None;
                    }
                    accepted += 1;
                }
                end => break Some(end),
            }
        };
        // Whether the draft token after the end was right is unknown.
        let is_over = matches!(end, Some(Ok(Sampled::End)));
        let end = end.or_else(|| {
            for _ in 0..MAX_FORCED {
                match request.sampler.next_forced().transpose()? {
                    Ok(Sampled::Token(token)) if self.scheduler.append_forced(id, token) => {}
                    end => return Some(end),
                }
            }
            None
        });
        self.scheduler.accept(id, if is_over { accepted } else { drafts.len() }, accepted);
        self.stats.drafted_tokens += drafts.len() as u64;
        self.stats.accepted_tokens += accepted as u64;
        let state = self.scheduler.request(id);
        if let Some(state) = state {
            if accepted < drafts.len() {
                context.roll_back(sequence, state.computed);
            }
            if !matches!(end, Some(Err(_))) {
                self.cache.keep_prompt(context, id, &state.tokens[..state.computed]);
            }
        }
        match end {
            None => {}
            Some(Ok(Sampled::Token(_))) => ended.push((id, self.length_outcome(id))),
            // The sampler has delivered the end.
            Some(Ok(Sampled::End)) => {
                self.sessions_awaited +=
                    usize::from(self.scheduler.request(id).is_some_and(RequestState::is_session));
                self.remove(context, id, false);
            }
            Some(Err(error)) => ended.push((id, RequestOutcome::Failed(error))),
        }
    }

    /// Returns why a request ends that cannot have another token: it may not generate more, or the context is full.
    fn length_outcome(&self, id: RequestId) -> RequestOutcome {
        let state = self.scheduler.request(id);
        match state.is_none_or(|state| state.tokens.len() + 1 - state.prompt_length >= state.max_tokens) {
            true => RequestOutcome::Length,
            false => RequestOutcome::ContextFull,
        }
    }
}

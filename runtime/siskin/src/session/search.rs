//! Beam search over continuations of a session.

use std::sync::Arc;

use super::Session;
use crate::beam_search::{BeamSearch, BeamSettings, Beams, FinishedHypothesis, SearchOptions};
use crate::logits_processors::LogitsProcessorList;
use crate::{Error, ErrorKind, Result};
use siskin_backend::block_table::BLOCK;

impl Session {
    /// Searches for the most likely continuations of the session, which is unchanged afterwards. Needs as many
    /// [`forks`](super::SessionOptions::forks) as there are beams.
    pub fn search(&mut self, options: &SearchOptions) -> Result<Vec<FinishedHypothesis>> {
        let settings = BeamSettings::new(options, self.sampler.vocabulary_size(), self.model.kernel_table())?;
        self.search_by(&settings, options.beams, &self.tokens.clone())
    }

    /// Like [`Self::search`], with logits processors given by the caller.
    pub(crate) fn search_with(
        &mut self,
        options: &SearchOptions,
        rules: LogitsProcessorList,
    ) -> Result<Vec<FinishedHypothesis>> {
        let settings =
            BeamSettings::with_rules(options, self.logits.len(), rules, self.model.kernel_table())?;
        self.search_by(&settings, options.beams, &[])
    }

    /// Searches for continuations; logits processors treat `prompt` as the prompt.
    fn search_by(
        &mut self,
        settings: &Arc<BeamSettings>,
        beams: usize,
        prompt: &[u32],
    ) -> Result<Vec<FinishedHypothesis>> {
        if self.tokens.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "no tokens; prefill some first"));
        }
        self.recover()?;
        self.make_room(beams * BLOCK, None);
        let mut context = self.context.lock();
        context.set_cancel_handle(&self.cancel);
        let (rows, max_outputs) = context.decoder_limits();
        if beams > rows.min(max_outputs) {
            let message = format!("{beams}; open the session with at least as many forks");
            return Err(Error::argument("beams", message));
        }
        let context_length = context.block_table().context_length();
        let max_tokens = context_length + 1 - self.tokens.len().min(context_length);
        let source = self.source.as_ref().map(|text| Arc::from(text.ids.as_slice())).unwrap_or_default();
        let root = context.fork(self.sequence)?;
        let width = beams;
        let beams = Beams::new(settings, root, prompt, source, max_tokens);
        let mut scratch = Vec::new();
        let mut hunt = BeamSearch::begin(beams, root, &self.logits, &mut scratch);
        let mut outcome = hunt.settle(&mut context);
        while outcome.is_ok() && !hunt.is_over() {
            if self.engine.is_some() {
                // Others have their turn between steps.
                drop(context);
                self.make_room(width * BLOCK, None);
                context = self.context.lock();
                context.set_cancel_handle(&self.cancel);
            }
            let pieces: Vec<_> = hunt.pieces(self.adapter).collect();
            outcome = context.forward(&pieces).and_then(|()| {
                hunt.step(&context, 0, &mut scratch);
                hunt.settle(&mut context)
            });
        }
        let found = hunt.finish(&mut context);
        outcome.map(|()| found)
    }
}

//! Opens sessions and contexts of a model.

use siskin_backend::MemoryUse;
use siskin_backend::context::{Context, ContextOptions, DecoderLimits, Resources};

use super::{Session, SessionMemory, SessionOptions, budget};
use crate::model::Model;
use crate::{Error, Result};

impl Model {
    /// Creates a session: one conversation or text.
    pub fn session(&self, options: SessionOptions) -> Result<Session> {
        if self.loaded().graphs.decoder.is_none() {
            return Err(Error::unsupported(
                "model",
                "it is encoder-only and cannot generate text; use an encoder",
            ));
        }
        Session::new(self.clone(), options)
    }

    /// Returns the plans of the CPU for a session with default options, as text.
    pub fn plan_text(&self) -> Result<String> {
        self.loaded().plan_text(self.loaded().module.batch_tokens())
    }

    /// Allocates a context for `sequences` sequences of up to `context` tokens each, of which `output_rows` rows give
    /// outputs, with a thread pool of its own.
    pub fn context(&self, options: &SessionOptions, sequences: usize, output_rows: usize) -> Result<Context> {
        self.new_context(options, sequences, output_rows, None)
    }

    /// Like [`Model::context`], on resources that other contexts use as well.
    pub fn context_on(
        &self,
        resources: &Resources,
        options: &SessionOptions,
        sequences: usize,
        output_rows: usize,
    ) -> Result<Context> {
        self.new_context(options, sequences, output_rows, Some(resources))
    }

    fn new_context(
        &self,
        options: &SessionOptions,
        sequences: usize,
        output_rows: usize,
        resources: Option<&Resources>,
    ) -> Result<Context> {
        let context_options = self.context_options(options, sequences, output_rows)?;
        let kv_budget = resources.and_then(|resources| resources.kv_budget);
        if let Some(budget) = options.budget {
            budget::check(budget, context_options.cache.context_length, &|context| {
                let options = SessionOptions { context, ..options.clone() };
                let options = self.context_options(&options, sequences, output_rows)?;
                Ok(self.loaded().context_memory(&options, kv_budget)?.total())
            })?;
        }
        self.create_context(&context_options, resources)
    }

    /// Returns the memory that a session with these options would use, without reserving it.
    pub fn memory(&self, options: &SessionOptions) -> Result<SessionMemory> {
        let sequences = options.forks.saturating_add(1);
        let context_options = self.context_options(options, sequences, sequences)?;
        let MemoryUse { activations, kv_cache } = self.loaded().context_memory(&context_options, None)?;
        let mapped = self.loaded().file.bytes().len();
        Ok(SessionMemory { arena: activations, cache: kv_cache, mapped })
    }

    fn context_options(
        &self,
        options: &SessionOptions,
        sequences: usize,
        output_rows: usize,
    ) -> Result<ContextOptions> {
        let SessionOptions { context, batch, encoder_context, cache, window, .. } = *options;
        self.loaded().context_options(
            &DecoderLimits { context, batch, encoder_context, cache, window },
            sequences,
            output_rows,
        )
    }
}

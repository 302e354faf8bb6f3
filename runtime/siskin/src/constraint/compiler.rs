//! Compiles constraints for a tokenizer, once each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::choice::Choice;
use super::deferred::{Deferred, Trigger};
#[cfg(feature = "grammar")]
use super::grammar::{GrammarCompiler, GrammarSource};
use super::token_table::TokenTable;
use super::{StructuredOutput, TokenConstraint};
use crate::{Error, Result};
use siskin_format::CargoFeature;
use siskin_tokenizer::Tokenizer;

/// The cargo feature of this module.
const FEATURE: CargoFeature = CargoFeature { name: "constraints", is_there: cfg!(feature = "constraints") };

/// The cargo feature of grammars.
#[cfg(feature = "tools")]
pub(crate) const GRAMMAR: CargoFeature =
    CargoFeature { name: "grammar", is_there: cfg!(feature = "grammar") };

/// The maximum number of compiled constraints that are kept.
const MAX_CACHED: usize = 64;

/// The compiled constraints of a model.
#[derive(Default)]
pub(crate) struct ConstraintCompiler {
    state: Mutex<CompilerState>,
}

#[derive(Default)]
struct CompilerState {
    table: Option<Arc<TokenTable>>,
    #[cfg(feature = "grammar")]
    grammars: Option<Arc<GrammarCompiler>>,
    /// Those of deferred constraints; the oldest first.
    triggers: VecDeque<Arc<Trigger>>,
    /// The least recently used one first.
    compiled: VecDeque<([u8; 32], Box<dyn TokenConstraint>)>,
}

impl ConstraintCompiler {
    /// Compiles a constraint for a tokenizer, always the same one, and the first `vocabulary_size` tokens.
    pub(crate) fn compile(
        &self,
        output: &StructuredOutput,
        tokenizer: &Arc<Tokenizer>,
        vocabulary_size: usize,
    ) -> Result<Box<dyn TokenConstraint>> {
        // So that no constraint is linked without the feature.
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let text = match output {
            StructuredOutput::Custom(constraint) => return Ok(constraint.fork()),
            StructuredOutput::Choice(choices) => {
                let table = self.table(tokenizer, vocabulary_size)?;
                return Ok(Box::new(Choice::new(choices, table)?));
            }
            // Only linked where something uses it.
            StructuredOutput::Deferred(_) if !cfg!(any(feature = "tools", feature = "grammar")) => {
                let message = "this library was built without the features `tools` and `grammar`";
                return Err(Error::unsupported(output.name(), message));
            }
            StructuredOutput::Deferred(deferred) => {
                let then = deferred.then.as_ref();
                let then = then.map(|then| self.compile(then, tokenizer, vocabulary_size)).transpose()?;
                let table = self.table(tokenizer, vocabulary_size)?;
                let trigger = self.trigger(&deferred.trigger, &table)?;
                return Ok(Box::new(Deferred::new(deferred, then, trigger, table)?));
            }
            StructuredOutput::JsonObject => "",
            StructuredOutput::JsonSchema(text)
            | StructuredOutput::Regex(text)
            | StructuredOutput::Lark(text)
            | StructuredOutput::Gbnf(text) => text,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(output.name().as_bytes()).update(&[0]).update(text.as_bytes());
        let key = *hasher.finalize().as_bytes();
        if let Some(constraint) = self.cached(&key) {
            return Ok(constraint);
        }
        let constraint = self.compile_grammar(output, tokenizer, vocabulary_size)?;
        let mut state = self.lock();
        if state.compiled.len() == MAX_CACHED {
            state.compiled.pop_front();
        }
        state.compiled.push_back((key, constraint.fork()));
        Ok(constraint)
    }

    fn lock(&self) -> MutexGuard<'_, CompilerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Box<dyn TokenConstraint>> {
        let mut state = self.lock();
        let at = state.compiled.iter().position(|(known, _)| known == key)?;
        let entry = state.compiled.remove(at)?;
        let constraint = entry.1.fork();
        state.compiled.push_back(entry);
        Some(constraint)
    }

    /// Returns a trigger, which takes a scan of the vocabulary to create.
    fn trigger(&self, text: &str, table: &TokenTable) -> Result<Arc<Trigger>> {
        let known = self.lock().triggers.iter().find(|trigger| trigger.text() == text).map(Arc::clone);
        if let Some(trigger) = known {
            return Ok(trigger);
        }
        let trigger = Arc::new(Trigger::new(text, table)?);
        let mut state = self.lock();
        if state.triggers.len() == MAX_CACHED {
            state.triggers.pop_front();
        }
        state.triggers.push_back(Arc::clone(&trigger));
        Ok(trigger)
    }

    fn table(&self, tokenizer: &Arc<Tokenizer>, vocabulary_size: usize) -> Result<Arc<TokenTable>> {
        let mut state = self.lock();
        if let Some(table) = &state.table {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(TokenTable::new(tokenizer, vocabulary_size)?);
        Ok(Arc::clone(state.table.insert(table)))
    }

    #[cfg(not(feature = "grammar"))]
    fn compile_grammar(
        &self,
        output: &StructuredOutput,
        _tokenizer: &Arc<Tokenizer>,
        _vocabulary_size: usize,
    ) -> Result<Box<dyn TokenConstraint>> {
        let message = "this library was built without the feature `grammar`";
        Err(Error::unsupported(output.name(), message))
    }

    #[cfg(feature = "grammar")]
    fn compile_grammar(
        &self,
        output: &StructuredOutput,
        tokenizer: &Arc<Tokenizer>,
        vocabulary_size: usize,
    ) -> Result<Box<dyn TokenConstraint>> {
        let source = match output {
            StructuredOutput::JsonObject => GrammarSource::json_object(),
            StructuredOutput::JsonSchema(schema) => GrammarSource::json_schema(schema),
            StructuredOutput::Regex(regex) => GrammarSource::regex(regex),
            StructuredOutput::Lark(grammar) => GrammarSource::lark(grammar),
            StructuredOutput::Gbnf(grammar) => GrammarSource::gbnf(grammar),
            StructuredOutput::Choice(_) | StructuredOutput::Deferred(_) | StructuredOutput::Custom(_) => {
                return Err(Error::argument("structured_output", "is not a grammar"));
            }
        };
        let table = self.table(tokenizer, vocabulary_size)?;
        let mut state = self.lock();
        let grammars = match &state.grammars {
            Some(grammars) => Arc::clone(grammars),
            None => {
                let grammars = Arc::new(GrammarCompiler::new(&table)?);
                Arc::clone(state.grammars.insert(grammars))
            }
        };
        drop(state);
        let source = source.map_err(|error| error.within(output.name()))?;
        grammars.compile(source, output.name())
    }
}

impl StructuredOutput {
    /// Returns a choice from a JSON list of texts.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if it is not one.
    pub fn choices(list: &str) -> Result<Self> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let texts = serde_json::from_str(list).map(Self::Choice);
        texts.map_err(|error| Error::argument("choice", format!("expected a JSON list of texts: {error}")))
    }

    /// Returns a grammar in GBNF, or in Lark, which has no `::=`.
    pub fn grammar(text: String) -> Self {
        if text.contains("::=") { Self::Gbnf(text) } else { Self::Lark(text) }
    }

    /// Returns the name of its kind, as in error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Choice(_) => "choice",
            Self::JsonObject => "json_object",
            Self::JsonSchema(_) => "json_schema",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "lark",
            Self::Gbnf(_) => "gbnf",
            Self::Deferred(_) => "deferred",
            Self::Custom(_) => "constraint",
        }
    }
}

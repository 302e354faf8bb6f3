//! Grammars and JSON schemas, by the crate `llguidance`: an Earley parser over lexemes that are derivatives of regular
//! expressions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::gbnf::gbnf_to_lark;
use super::token_table::{TokenTable, encode_inside};
use super::{TokenConstraint, TokenMask};
use crate::{Error, ErrorKind, Result};
use siskin_tokenizer::Tokenizer;

/// The maximum number of bytes of a grammar or schema.
const MAX_SOURCE_BYTES: usize = if cfg!(target_pointer_width = "64") { 1 << 19 } else { 1 << 16 };
/// The stack of the thread that compiles: llguidance recurses along chains of references, of which a source of the maximum
/// length has thousands. Only what is used takes memory.
const STACK_BYTES: usize = 1024 * MAX_SOURCE_BYTES;
/// The maximum number of bytes of a token that a grammar may use: the trie has no room for deeper ones.
const MAX_TOKEN_BYTES: usize = 1000;
/// The maximum number of bytes of all tokens: the trie has at most as many nodes.
const MAX_VOCABULARY_BYTES: usize = (1 << 22) - 1;
/// The maximum number of lexer states, of 1 to 2 KB each.
const MAX_LEXER_STATES: usize = 50_000;
/// White space between the tokens of JSON: bounded, since small models tend to generate it endlessly.
const JSON_WHITESPACE: &str = r" |\n[ \t]{0,32}";

/// A grammar to compile.
pub(super) struct GrammarSource(TopLevelGrammar);

impl GrammarSource {
    pub(super) fn json_object() -> Result<Self> {
        Self::schema(json!({"type": "object"}))
    }

    pub(super) fn json_schema(text: &str) -> Result<Self> {
        check_size(text)?;
        let schema =
            serde_json::from_str(text).map_err(|error| Error::argument("", format!("not JSON: {error}")))?;
        Self::schema(schema)
    }

    fn schema(schema: Value) -> Result<Self> {
        Ok(Self(TopLevelGrammar::from_json_schema(bounded(schema)?)))
    }

    pub(super) fn regex(text: &str) -> Result<Self> {
        check_size(text)?;
        Ok(Self(TopLevelGrammar::from_regex(text)))
    }

    pub(super) fn lark(text: &str) -> Result<Self> {
        check_size(text)?;
        Ok(Self(TopLevelGrammar::from_lark(text.to_owned())))
    }

    pub(super) fn gbnf(text: &str) -> Result<Self> {
        check_size(text)?;
        Ok(Self(TopLevelGrammar::from_lark(gbnf_to_lark(text)?)))
    }
}

/// Returns a schema as it is enforced: with bounded white space.
fn bounded(mut schema: Value) -> Result<Value> {
    if schema == json!(true) {
        schema = json!({});
    }
    if let Some(fields) = schema.as_object_mut() {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        let options = options.as_object_mut();
        let options = options.ok_or_else(|| Error::argument("x-guidance", "expected an object"))?;
        if options.get("lenient").is_some_and(|lenient| lenient != false) {
            let message = "`lenient` would ignore parts of the schema; remove these parts instead";
            return Err(Error::unsupported("x-guidance", message));
        }
        if !options.contains_key("whitespace_flexible") {
            options.entry("whitespace_pattern").or_insert_with(|| json!(JSON_WHITESPACE));
        }
    }
    Ok(schema)
}

/// Returns a schema in JSON as it is enforced inside a grammar.
#[cfg(feature = "tools")]
pub(super) fn with_bounded_space(schema: &str) -> Result<String> {
    let schema = serde_json::from_str(schema);
    bounded(schema.map_err(|error| Error::argument("", error.to_string()))?).map(|schema| schema.to_string())
}

fn check_size(text: &str) -> Result<()> {
    if text.len() <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    let message = format!("{} bytes long; at most {MAX_SOURCE_BYTES} are supported", text.len());
    Err(Error::argument("", message))
}

/// Compiles grammars for a tokenizer.
pub(super) struct GrammarCompiler {
    factory: ParserFactory,
    ends: Arc<[u32]>,
}

/// The tokenizer as `llguidance` sees it.
struct TokenizerView {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl TokenizerEnv for TokenizerView {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let text = std::str::from_utf8(bytes).ok();
        let tokens = text.and_then(|text| encode_inside(&self.tokenizer, text));
        tokens.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}

impl GrammarCompiler {
    pub(super) fn new(table: &TokenTable) -> Result<Self> {
        let TokenTable { tokenizer, vocabulary_size, .. } = table;
        let vocabulary_size = *vocabulary_size;
        let mut words = Vec::with_capacity(vocabulary_size + 1);
        let mut bytes = 0;
        for id in 0..vocabulary_size as u32 {
            // Special tokens stand for no text: no grammar can contain them.
            let word = table.token(id).into_owned();
            let is_usable = word.len() <= MAX_TOKEN_BYTES;
            bytes += if is_usable { word.len() } else { 0 };
            words.push(if is_usable { word } else { Vec::new() });
        }
        if bytes > MAX_VOCABULARY_BYTES {
            let message = format!("the tokens have {bytes} bytes; grammars support {MAX_VOCABULARY_BYTES}");
            return Err(Error::unsupported("tokenizer", message));
        }
        let is_known = |id: &u32| (*id as usize) < vocabulary_size;
        let mut ends: Vec<u32> = tokenizer.end_ids().iter().copied().filter(is_known).collect();
        let without_end = ends.is_empty();
        if without_end {
            // One more token, which no mask has room for.
            ends.push(vocabulary_size as u32);
            words.push(Vec::new());
        }
        let build = || {
            let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, ends[0]), &words);
            let view = TokenizerView { tokenizer: Arc::clone(tokenizer), trie: trie.with_eos_tokens(&ends) };
            let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
            let slices = llguidance::earley::SlicedBiasComputer::general_slices();
            ParserFactory::new(&(Arc::new(view) as TokEnv), capabilities, &slices)
        };
        // The trie asserts its limits.
        let built = catch_unwind(AssertUnwindSafe(build));
        let mut factory = match built {
            Ok(Ok(factory)) => factory,
            Ok(Err(error)) => return Err(Error::unsupported("tokenizer", error.to_string())),
            Err(_) => {
                let message = "grammars do not support its vocabulary";
                return Err(Error::unsupported("tokenizer", message));
            }
        };
        factory.quiet();
        let limits = factory.limits_mut();
        *limits = ParserLimits {
            max_lexer_states: MAX_LEXER_STATES,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let ends = if without_end { Arc::default() } else { ends.into() };
        Ok(Self { factory, ends })
    }

    /// Compiles a grammar; errors are about `location`.
    pub(super) fn compile(
        &self,
        source: GrammarSource,
        location: &'static str,
    ) -> Result<Box<dyn TokenConstraint>> {
        let compile = || Matcher::new(self.factory.create_parser(source.0));
        let matcher = std::thread::scope(|scope| {
            let thread =
                std::thread::Builder::new().name("siskin-grammar".to_owned()).stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, compile);
            let thread =
                thread.map_err(|error| Error::new(ErrorKind::Memory, location, error.to_string()))?;
            thread.join().map_err(|_| too_complex(location))
        })?;
        if let Some(message) = matcher.get_error() {
            let message = first_lines(&message);
            let kind = match message.contains("Unimplemented") {
                true => ErrorKind::Unsupported,
                false => ErrorKind::Argument,
            };
            return Err(Error::new(kind, location, message));
        }
        Ok(Box::new(GrammarConstraint { matcher, ends: Arc::clone(&self.ends), location }))
    }
}

/// What a grammar allows.
struct GrammarConstraint {
    matcher: Matcher,
    ends: Arc<[u32]>,
    location: &'static str,
}

impl GrammarConstraint {
    fn error(&self, error: &dyn std::fmt::Display) -> Error {
        match self.matcher.stop_reason() {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => too_complex(self.location),
            StopReason::NoExtensionBias => no_text(self.location),
            _ => Error::argument(self.location, first_lines(&error.to_string())),
        }
    }
}

impl TokenConstraint for GrammarConstraint {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<()> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| self.error(&error))?;
        mask.allow_words(allowed.as_slice());
        // A grammar may name tokens by their numbers. An end token ends the text, which must be complete.
        if !self.matcher.is_accepting().unwrap_or(true) {
            self.ends.iter().for_each(|&end| mask.forbid(end));
        }
        Ok(())
    }

    fn allows(&mut self, token: u32) -> Result<bool> {
        if self.ends.contains(&token) {
            return self.matcher.is_accepting().map_err(|error| self.error(&error));
        }
        if self.matcher.is_stopped() {
            return Ok(false);
        }
        // Bytes that are forced rule out tokens which are not their beginning as the tokenizer encodes them.
        if !self.matcher.compute_ff_bytes().is_empty() {
            let allowed = self.matcher.compute_mask().map_err(|error| self.error(&error))?;
            return Ok(allowed.is_allowed(token));
        }
        self.matcher.validate_tokens(&[token]).map(|count| count == 1).map_err(|error| self.error(&error))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.matcher.consume_token(token).map_err(|error| self.error(&error))
    }

    fn is_complete(&mut self) -> Result<bool> {
        match self.matcher.stop_reason() {
            StopReason::NotStopped => Ok(false),
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => Ok(true),
            reason => Err(self.error(&format!("stopped: {reason}"))),
        }
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<()> {
        tokens.extend(self.matcher.compute_ff_tokens());
        match self.matcher.get_error() {
            Some(error) => Err(self.error(&error)),
            None => Ok(()),
        }
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        let matcher = self.matcher.deep_clone();
        Box::new(Self { matcher, ends: Arc::clone(&self.ends), location: self.location })
    }
}

fn no_text(location: &'static str) -> Error {
    Error::argument(location, "no text can follow; give each repetition and each rule an end")
}

fn too_complex(location: &'static str) -> Error {
    Error::unsupported(location, "too complex to be enforced; simplify its repetitions and alternatives")
}

/// Returns a message of `llguidance` without the state of its parser.
fn first_lines(message: &str) -> String {
    let end =
        ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"].iter().filter_map(|mark| message.find(mark)).min();
    message[..end.unwrap_or(message.len())].trim().to_owned()
}

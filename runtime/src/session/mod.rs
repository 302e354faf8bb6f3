//! One conversation or text: prompt in, tokens and whole characters out.

mod dry_breakers;
mod generation;
mod pieces;
mod prompt;
mod rope_rescale;
mod save;
mod search;
mod turn;

pub(crate) use dry_breakers::with_breakers;
pub use generation::{Ended, Generation, Step};
pub use pieces::Pieces;
pub(crate) use prompt::first_tokens;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siskin_kernels::ops::attention::CacheType;

use crate::context::{BatchEntry, Context, OutputRows, SequenceInput};
use crate::encoder::Tokens;
use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::template::Message;
use crate::{Error, ErrorKind, Result};
use turn::Turn;

/// How a session is opened.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The most tokens; 0: the model's own, but no more than 2048.
    pub context: usize,
    /// The most tokens that go through the model at once.
    pub batch: usize,
    /// The most rows of a text that is read at once, for models that do; 0: the model's own, but no more than 2048.
    pub text: usize,
    /// What tokens see, where that is to be less than the model's all; layers with a shorter window of their own keep
    /// it. The cache then holds no more than this.
    pub window: Option<Window>,
    /// The type of cached numbers; `None`: f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// How many forks may go on beside the session, as the beams of a search do, each with a context of its own.
    pub forks: usize,
    /// The most bytes of activations, keys and values together; a session that would reserve more is refused, and told
    /// what would fit. `None`: no limit.
    pub budget: Option<usize>,
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Texts that end a generation.
    pub stop: Vec<String>,
    /// Texts that no repetition reaches across where the sampler punishes repetitions by DRY; they add to the
    /// sampler's own. Without a tokenizer they have no meaning.
    pub dry_breakers: Vec<String>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 0,
            batch: 256,
            text: 0,
            window: None,
            cache: None,
            forks: 0,
            budget: None,
            sampler: SamplerOptions::default(),
            stop: Vec::new(),
            dry_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
        }
    }
}

/// The newest tokens of a sequence and its first, all at their true positions.
///
/// What a model was not trained on stays what it is: a model that was trained with full attention goes on well where
/// the first few tokens, on which much of its attention rests, stay in sight. Positions do not begin anew, so that a
/// sequence is no longer than the context either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many of the newest, the token itself included; at least 1.
    pub recent: usize,
    /// How many of the first.
    pub first: usize,
}

/// A token that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The logarithm of its probability; NaN unless the sampler was asked for it.
    pub log_probability: f32,
}

/// What a session holds in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Activations, scratch, norms and biases.
    pub arena: usize,
    /// Keys and values, reserved; they take memory as they fill.
    pub cache: usize,
    /// The mapped file.
    pub mapped: usize,
}

/// Stops a session from any thread: a running call ends at the next step with
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) and the session stays as it was before the call.
///
/// Each session, forks included, has its own.
#[derive(Clone, Debug)]
pub struct StopHandle {
    flag: Arc<AtomicBool>,
}

impl StopHandle {
    /// One that nobody has pulled.
    pub(crate) fn new() -> Self {
        Self { flag: Arc::new(AtomicBool::new(false)) }
    }

    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// Stops the running call, or the next one.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Takes back a stop that no call has followed yet.
    pub fn withdraw(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}

/// How a text is generated.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The most tokens.
    pub max_tokens: usize,
    /// Give the prompt to the model as it is, without the chat template.
    pub raw: bool,
    /// Read control tokens out of a raw prompt that spells them. Leave this off for text from strangers.
    pub special: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { max_tokens: usize::MAX, raw: false, special: false }
    }
}

/// Memory for the logits of a scored batch.
const SCORE_BYTES: usize = 32 << 20;

/// One sequence of a model with its sampler. Forks share the cache of what they have in common.
pub struct Session {
    model: Model,
    options: SessionOptions,
    context: Arc<Mutex<Context>>,
    sequence: usize,
    /// The tokens of the sequence.
    tokens: Vec<u32>,
    sampler: Sampler,
    logits: Vec<f32>,
    turns: Vec<Turn>,
    /// What was read at once.
    source: Option<Tokens>,
    /// The last token of a raw text, which was given out but has not gone through the model.
    unread: Option<u32>,
    /// The tokens are not in the cache, where they were to be computed again and that was stopped.
    lost: bool,
    stop: StopHandle,
}

/// The context, once the model's governor lets a pass begin: forks wait for nobody who rests.
fn ready<'a>(context: &'a Mutex<Context>, model: &Model, stop: &StopHandle) -> MutexGuard<'a, Context> {
    model.governor().wait(&stop.flag);
    let mut context = locked(context);
    context.listen_to(&stop.flag);
    context
}

/// The context, also after a panic elsewhere: every batch checks what it needs.
fn locked(context: &Mutex<Context>) -> MutexGuard<'_, Context> {
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self> {
        let sequences = options.forks.saturating_add(1);
        let context = model.context(&options, sequences, sequences)?;
        Self::in_context(model, options, context)
    }

    fn in_context(model: Model, options: SessionOptions, mut context: Context) -> Result<Self> {
        let sampler = match model.tokenizer() {
            // Rows of a padded head that no token stands for are never chosen. Tokens beyond the head, as in Gemma 3,
            // cannot be chosen, and are refused where they are read.
            Ok(tokenizer) => {
                let choices = context.vocabulary().min(tokenizer.vocabulary_size().max(1) as usize);
                let sampler = with_breakers(&options.sampler, &options.dry_breakers, tokenizer)?;
                Sampler::new(&sampler, choices)?
            }
            Err(_) => Sampler::new(&options.sampler, context.vocabulary())?,
        };
        let sequence = context.create();
        let stop = StopHandle { flag: Arc::clone(context.stop_flag()) };
        let logits = vec![0.0; context.vocabulary()];
        let tokens = Vec::with_capacity(context.most_tokens());
        let context = Arc::new(Mutex::new(context));
        Ok(Self {
            model,
            options,
            context,
            sequence,
            tokens,
            sampler,
            logits,
            turns: Vec::new(),
            source: None,
            unread: None,
            lost: false,
            stop,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How it was opened.
    pub(crate) fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Lets another handle stop the session.
    pub(crate) fn stop_by(&mut self, stop: StopHandle) {
        self.stop = stop;
    }

    /// Tokens so far.
    pub fn position(&self) -> usize {
        match self.lost {
            true => self.tokens.len(),
            false => locked(&self.context).length(self.sequence).unwrap_or(0),
        }
    }

    /// Reads a text at once, for models with an encoder and a decoder; what was written before is forgotten.
    pub fn read(&mut self, text: &Tokens) -> Result<()> {
        self.reset();
        self.hear(text)?;
        self.source = Some(text.clone());
        Ok(())
    }

    /// Lets the sequence read `text`.
    fn hear(&mut self, text: &Tokens) -> Result<()> {
        let mut context = locked(&self.context);
        context.listen_to(&self.stop.flag);
        let Tokens { ids, segments, features, global, after } = text;
        let (sequence, wanted) = (self.sequence, OutputRows::None);
        context.read(&[SequenceInput {
            sequence,
            tokens: ids,
            segments,
            features,
            wanted,
            global,
            after: *after,
        }])
    }

    /// Appends tokens; the last one's logits are then there.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(last) = tokens.len().checked_sub(1) else { return Ok(()) };
        let batch = locked(&self.context).limits().0;
        self.forward(tokens, batch, false, &mut |session, first, context| {
            if last - first < batch {
                session.copy_from_slice(context.output(0));
            }
        })
    }

    /// Appends tokens as the prefix of an empty session: they see each other both ways, and what follows sees all of
    /// them. They go in at once, so that there are no more than [`SessionOptions::batch`].
    pub fn prefill_prefix(&mut self, tokens: &[u32]) -> Result<()> {
        locked(&self.context).set_prefix(self.sequence, tokens.len())?;
        let read = self.prefill(tokens);
        if read.is_err() {
            // Never fails: a session that took nothing is as empty as it was.
            let _ = locked(&self.context).set_prefix(self.sequence, 0);
        }
        read
    }

    /// Takes tokens through the model, `batch` at once, and calls `each` with the session's logits and the
    /// number of the first token of every batch. On an error the session is as it was before, or where a
    /// sliding window has moved on, holds the tokens that went in.
    fn forward(
        &mut self,
        tokens: &[u32],
        batch: usize,
        all_logits: bool,
        each: &mut dyn FnMut(&mut [f32], usize, &Context),
    ) -> Result<()> {
        let switched = self.switch(tokens.len(), batch)?;
        let mut context = ready(&self.context, &self.model, &self.stop);
        let before = context.length(self.sequence)?;
        context.expect(self.sequence, before + tokens.len())?;
        for (index, chunk) in tokens.chunks(batch).enumerate() {
            if index > 0 && self.model.governor().is_on() {
                drop(context);
                context = ready(&self.context, &self.model, &self.stop);
            }
            if let Err(error) =
                context.forward(&[BatchEntry { sequence: self.sequence, tokens: chunk, all_logits }])
            {
                if switched {
                    // What is cached was turned for a length that was not reached.
                    drop(context);
                    self.lose();
                    return Err(error);
                }
                let _ = context.truncate(self.sequence, before);
                let kept = context.length(self.sequence)?.saturating_sub(before);
                drop(context);
                self.remember(&tokens[..kept]);
                return Err(error);
            }
            each(&mut self.logits, index * batch, &context);
        }
        drop(context);
        self.remember(tokens);
        Ok(())
    }

    /// The logits of the last token; zeros before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Appends tokens and calls `each` with the number of every one and its logits, in order.
    pub fn score(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.widen()?;
        let (batch, wanted) = locked(&self.context).limits();
        let batch = batch.min(wanted);
        self.forward(tokens, batch, true, &mut |logits, first, context| {
            for row in 0..batch.min(tokens.len() - first) {
                each(first + row, context.output(row));
                logits.copy_from_slice(context.output(row));
            }
        })
    }

    fn remember(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        tokens.iter().for_each(|&token| self.sampler.accept(token));
    }

    /// Makes room for the logits of many rows, once. Only an empty, unshared session can be remade.
    fn widen(&mut self) -> Result<()> {
        let (batch, most) = locked(&self.context).limits();
        let wanted = (SCORE_BYTES / (4 * self.logits.len())).clamp(1, batch.max(1));
        let alone = Arc::strong_count(&self.context) == 1 && self.position() == 0;
        if alone && most < wanted {
            let sequences = self.options.forks.saturating_add(1);
            let mut context = self.model.context(&self.options, sequences, wanted)?;
            self.sequence = context.create();
            self.context = Arc::new(Mutex::new(context));
            if let Some(text) = self.source.take() {
                self.hear(&text)?;
                self.source = Some(text);
            }
        }
        Ok(())
    }

    /// Chooses the next token by the sampler and takes it through the model. `None` at the model's end.
    pub fn next_token(&mut self) -> Result<Option<Token>> {
        let token = self.choose()?;
        if let Some(token) = token {
            self.prefill(&[token.id])?;
        }
        Ok(token)
    }

    /// Chooses the next token.
    fn choose(&mut self) -> Result<Option<Token>> {
        if self.tokens.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "has no tokens to go on from; prefill some"));
        }
        let choice = self.sampler.sample(&self.logits[..self.sampler.vocabulary_size()])?;
        if self.model.end_ids().contains(&choice.id) {
            return Ok(None);
        }
        Ok(Some(Token { id: choice.id, log_probability: choice.log_probability }))
    }

    /// The most likely tokens of the last choice, where the sampler was asked for them.
    pub fn top(&self) -> &[crate::sample::Choice] {
        self.sampler.top()
    }

    /// Forgets all but the first `length` tokens; the logits are those of the last token that went through until
    /// the next one does.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        match self.lost {
            true if length > self.tokens.len() => {
                let message = format!("{length} tokens are to be kept of {}", self.tokens.len());
                return Err(Error::argument("length", message));
            }
            true => {}
            false => locked(&self.context).truncate(self.sequence, length)?,
        }
        self.unread = None;
        if length < self.tokens.len() {
            self.tokens.truncate(length);
            self.sampler.recall(&self.tokens);
        }
        Ok(())
    }

    /// Takes an empty sequence in the place of the session's.
    fn empty(&mut self) {
        let mut context = locked(&self.context);
        context.remove(self.sequence);
        self.sequence = context.create();
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.empty();
        self.tokens.clear();
        self.unread = None;
        self.sampler.reset();
        self.turns.clear();
        self.source = None;
        self.lost = false;
        self.logits.fill(0.0);
    }

    /// Forgets all but the first `length` tokens, and all messages, and takes the last of those through the model again:
    /// what is written next follows it.
    pub fn rewind(&mut self, length: usize) -> Result<()> {
        if length == 0 {
            self.reset();
            return Ok(());
        }
        let last = *self.tokens.get(length - 1).ok_or_else(|| {
            Error::argument("length", format!("{length} tokens are to be kept of {}", self.tokens.len()))
        })?;
        self.truncate(length - 1)?;
        self.turns.clear();
        self.prefill(&[last])
    }

    /// A second session that goes on from here; both share the cache of what they have in common.
    ///
    /// All forks share the memory that the first session reserved; a fork that finds none left says so.
    pub fn fork(&self) -> Result<Self> {
        let mut context = locked(&self.context);
        let sequence = context.fork(self.sequence)?;
        let mut tokens = Vec::with_capacity(context.most_tokens());
        drop(context);
        tokens.extend_from_slice(&self.tokens);
        Ok(Self {
            tokens,
            model: self.model.clone(),
            options: self.options.clone(),
            context: Arc::clone(&self.context),
            sequence,
            sampler: self.sampler.clone(),
            logits: self.logits.clone(),
            turns: self.turns.clone(),
            source: self.source.clone(),
            unread: self.unread,
            lost: self.lost,
            stop: StopHandle { flag: Arc::default() },
        })
    }

    /// Stops this session from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// What the session holds in memory.
    pub fn memory(&self) -> Memory {
        let (arena, cache) = locked(&self.context).memory();
        Memory { arena, cache, mapped: self.model.file().bytes().len() }
    }

    /// Gives memory that holds nothing, such as that of forgotten tokens, back to the system.
    pub fn trim(&mut self) {
        locked(&self.context).trim();
    }

    /// Says `prompt` as the user and generates the answer with the usual options.
    pub fn ask(&mut self, prompt: &str) -> Result<Pieces<'_>> {
        self.generate(prompt, GenerateOptions::default())
    }

    /// Adds a message that stands before the next question, such as a system prompt.
    pub fn say(&mut self, role: &str, content: &str) {
        self.turns.push(Turn::given(Message::new(role, content)));
    }

    /// Generates a text: as the answer to `prompt` where the model has a chat template and `raw` is not set,
    /// as its continuation otherwise. A model with an encoder reads the prompt, forgets what it read before, and writes
    /// another text.
    pub fn generate(&mut self, prompt: &str, options: GenerateOptions) -> Result<Pieces<'_>> {
        let generation = self.begin(prompt, options)?;
        Ok(Pieces::new(self, generation))
    }

    /// Goes back to where the sequence and `tokens` part, and returns what has to follow: at least one token.
    fn keep_common(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        // Frequencies of a long sequence are those of its length when a token went in.
        let longest = self.tokens.len().max(tokens.len());
        let stretched = locked(&self.context).stretches().is_some_and(|length| longest > length);
        if !stretched && self.truncate(common).is_ok() {
            return Ok(tokens[common..].to_vec());
        }
        // What the past would need is not there any more: begin again.
        self.empty();
        self.tokens.clear();
        self.lost = false;
        self.sampler.recall(&[]);
        Ok(tokens.to_vec())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.context).remove(self.sequence);
    }
}

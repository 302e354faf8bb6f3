//! One conversation or text: prompt in, tokens and whole characters out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siskin_kernels::ops::attention::CacheType;

use crate::Result;
use crate::context::{Context, Piece};
use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::template::{Data, Message, RenderOptions};
use crate::text::TextStream;
use crate::tokenizer::EncodeOptions;

/// How a session is opened.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The most tokens; 0: the model's own, but no more than 2048.
    pub context: usize,
    /// The most tokens that go through the model at once.
    pub batch: usize,
    /// The type of cached numbers; `None`: f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Texts that end a generation.
    pub stop: Vec<String>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { context: 0, batch: 256, cache: None, sampler: SamplerOptions::default(), stop: Vec::new() }
    }
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
#[derive(Clone, Debug)]
pub struct StopHandle {
    flag: Arc<AtomicBool>,
}

impl StopHandle {
    /// Stops the running call, or the next one.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// How a text is generated.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The most tokens.
    pub max_tokens: usize,
    /// Give the prompt to the model as it is, without the chat template.
    pub raw: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { max_tokens: usize::MAX, raw: false }
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
    messages: Vec<Message>,
    stop: StopHandle,
}

/// The context, also after a panic elsewhere: every batch checks what it needs.
fn locked(context: &Mutex<Context>) -> MutexGuard<'_, Context> {
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self> {
        let context = model.context(&options, 1, 1)?;
        Self::in_context(model, options, context)
    }

    fn in_context(model: Model, options: SessionOptions, mut context: Context) -> Result<Self> {
        let sampler = Sampler::new(&options.sampler, context.vocabulary())?;
        let sequence = context.create();
        let stop = StopHandle { flag: Arc::clone(context.stop_flag()) };
        let logits = vec![0.0; context.vocabulary()];
        let tokens = Vec::with_capacity(context.most_tokens());
        let context = Arc::new(Mutex::new(context));
        Ok(Self { model, options, context, sequence, tokens, sampler, logits, messages: Vec::new(), stop })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens so far.
    pub fn position(&self) -> usize {
        locked(&self.context).length(self.sequence).unwrap_or(0)
    }

    /// Appends tokens; the last one's logits are then there.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let mut context = locked(&self.context);
        let before = context.length(self.sequence)?;
        for chunk in tokens.chunks(context.limits().0) {
            if let Err(error) =
                context.forward(&[Piece { sequence: self.sequence, tokens: chunk, every: false }])
            {
                // A windowed cache may have moved on: then the tokens that went in stay.
                let _ = context.truncate(self.sequence, before);
                return Err(error);
            }
        }
        self.logits.copy_from_slice(context.logits(0));
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
        let mut context = locked(&self.context);
        let (batch, wanted) = context.limits();
        for (index, chunk) in tokens.chunks(batch.min(wanted)).enumerate() {
            context.forward(&[Piece { sequence: self.sequence, tokens: chunk, every: true }])?;
            for row in 0..chunk.len() {
                each(index * batch.min(wanted) + row, context.logits(row));
            }
            self.logits.copy_from_slice(context.logits(chunk.len() - 1));
        }
        drop(context);
        self.remember(tokens);
        Ok(())
    }

    fn remember(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        tokens.iter().for_each(|&token| self.sampler.accept(token));
    }

    /// Makes room for the logits of many rows, once. Only an empty, unshared session can be remade.
    fn widen(&mut self) -> Result<()> {
        let wanted = (SCORE_BYTES / (4 * self.logits.len())).clamp(1, self.options.batch.max(1));
        let alone = Arc::strong_count(&self.context) == 1 && self.position() == 0;
        if alone && locked(&self.context).limits().1 < wanted {
            let mut context = self.model.context(&self.options, 1, wanted)?;
            context.listen_to(Arc::clone(&self.stop.flag));
            self.sequence = context.create();
            self.context = Arc::new(Mutex::new(context));
        }
        Ok(())
    }

    /// Chooses the next token by the sampler and takes it through the model. `None` at the model's end.
    pub fn next_token(&mut self) -> Result<Option<Token>> {
        let choice = self.sampler.sample(&self.logits)?;
        if self.model.end_ids().contains(&choice.id) {
            return Ok(None);
        }
        self.prefill(&[choice.id])?;
        Ok(Some(Token { id: choice.id, log_probability: choice.log_probability }))
    }

    /// The most likely tokens of the last choice, where the sampler was asked for them.
    pub fn top(&self) -> &[crate::sample::Choice] {
        self.sampler.top()
    }

    /// Forgets all but the first `length` tokens. The sampler's history stays; the logits are those of the
    /// last token that went through until the next one does.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        locked(&self.context).truncate(self.sequence, length)?;
        self.tokens.truncate(length);
        Ok(())
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        let mut context = locked(&self.context);
        context.remove(self.sequence);
        self.sequence = context.create();
        drop(context);
        self.tokens.clear();
        self.sampler.reset();
        self.messages.clear();
        self.logits.fill(0.0);
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
            messages: self.messages.clone(),
            stop: self.stop.clone(),
        })
    }

    /// Stops this session (and its forks) from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// What the session holds in memory.
    pub fn memory(&self) -> Memory {
        let (arena, cache) = locked(&self.context).memory();
        Memory { arena, cache, mapped: self.model.file().bytes().len() }
    }

    /// Says `prompt` as the user and generates the answer with the usual options.
    pub fn ask(&mut self, prompt: &str) -> Result<Pieces<'_>> {
        self.generate(prompt, GenerateOptions::default())
    }

    /// Adds a message that stands before the next question, such as a system prompt.
    pub fn say(&mut self, role: &str, content: &str) {
        self.messages.push(Message::new(role, content));
    }

    /// Generates a text: as the answer to `prompt` where the model has a chat template and `raw` is not set,
    /// as its continuation otherwise.
    pub fn generate(&mut self, prompt: &str, options: GenerateOptions) -> Result<Pieces<'_>> {
        let tokens = self.prompt_tokens(prompt, options.raw)?;
        self.prefill(&tokens)?;
        let stream = TextStream::new(&self.options.stop)?;
        Ok(Pieces {
            session: self,
            stream,
            bytes: Vec::new(),
            answer: String::new(),
            tokens: 0,
            left: options.max_tokens,
            done: false,
            raw: options.raw,
        })
    }

    fn prompt_tokens(&mut self, prompt: &str, raw: bool) -> Result<Vec<u32>> {
        let model = self.model.clone();
        let tokenizer = model.tokenizer()?;
        let template = if raw { None } else { model.template()? };
        let Some(template) = template else {
            let add_special = self.position() == 0;
            return tokenizer.encode(prompt, EncodeOptions { add_special, parse_special: true });
        };
        let text = |id: Option<u32>| {
            id.and_then(|id| tokenizer.token_text(id).ok())
                .map(|text| String::from_utf8_lossy(text).into_owned())
        };
        let render = |messages: &[Message], add_generation_prompt| {
            let options = RenderOptions {
                bos_token: text(tokenizer.bos()),
                eos_token: text(tokenizer.eos()),
                add_generation_prompt,
                ..RenderOptions::default()
            };
            template.render(&Data::from(messages), &options)
        };
        self.messages.push(Message::new("user", prompt));
        let whole = render(&self.messages, true)?;
        let mut tokens =
            tokenizer.encode(&whole, EncodeOptions { add_special: false, parse_special: true })?;
        if tokenizer.add_bos() && tokens.first().copied() != tokenizer.bos() {
            tokens.splice(0..0, tokenizer.bos());
        }
        self.keep_common(&tokens)
    }

    /// Goes back to where the sequence and `tokens` part, and returns what has to follow: at least one token.
    fn keep_common(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        if self.truncate(common).is_ok() {
            return Ok(tokens[common..].to_vec());
        }
        // A sliding window has dropped what the past would need: begin again.
        let mut context = locked(&self.context);
        context.remove(self.sequence);
        self.sequence = context.create();
        self.tokens.clear();
        Ok(tokens.to_vec())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.context).remove(self.sequence);
    }
}

/// The text of a generation, in pieces of whole characters.
pub struct Pieces<'a> {
    session: &'a mut Session,
    stream: TextStream,
    bytes: Vec<u8>,
    answer: String,
    tokens: usize,
    left: usize,
    done: bool,
    raw: bool,
}

impl Iterator for Pieces<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.step() {
                Ok(text) if text.is_empty() => {}
                Ok(text) => {
                    self.answer.push_str(&text);
                    return Some(Ok(text));
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Pieces<'_> {
    /// Tokens generated so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The text of one more token, or what was held back at the end.
    fn step(&mut self) -> Result<String> {
        let token = if self.left == 0 { None } else { self.session.next_token()? };
        let Some(token) = token else {
            self.done = true;
            return Ok(self.stream.finish().text.to_owned());
        };
        self.left -= 1;
        self.tokens += 1;
        self.bytes.clear();
        self.session.model.tokenizer()?.piece_into(token.id, false, &mut self.bytes)?;
        let step = self.stream.push(&self.bytes);
        self.done = step.stopped;
        Ok(step.text.to_owned())
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        if !self.raw {
            self.session.messages.push(Message::new("assistant", &self.answer));
        }
    }
}

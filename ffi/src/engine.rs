//! Engines: requests of several models that share batches.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use siskin::Model;
use siskin::serving::{Engine, FEATURE, GenerationRequest, ModelId, PromptInput};
use siskin::template::{Message, RenderOptions};

use crate::arguments::{SizedOutput, output, text, values};
use crate::chat::ChatRequest;
use crate::encoder::{EncoderState, encoder_options, siskin_encoder};
use crate::engine_options::{siskin_engine_options, siskin_served_model_options};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::generation::{GenerationState, siskin_generation};
use crate::guard::{self, Handle, borrow, borrow_or_default};
use crate::model::siskin_model;
use crate::request_options::{Options, siskin_request_options};
use crate::session::{SessionState, siskin_session};
use crate::session_options::{siskin_kv_cache_type, siskin_session_options};

/// Generates for many requests at once: they share forward passes, threads, memory and the KV cache of common prefixes.
/// The tokens of a request are those that a session with the same options generates. Any number of threads may use it
/// concurrently. Freed with `siskin_engine_free`.
pub struct siskin_engine {
    _opaque: [u8; 0],
}

impl Handle for siskin_engine {
    type Inner = EngineState;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKengi";
    const NAME: &'static str = "engine";
}

/// The engine behind a handle, and its models by number.
pub(crate) struct EngineState {
    engine: Engine,
    /// `None`: removed.
    models: Mutex<Vec<Option<(ModelId, Model)>>>,
}

/// The prompt of a request, and how its response is read.
struct Prompt {
    input: PromptInput,
    chat: Option<ChatRequest>,
}

impl From<PromptInput> for Prompt {
    fn from(input: PromptInput) -> Self {
        Self { input, chat: None }
    }
}

impl EngineState {
    fn models(&self) -> MutexGuard<'_, Vec<Option<(ModelId, Model)>>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self, number: u32) -> Outcome<(ModelId, Model)> {
        let model = self.models().get(number as usize).cloned().flatten();
        model.ok_or_else(|| PendingError::argument("model", format!("the engine has no model {number}")))
    }

    fn add(&self, id: ModelId, model: &Model) -> u32 {
        let mut models = self.models();
        models.push(Some((id, model.clone())));
        models.len() as u32 - 1
    }

    fn remove(&self, number: u32, limit: Duration) -> Outcome<()> {
        let (id, _) = self.model(number)?;
        if let Some(model) = self.models().get_mut(number as usize) {
            *model = None;
        }
        Ok(self.engine.remove_model(id, limit)?)
    }

    fn submit(
        &self,
        number: u32,
        options: GenerationRequest,
        prompt: &dyn Fn(&Model, &GenerationRequest) -> Outcome<Prompt>,
    ) -> Outcome<GenerationState> {
        let (id, model) = self.model(number)?;
        let Prompt { input, chat } = prompt(&model, &options)?;
        let mut request = GenerationRequest { prompt: input, ..options };
        let response = chat.map(|chat| chat.apply(&mut request));
        let visible_tokens = request.visible_tokens.clone();
        let stream = self.engine.submit(id, request)?;
        Ok(GenerationState::new(stream, model, visible_tokens, response))
    }
}

/// Counters of a model's requests. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_engine_stats {
    /// `sizeof(siskin_engine_stats)`.
    pub struct_size: usize,
    /// Requests that run now.
    pub running: u64,
    /// Requests that wait now.
    pub waiting: u64,
    /// Cached prefixes now.
    pub cached_prefixes: u64,
    /// Forward passes.
    pub steps: u64,
    /// Rows (tokens) of all passes.
    pub rows: u64,
    /// Tokens of requests when they started.
    pub prefix_queried_tokens: u64,
    /// How many of these were found in the prefix cache.
    pub prefix_hit_tokens: u64,
    /// Preemptions: requests that made room for others, and continued later.
    pub preemptions: u64,
    /// Draft tokens that passes verified.
    pub drafted_tokens: u64,
    /// How many of these were correct.
    pub accepted_tokens: u64,
    /// Tokens of prefixes that were read from the prefix cache's directory.
    pub prefix_restored_tokens: u64,
    /// Blocks of the KV cache.
    pub kv_blocks: u64,
    /// How many of these are free; cached prefixes hold others, which requests can take.
    pub free_kv_blocks: u64,
}

/// Creates an engine without models. `options` may be null. Returns `SISKIN_ERROR_UNSUPPORTED` if the library was built
/// without the feature `engine`.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_new(
    options: *const siskin_engine_options,
    out: *mut *mut siskin_engine,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let options = borrow_or_default(options, |options| Ok(*options))?;
            Ok((EngineState { engine: Engine::new(options)?, models: Mutex::default() }, ()))
        })
    }
}

/// Adds a decoder-only model, and reserves the memory of its KV cache and activations. `options` may be null. `number`
/// receives the index by which other functions refer to the model: 0 for the first model of the engine, then 1, and so on.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_add_model(
    engine: *const siskin_engine,
    model: *const siskin_model,
    options: *const siskin_served_model_options,
    number: *mut u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine`, `model` and `options` are null or live; `number` is null or writable.
    unsafe {
        guard::shared(engine, |state| {
            let number = output("number", number)?;
            let options = borrow_or_default(options, |options| Ok(options.clone()))?.finish();
            let added =
                borrow(model, |model| Ok(state.add(state.engine.add_model(model, &options)?, model)))?;
            number.write(added);
            Ok(())
        })
    }
}

/// Creates a session of model `model` of the engine. Its tokens are batched with those of requests and other sessions, and its
/// keys and values occupy a part of the model's KV cache until it is freed. `options` may be null; memory options and forks are
/// ignored: the context length, the KV cache type and the window are those that the model was added with. Calls that do not
/// append tokens, such as `siskin_session_fork`, wait for the running forward pass. The session keeps the engine alive. Returns
/// `SISKIN_ERROR_OVERLOADED` if the model has as many sessions as `siskin_served_model_options_set_max_sessions` allows.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_session_new(
    engine: *const siskin_engine,
    model: u32,
    options: *const siskin_session_options,
    out: *mut *mut siskin_session,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let options = borrow_or_default(options, |options| Ok(options.clone()))?;
            borrow(engine, |state| {
                let (id, _) = state.model(model)?;
                Ok(SessionState::create(state.engine.session(id, options.session)?, options.max_tokens))
            })
        })
    }
}

/// Creates an encoder that runs on the engine. The texts that it embeds share batches with those of other encoders of the same
/// model and options on this engine, such as those of other threads; predictions take turns with the engine's forward passes.
/// `use_head`, `max_batch_tokens` and `kv_cache_type` are those of `siskin_encoder_new`. The encoder keeps the engine alive.
/// `siskin_encoder_embed` returns `SISKIN_ERROR_OVERLOADED` if too many texts wait, and after `siskin_engine_drain`.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_encoder_new(
    engine: *const siskin_engine,
    model: *const siskin_model,
    use_head: bool,
    max_batch_tokens: usize,
    kv_cache_type: siskin_kv_cache_type,
    out: *mut *mut siskin_encoder,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `model` are null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let options = encoder_options(use_head, max_batch_tokens, kv_cache_type)?;
            borrow(engine, |state| {
                borrow(model, |model| EncoderState::create(state.engine.encoder(model, options)?))
            })
        })
    }
}

/// Returns a model whose forward passes run on the engine's threads, in turn with those of the engine: its sessions, encoders,
/// seq2seq generators and transcribers do not compete with the engine for cores. Both models share their weights, and either
/// can be freed first.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_attach_model(
    engine: *const siskin_engine,
    model: *const siskin_model,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `model` are null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            borrow(engine, |state| borrow(model, |model| Ok((state.engine.attach(model)?, ()))))
        })
    }
}

/// Submits a prompt, which becomes a user message if the model has a chat template, and otherwise a text to continue.
/// Special tokens in it are treated as plain text. `options` may be null. Returns `SISKIN_ERROR_OVERLOADED` if too many
/// requests wait, if the timeout of the request would expire before it starts, and after `siskin_engine_drain`.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_submit(
    engine: *const siskin_engine,
    model: u32,
    text: *const c_char,
    length: usize,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `text` is a string of `length` bytes; `out` is
    // null or writable.
    unsafe {
        submit(engine, model, options, out, &|model, _| {
            let text = self::text("text", text, length)?;
            Ok(match model.file().template().is_some() {
                true => messages(vec![Message::new("user", text)]),
                false => PromptInput::Text(text.to_owned()).into(),
            })
        })
    }
}

/// Submits a text to continue, bypassing the chat template. `parse_special` enables parsing of special tokens in the text:
/// do not set it for untrusted text. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_submit_raw(
    engine: *const siskin_engine,
    model: u32,
    text: *const c_char,
    length: usize,
    parse_special: bool,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `text` is a string of `length` bytes; `out` is
    // null or writable.
    unsafe {
        submit(engine, model, options, out, &|_, _| {
            let text = self::text("text", text, length)?.to_owned();
            Ok(match parse_special {
                true => PromptInput::TextWithSpecialTokens(text).into(),
                false => PromptInput::Text(text).into(),
            })
        })
    }
}

/// Submits a conversation: a JSON array of messages, as for `siskin_session_prompt_messages`. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_submit_messages(
    engine: *const siskin_engine,
    model: u32,
    json: *const c_char,
    length: usize,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `json` is a string of `length` bytes; `out` is
    // null or writable.
    unsafe {
        submit(engine, model, options, out, &|_, _| {
            Ok(messages(Message::list_from_json("messages", text("json", json, length)?)?))
        })
    }
}

/// Submits a conversation in which the model may call tools. `messages` and `chat_options` are those of
/// `siskin_session_prompt_chat`, and `siskin_generation_message` returns the response. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_submit_chat(
    engine: *const siskin_engine,
    model: u32,
    messages: *const c_char,
    messages_length: usize,
    chat_options: *const c_char,
    chat_options_length: usize,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `messages` is a string of `messages_length` bytes;
    // `chat_options` is a string of `chat_options_length` bytes; `out` is null or writable.
    unsafe {
        submit(engine, model, options, out, &|model, request| {
            let messages = text("messages", messages, messages_length)?;
            let chat_options = text("chat_options", chat_options, chat_options_length)?;
            let output = request.structured_output.clone();
            let (tokens, chat) = ChatRequest::new(model, messages, chat_options, output)?;
            Ok(Prompt { input: PromptInput::Tokens(tokens), chat: Some(chat) })
        })
    }
}

/// Submits tokens to continue. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_submit_tokens(
    engine: *const siskin_engine,
    model: u32,
    ids: *const u32,
    count: usize,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `ids` is readable for `count` values; `out` is
    // null or writable.
    unsafe {
        submit(engine, model, options, out, &|_, _| {
            Ok(PromptInput::Tokens(values("ids", ids, count)?.to_vec()).into())
        })
    }
}

/// Reads the counters of a model's requests, as of its last forward pass.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_read_stats(
    engine: *const siskin_engine,
    model: u32,
    out: *mut siskin_engine_stats,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(engine, |state| {
            let result = SizedOutput::new("out", out)?;
            let stats = state.engine.stats(state.model(model)?.0).unwrap_or_default();
            result.write(&siskin_engine_stats {
                struct_size: 0,
                running: stats.running as u64,
                waiting: stats.waiting as u64,
                cached_prefixes: stats.cached_prefixes as u64,
                steps: stats.steps,
                rows: stats.rows,
                prefix_queried_tokens: stats.prefix_queried_tokens,
                prefix_hit_tokens: stats.prefix_hit_tokens,
                preemptions: stats.preemptions,
                drafted_tokens: stats.drafted_tokens,
                accepted_tokens: stats.accepted_tokens,
                prefix_restored_tokens: stats.prefix_restored_tokens,
                kv_blocks: stats.kv_blocks as u64,
                free_kv_blocks: stats.free_kv_blocks as u64,
            });
            Ok(())
        })
    }
}

/// Rejects further requests from now on, waits until the others have ended, and cancels any that are still running after
/// `milliseconds`, such as those whose chunks are not taken. Then cached prefixes are written to the directories of the
/// models' options, if any, for about ten seconds at most.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_drain(
    engine: *const siskin_engine,
    milliseconds: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` is null or live.
    unsafe {
        guard::shared(engine, |state| {
            state.engine.drain(Duration::from_millis(u64::from(milliseconds)));
            Ok(())
        })
    }
}

/// Removes a model: rejects further requests, waits until the others have ended, and cancels any that are still running after
/// `milliseconds`. Its sessions cannot append tokens from then on, and its number is not used again. Cached prefixes are written as by
/// `siskin_engine_drain`. Its memory is freed with the last of its generations and sessions.
///
/// To replace a model without interruption, add the new one, submit requests to it, then remove the old one; the memory budget
/// must have room for both. Otherwise remove the old one first, and free its generations and sessions.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_remove_model(
    engine: *const siskin_engine,
    model: u32,
    milliseconds: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` is null or live.
    unsafe {
        guard::shared(engine, |state| state.remove(model, Duration::from_millis(u64::from(milliseconds))))
    }
}

/// Removes the cached prefixes of all models, and releases unused memory to the system, for low-memory warnings. The memory
/// stays reserved, and requests use it again. Waits for the running forward pass.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_trim(engine: *const siskin_engine) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` is null or live.
    unsafe {
        guard::shared(engine, |state| {
            state.engine.trim();
            Ok(())
        })
    }
}

/// Frees an engine. Null is ignored. Its memory is freed with the last of its generations, which may continue. An engine
/// that another call is using is not freed.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_free(engine: *mut siskin_engine) {
    // SAFETY: pointer contract: `engine` is null or live, and not used afterwards.
    unsafe { guard::free(engine) }
}

fn messages(messages: Vec<Message>) -> Prompt {
    PromptInput::Messages(messages, RenderOptions::default()).into()
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn submit(
    engine: *const siskin_engine,
    model: u32,
    options: *const siskin_request_options,
    out: *mut *mut siskin_generation,
    prompt: &dyn Fn(&Model, &GenerationRequest) -> Outcome<Prompt>,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `engine` and `options` are null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            if !FEATURE.is_there {
                return Err(FEATURE.missing().into());
            }
            let options = match options.is_null() {
                true => Options::default().0,
                false => borrow(options, |options| Ok(options.0.clone()))?,
            };
            let state = borrow(engine, |state| state.submit(model, options, prompt))?;
            let control = state.canceler();
            Ok((state, control))
        })
    }
}

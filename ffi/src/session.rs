//! Sessions: generation of text, token by token.

use std::ffi::c_char;
use std::time::Instant;

use siskin::template::Message;
use siskin::{FinishReason, GenerateOptions, Generation, GenerationStep, Session};

use crate::arguments::{SizedOutput, output, text, values};
use crate::cancel_handle::{RunControl, cancel, cancel_handle_of, siskin_cancel_handle};
use crate::chat_response::ChatResponse;
use crate::error::{Outcome, PendingError, SISKIN_ERROR_STATE, siskin_error};
use crate::guard::{self, Handle, borrow, borrow_or_default};
use crate::model::siskin_model;
use crate::session_options::siskin_session_options;

/// A conversation or text with its KV cache. One call at a time may use it, from any thread; concurrent calls return
/// `SISKIN_ERROR_BUSY`. Freed with `siskin_session_free`.
pub struct siskin_session {
    _opaque: [u8; 0],
}

impl Handle for siskin_session {
    type Inner = SessionState;
    type Control = RunControl;
    const MAGIC: [u8; 8] = *b"SISKsess";
    const NAME: &'static str = "session";
}

/// The session behind a handle.
pub(crate) struct SessionState {
    pub(crate) session: Session,
    pub(crate) saved: Vec<u8>,
    pub(crate) stats: Counts,
    pub(crate) generation: Option<Generation>,
    /// How the text of the current response is split, if it is one of a chat.
    pub(crate) chat: Option<ChatResponse>,
    max_tokens: usize,
    /// The text of the last chunk, NUL-terminated.
    text: String,
    /// The candidates of the last chunk.
    top: Vec<siskin_candidate>,
}

/// Session statistics.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) prompt_tokens: u64,
    pub(crate) prompt_nanoseconds: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) generation_nanoseconds: u64,
}

/// Why generation ended.
pub type siskin_finish_reason = u32;
/// It has not ended.
pub const SISKIN_FINISH_REASON_NONE: siskin_finish_reason = 0;
/// The model generated an end-of-sequence token.
pub const SISKIN_FINISH_REASON_EOS: siskin_finish_reason = 1;
/// The text contained a stop string.
pub const SISKIN_FINISH_REASON_STOP: siskin_finish_reason = 2;
/// The maximum number of tokens was reached.
pub const SISKIN_FINISH_REASON_LENGTH: siskin_finish_reason = 3;
/// The context is full.
pub const SISKIN_FINISH_REASON_CONTEXT: siskin_finish_reason = 4;
/// The timeout of a request to an engine expired.
pub const SISKIN_FINISH_REASON_TIMEOUT: siskin_finish_reason = 5;
/// A request to an engine was canceled.
pub const SISKIN_FINISH_REASON_CANCELED: siskin_finish_reason = 6;

/// A candidate for the next token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_candidate {
    /// The token id.
    pub token: u32,
    /// Its log-probability.
    pub log_probability: f32,
}

/// A chunk of a response: a token, and the text that it completes. Set `struct_size` before the call. Pointers are
/// valid until the next call that modifies the session or generation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_text_chunk {
    /// `sizeof(siskin_text_chunk)`.
    pub struct_size: usize,
    /// The text in whole characters: UTF-8, NUL-terminated. It is empty while a character is incomplete, and while the
    /// text may be the beginning of a stop string.
    pub text: *const c_char,
    /// The length of `text` in bytes, without the NUL.
    pub length: usize,
    /// The bytes of the token, which may be part of a character.
    pub bytes: *const u8,
    /// The number of elements of `bytes`.
    pub byte_count: usize,
    /// The most probable tokens at this position, if `SISKIN_SAMPLER_TOP_LOG_PROBABILITIES` is set.
    pub top: *const siskin_candidate,
    /// The number of elements of `top`.
    pub top_count: usize,
    /// The token id, if `has_token`.
    pub token: u32,
    /// The log-probability of `token`; NaN unless `SISKIN_SAMPLER_LOG_PROBABILITIES` is set.
    pub log_probability: f32,
    /// Whether the chunk has a token. A final chunk that flushes held-back text has none.
    pub has_token: bool,
    /// Whether the response ended before this call. Such a chunk has no text, and no more will follow.
    pub done: bool,
    /// The finish reason, once it is known.
    pub finish_reason: siskin_finish_reason,
}

impl SessionState {
    /// Returns a session and what cancels it, as its handle holds them.
    pub(crate) fn create(session: Session, max_tokens: usize) -> (Self, RunControl) {
        let control = RunControl::new(session.cancel_handle());
        let state = Self {
            session,
            saved: Vec::new(),
            stats: Counts::default(),
            generation: None,
            chat: None,
            max_tokens,
            text: String::new(),
            top: Vec::new(),
        };
        (state, control)
    }

    /// Begins an answer. It replaces the current one.
    pub(crate) fn begin(
        &mut self,
        begin: impl FnOnce(&mut Session, GenerateOptions) -> siskin::Result<Generation>,
    ) -> Outcome {
        if let Some(generation) = self.generation.take() {
            generation.finish(&mut self.session);
        }
        self.chat = None;
        let (position, start) = (self.session.position(), Instant::now());
        let options = GenerateOptions { max_tokens: self.max_tokens, ..GenerateOptions::default() };
        let begun = begin(&mut self.session, options);
        self.stats.prompt_nanoseconds += nanoseconds(start);
        self.generation = Some(begun?);
        self.stats.prompt_tokens += self.session.position().saturating_sub(position) as u64;
        Ok(())
    }

    fn next(&mut self) -> Outcome<siskin_text_chunk> {
        let generation = self.generation.as_mut().ok_or_else(|| {
            PendingError::new(SISKIN_ERROR_STATE, "session", "no prompt; start a response with one first")
        })?;
        let start = Instant::now();
        let step = generation.step(&mut self.session, &mut self.text)?;
        self.stats.generation_nanoseconds += nanoseconds(start);
        let token = match step {
            Some(GenerationStep::Token(token)) => Some(token),
            _ => None,
        };
        self.stats.generated_tokens += u64::from(token.is_some());
        self.top.clear();
        let choices = token.iter().flat_map(|_| self.session.top());
        let choice = |choice: &siskin::sample::SampledToken| siskin_candidate {
            token: choice.id,
            log_probability: choice.log_probability,
        };
        self.top.extend(choices.map(choice));
        if let Some(chat) = &mut self.chat {
            chat.read(&mut self.text, generation.finish_reason().is_some());
        }
        let length = self.text.len();
        self.text.push('\0');
        let bytes = if token.is_some() { generation.bytes() } else { &[] };
        Ok(siskin_text_chunk {
            struct_size: 0,
            text: self.text.as_ptr().cast(),
            length,
            bytes: bytes.as_ptr(),
            byte_count: bytes.len(),
            top: self.top.as_ptr(),
            top_count: self.top.len(),
            token: token.map_or(u32::MAX, |token| token.id),
            log_probability: token.map_or(f32::NAN, |token| token.log_probability),
            has_token: token.is_some(),
            // What a chat held back comes before the end.
            done: step.is_none() && length == 0,
            finish_reason: finish_reason(generation.finish_reason()),
        })
    }

    /// Ends the current answer and keeps its tokens.
    pub(crate) fn finish_answer(&mut self) {
        if let Some(generation) = self.generation.take() {
            generation.finish(&mut self.session);
        }
    }

    /// Drops the current answer.
    pub(crate) fn drop_answer(&mut self) {
        self.generation = None;
    }
}

pub(crate) fn finish_reason(reason: Option<FinishReason>) -> siskin_finish_reason {
    match reason {
        None => SISKIN_FINISH_REASON_NONE,
        Some(FinishReason::Stop) => SISKIN_FINISH_REASON_STOP,
        Some(FinishReason::Length) => SISKIN_FINISH_REASON_LENGTH,
        Some(FinishReason::Context) => SISKIN_FINISH_REASON_CONTEXT,
        Some(_) => SISKIN_FINISH_REASON_EOS,
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Creates a session. `options` may be null. All memory of the session is reserved up front: decoding does not allocate.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_new(
    model: *const siskin_model,
    options: *const siskin_session_options,
    out: *mut *mut siskin_session,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` and `options` are null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let options = borrow_or_default(options, |options| Ok(options.clone()))?;
            let session = borrow(model, |model| Ok(model.session(options.session)?))?;
            Ok(SessionState::create(session, options.max_tokens))
        })
    }
}

/// Creates a session that continues from here, and shares the KV cache of the tokens so far. A response that is not finished
/// continues in the original alone. `siskin_session_options_set_forks` reserves room in the KV cache for forks; calls return
/// `SISKIN_ERROR_MEMORY` when it is full. The original and its forks can be freed in any order.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_fork(
    session: *const siskin_session,
    out: *mut *mut siskin_session,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            borrow(session, |state| Ok(SessionState::create(state.session.fork()?, state.max_tokens)))
        })
    }
}

/// Appends a text, bypassing the chat template, and returns how likely it was: `log_probability` is the sum of the
/// log-probabilities of its tokens, each given all before it, and `count` their number. The first token of an empty session
/// has no probability. To compare several texts, fork or rewind the session. `parse_special` enables parsing of special
/// tokens in the text: do not set it for untrusted text.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_score_text(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
    parse_special: bool,
    log_probability: *mut f64,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `text` is a string of `length` bytes; `log_probability` and
    // `count` are disjoint outputs.
    unsafe {
        guard::exclusive(session, |state, control| {
            control.check()?;
            let (log_probability, count) =
                (output("log_probability", log_probability)?, output("count", count)?);
            let text = self::text("text", text, length)?;
            state.finish_answer();
            let score = state.session.score_text(text, parse_special)?;
            log_probability.write(score.log_probability);
            count.write(score.tokens);
            Ok(())
        })
    }
}

/// Adds a message to the conversation, such as one with the role `system`, before the next prompt.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_add_message(
    session: *mut siskin_session,
    role: *const c_char,
    role_length: usize,
    content: *const c_char,
    content_length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `role` is a text of `role_length` bytes; `content` is a text
    // of `content_length` bytes.
    unsafe {
        guard::exclusive(session, |state, _| {
            let (role, content) =
                (text("role", role, role_length)?, text("content", content, content_length)?);
            state.finish_answer();
            state.session.add_message(role, content);
            Ok(())
        })
    }
}

/// Starts a response to a prompt, which `siskin_session_next` then generates. The prompt becomes a user message if the
/// model has a chat template, the encoder input if it is an encoder-decoder model, and otherwise a text to continue.
/// Tokens already in the KV cache are not recomputed. An unfinished response is kept as is.
///
/// Special tokens in the prompt are treated as plain text. After `SISKIN_ERROR_CANCELED`, the prompt has not been
/// added, except as described for `siskin_cancel_handle_cancel`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `text` is a string of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, control| {
            control.check()?;
            let text = self::text("text", text, length)?;
            state.begin(|session, options| session.begin(text, options))
        })
    }
}

/// Starts a raw completion, bypassing the chat template. `parse_special` enables parsing of special tokens in the text:
/// do not set it for untrusted text. An empty text continues the previous one.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_raw(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
    parse_special: bool,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `text` is a string of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, control| {
            control.check()?;
            let text = self::text("text", text, length)?;
            state.begin(|session, options| {
                session.begin(text, GenerateOptions { raw: true, parse_special, ..options })
            })
        })
    }
}

/// Starts a response to a conversation: a JSON array of messages in OpenAI's form, objects with `role` and `content`, and
/// `tool_calls`, `tool_call_id` and `name` where tools were called. It replaces the session's conversation; their common
/// prefix is not recomputed.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_messages(
    session: *mut siskin_session,
    json: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `json` is a string of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, control| {
            control.check()?;
            let messages = Message::list_from_json("messages", text("json", json, length)?)?;
            state.begin(|session, options| session.converse(&messages, options))
        })
    }
}

/// Appends tokens to the session and starts their completion.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_tokens(
    session: *mut siskin_session,
    ids: *const u32,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `ids` is readable for `count` values.
    unsafe {
        guard::exclusive(session, |state, control| {
            control.check()?;
            let ids = values("ids", ids, count)?;
            state.begin(|session, options| session.begin_tokens(ids, options))
        })
    }
}

/// Generates the next chunk of the response. After the last chunk, `done` is set.
///
/// After `SISKIN_ERROR_CANCELED`, the response is unchanged and the call can be retried.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_next(
    session: *mut siskin_session,
    out: *mut siskin_text_chunk,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::exclusive(session, |state, control| {
            let result = SizedOutput::new("out", out)?;
            control.check()?;
            result.write(&state.next()?);
            Ok(())
        })
    }
}

/// Sets the maximum number of tokens in each response started after this call; 0 means limited only by the context.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_set_max_tokens(
    session: *mut siskin_session,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::exclusive(session, |state, _| {
            state.max_tokens = if tokens == 0 { usize::MAX } else { tokens };
            Ok(())
        })
    }
}

/// Cancels the running call, or the next one: it returns `SISKIN_ERROR_CANCELED` within milliseconds.
/// For generic ONNX models, which run on the tract engine, cancellation takes effect only between texts.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_cancel(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe { cancel(session) }
}

/// Creates a handle that cancels calls on the session and may outlive it.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_cancel_handle(
    session: *const siskin_session,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `out` is null or writable.
    unsafe { cancel_handle_of(session, out) }
}

/// Frees a session. Null is ignored. A session that another call is using is not freed: cancel that call and wait for
/// it first.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_free(session: *mut siskin_session) {
    // SAFETY: pointer contract: `session` is null or live, and not used afterwards.
    unsafe { guard::free(session) }
}

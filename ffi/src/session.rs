//! Sessions: prompts in, text out, token by token.

use std::ffi::c_char;
use std::time::Instant;

use siskin::template::Message;
use siskin::{FinishReason, GenerateOptions, Generation, GenerationStep, Session};

use crate::arguments::{SizedOutput, text, values};
use crate::error::{Outcome, PendingError, SISKIN_ERROR_STATE, siskin_error};
use crate::guard::{self, Handle, looking, looking_or_default};
use crate::model::siskin_model;
use crate::session_options::siskin_session_options;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};

/// One conversation or sequence with its KV cache. One call at a time may use it, from any thread; concurrent calls
/// return `SISKIN_ERROR_BUSY`. Freed with `siskin_session_free`.
pub struct siskin_session {
    _opaque: [u8; 0],
}

impl Handle for siskin_session {
    type Inner = SessionState;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKsess";
    const NAME: &'static str = "session";
}

/// The session behind a handle.
pub(crate) struct SessionState {
    pub(crate) session: Session,
    pub(crate) saved: Vec<u8>,
    pub(crate) stats: Counts,
    pub(crate) generation: Option<Generation>,
    max_tokens: usize,
    /// The text of the last piece, NUL-terminated.
    text: String,
    top: Vec<siskin_choice>,
}

/// Counters of the session.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) prompt_tokens: u64,
    pub(crate) prompt_nanoseconds: u64,
    pub(crate) tokens: u64,
    pub(crate) nanoseconds: u64,
}

/// Generation has not ended.
pub const SISKIN_ENDED_NOT: i32 = 0;
/// The model ended it with an end-of-sequence token.
pub const SISKIN_ENDED_MODEL: i32 = 1;
/// A stop string occurred.
pub const SISKIN_ENDED_STOP: i32 = 2;
/// The maximum number of tokens was reached.
pub const SISKIN_ENDED_LENGTH: i32 = 3;
/// The context is full.
pub const SISKIN_ENDED_CONTEXT: i32 = 4;

/// A candidate token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_choice {
    /// The token id.
    pub token: u32,
    /// Its log-probability.
    pub log_probability: f32,
}

/// A piece of an answer. Set `struct_size` before the call. Pointers are valid until the next call that changes the
/// session.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_piece {
    /// `sizeof(siskin_piece)`.
    pub struct_size: usize,
    /// Text: whole UTF-8 characters, NUL-terminated. Empty while a character is incomplete, or while the text may be
    /// the beginning of a stop string.
    pub text: *const c_char,
    /// Its length in bytes, without the NUL.
    pub length: usize,
    /// The bytes of the token, which may be a partial character.
    pub bytes: *const u8,
    /// The number of bytes.
    pub byte_count: usize,
    /// The most probable tokens at this position, if the sampler reports them.
    pub top: *const siskin_choice,
    /// The number of candidate tokens.
    pub top_count: usize,
    /// The token id, if `has_token`.
    pub token: u32,
    /// Its log-probability; NaN unless the sampler reports it.
    pub log_probability: f32,
    /// Whether a token was sampled. Text that was held back until the end comes without one.
    pub has_token: bool,
    /// Whether the answer had already ended before this call. Then the piece has no text, and no more will come.
    pub done: bool,
    /// The finish reason, once it is known: one of `SISKIN_ENDED_…`.
    pub ended: i32,
}

impl SessionState {
    /// Begins a new answer, which replaces the current one.
    fn begin(
        &mut self,
        begin: impl FnOnce(&mut Session, GenerateOptions) -> siskin::Result<Generation>,
    ) -> Outcome {
        if let Some(generation) = self.generation.take() {
            generation.finish(&mut self.session);
        }
        let (before, start) = (self.session.position(), Instant::now());
        let options = GenerateOptions { max_tokens: self.max_tokens, ..GenerateOptions::default() };
        let begun = begin(&mut self.session, options);
        self.stats.prompt_nanoseconds += nanoseconds(start);
        self.generation = Some(begun?);
        self.stats.prompt_tokens += self.session.position().saturating_sub(before) as u64;
        Ok(())
    }

    fn next(&mut self) -> Outcome<siskin_piece> {
        let generation = self.generation.as_mut().ok_or_else(|| {
            PendingError::new(SISKIN_ERROR_STATE, "session", "writes nothing; give it a prompt first")
        })?;
        let start = Instant::now();
        let step = generation.step(&mut self.session, &mut self.text)?;
        self.stats.nanoseconds += nanoseconds(start);
        let token = match step {
            Some(GenerationStep::Token(token)) => Some(token),
            _ => None,
        };
        self.stats.tokens += u64::from(token.is_some());
        self.top.clear();
        let choices = token.iter().flat_map(|_| self.session.top());
        let choice = |choice: &siskin::sample::SampledToken| siskin_choice {
            token: choice.id,
            log_probability: choice.log_probability,
        };
        self.top.extend(choices.map(choice));
        let length = self.text.len();
        self.text.push('\0');
        let bytes = if token.is_some() { generation.bytes() } else { &[] };
        Ok(siskin_piece {
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
            done: step.is_none(),
            ended: ended(generation.finish_reason()),
        })
    }

    /// Ends the current answer and keeps its tokens.
    pub(crate) fn leave(&mut self) {
        if let Some(generation) = self.generation.take() {
            generation.finish(&mut self.session);
        }
    }

    /// Drops the current answer.
    pub(crate) fn drop_answer(&mut self) {
        self.generation = None;
    }
}

fn ended(ended: Option<FinishReason>) -> i32 {
    match ended {
        None => SISKIN_ENDED_NOT,
        Some(FinishReason::Stop) => SISKIN_ENDED_STOP,
        Some(FinishReason::Length) => SISKIN_ENDED_LENGTH,
        Some(FinishReason::Context) => SISKIN_ENDED_CONTEXT,
        Some(_) => SISKIN_ENDED_MODEL,
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Creates a session. `options` may be null. Its memory is reserved here; decoding does not allocate.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_new(
    model: *const siskin_model,
    options: *const siskin_session_options,
    out: *mut *mut siskin_session,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            let options = looking_or_default(options, |options| Ok(options.clone()))?;
            let session = looking(model, |model| Ok(model.session(options.session)?))?;
            let remote = Remote::new(session.cancel_handle());
            let state = SessionState {
                session,
                saved: Vec::new(),
                stats: Counts::default(),
                generation: None,
                max_tokens: options.max_tokens,
                text: String::new(),
                top: Vec::new(),
            };
            Ok((state, remote))
        })
    }
}

/// Adds a message before the next prompt, such as one of the role `system`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_say(
    session: *mut siskin_session,
    role: *const c_char,
    role_length: usize,
    content: *const c_char,
    content_length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            let (role, content) =
                (text("role", role, role_length)?, text("content", content, content_length)?);
            state.leave();
            state.session.add_message(role, content);
            Ok(())
        })
    }
}

/// Submits a text: as a user message if the model has a chat template, as a plain continuation if it has none, and as
/// the encoder input of an encoder–decoder model; `siskin_session_next` then returns the answer. The prefix that the
/// prompt shares with the KV cache is not computed again. An unfinished answer is left as it is.
///
/// Control tokens spelled out in the text are tokenized as plain text. After `SISKIN_ERROR_CANCELLED`, the text was not
/// added.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let text = self::text("text", text, length)?;
            state.begin(|session, options| session.begin(text, options))
        })
    }
}

/// Continues a raw text, without the chat template. `special` says whether control tokens spelled out in it are parsed:
/// do not enable it for untrusted text. An empty text continues where the last one ended.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_raw(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
    special: bool,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let text = self::text("text", text, length)?;
            state.begin(|session, options| {
                session.begin(text, GenerateOptions { raw: true, special, ..options })
            })
        })
    }
}

/// Answers a conversation: a JSON array of objects with the strings `role` and `content`. It replaces the previous
/// conversation; a shared prefix is not computed again.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_messages(
    session: *mut siskin_session,
    json: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let messages = Message::list_from_json(text("json", json, length)?)?;
            state.begin(|session, options| session.converse(&messages, options))
        })
    }
}

/// Continues from token ids, appended to those of the session.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_tokens(
    session: *mut siskin_session,
    ids: *const u32,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let ids = values("ids", ids, count)?;
            state.begin(|session, options| session.begin_tokens(ids, options))
        })
    }
}

/// Returns the next token of the answer and its text. After the last one, `done` is set on every call.
///
/// After `SISKIN_ERROR_CANCELLED` the answer is unchanged: the call can be made again.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_next(
    session: *mut siskin_session,
    out: *mut siskin_piece,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, remote| {
            let frame = SizedOutput::new("out", out)?;
            remote.check()?;
            frame.fill(&state.next()?);
            Ok(())
        })
    }
}

/// Sets the maximum number of tokens of the answers that begin from now on; 0: as many as the context has room for.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_set_max_tokens(
    session: *mut siskin_session,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            state.max_tokens = if tokens == 0 { usize::MAX } else { tokens };
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stop(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_now(session) }
}

/// Creates a handle that stops the session and may outlive it.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stopper(
    session: *const siskin_session,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_of(session, out) }
}

/// Frees a session. Null is ignored. A session that a call is using is not freed: stop that call and wait for it.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_free(session: *mut siskin_session) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(session) }
}

//! Sessions: prompts in, text out, piece by piece.

use std::ffi::c_char;
use std::time::Instant;

use siskin::template::Message;
use siskin::{Ended, GenerateOptions, Generation, Session, Step};

use crate::arguments::{Frame, text, values};
use crate::error::{Failure, Outcome, SISKIN_ERROR_STATE, siskin_error};
use crate::guard::{self, Handle, looking, looking_or_default};
use crate::model::siskin_model;
use crate::session_options::siskin_session_options;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};

/// One conversation or text. One call at a time may be at work on it, from any thread; others get
/// `SISKIN_ERROR_BUSY`. Freed with `siskin_session_free`.
pub struct siskin_session {
    _opaque: [u8; 0],
}

impl Handle for siskin_session {
    type Inner = State;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKsess";
    const NAME: &'static str = "session";
}

/// The session behind a handle.
pub(crate) struct State {
    pub(crate) session: Session,
    pub(crate) saved: Vec<u8>,
    pub(crate) stats: Counts,
    pub(crate) generation: Option<Generation>,
    max_tokens: usize,
    /// The last piece's text, with a zero behind it.
    text: String,
    top: Vec<siskin_choice>,
}

/// What was done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) prompt_tokens: u64,
    pub(crate) prompt_nanoseconds: u64,
    pub(crate) tokens: u64,
    pub(crate) nanoseconds: u64,
}

/// The answer goes on.
pub const SISKIN_ENDED_NOT: i32 = 0;
/// The model ended it.
pub const SISKIN_ENDED_MODEL: i32 = 1;
/// A stop text came.
pub const SISKIN_ENDED_STOP: i32 = 2;
/// It has as many tokens as were wanted.
pub const SISKIN_ENDED_LENGTH: i32 = 3;
/// The context is full.
pub const SISKIN_ENDED_CONTEXT: i32 = 4;

/// A token that might have been chosen.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_choice {
    /// Its id.
    pub token: u32,
    /// The logarithm of its probability.
    pub log_probability: f32,
}

/// A piece of an answer. Set `struct_size` before the call. Pointers are good until the next call that changes the
/// session.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_piece {
    /// `sizeof(siskin_piece)`.
    pub struct_size: usize,
    /// Text: whole characters of UTF-8, with a zero behind them. Empty while a character is not whole, or what came may
    /// be the beginning of a stop text.
    pub text: *const c_char,
    /// Bytes of that, without the zero.
    pub length: usize,
    /// The bytes of the token, which may be a part of a character.
    pub bytes: *const u8,
    /// How many those are.
    pub byte_count: usize,
    /// The likeliest tokens in its place, where the sampler was asked for them.
    pub top: *const siskin_choice,
    /// How many those are.
    pub top_count: usize,
    /// The token, where `has_token`.
    pub token: u32,
    /// The logarithm of its probability; NaN unless the sampler was asked for it.
    pub log_probability: f32,
    /// Whether a token was chosen. Text that was held back until the end comes without one.
    pub has_token: bool,
    /// Whether the answer was over before this call: there is no text, and no more will come.
    pub done: bool,
    /// Why the answer ended, once that is known: one of `SISKIN_ENDED_…`.
    pub ended: i32,
}

impl State {
    /// Begins an answer in the place of the one that is being written.
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
            Failure::new(SISKIN_ERROR_STATE, "session", "writes nothing; give it a prompt first")
        })?;
        let start = Instant::now();
        let step = generation.step(&mut self.session, &mut self.text)?;
        self.stats.nanoseconds += nanoseconds(start);
        let token = match step {
            Some(Step::Token(token)) => Some(token),
            _ => None,
        };
        self.stats.tokens += u64::from(token.is_some());
        self.top.clear();
        let choices = token.iter().flat_map(|_| self.session.top());
        let choice = |choice: &siskin::sample::Choice| siskin_choice {
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
            ended: ended(generation.ended()),
        })
    }

    /// Leaves the answer that is being written as it is.
    pub(crate) fn leave(&mut self) {
        if let Some(generation) = self.generation.take() {
            generation.finish(&mut self.session);
        }
    }

    /// Forgets the answer that is being written.
    pub(crate) fn drop_answer(&mut self) {
        self.generation = None;
    }
}

fn ended(ended: Option<Ended>) -> i32 {
    match ended {
        None => SISKIN_ENDED_NOT,
        Some(Ended::StopText) => SISKIN_ENDED_STOP,
        Some(Ended::Length) => SISKIN_ENDED_LENGTH,
        Some(Ended::Context) => SISKIN_ENDED_CONTEXT,
        Some(_) => SISKIN_ENDED_MODEL,
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Opens a session. `options` may be null. Its memory is reserved here, and nothing is allocated for a token.
///
/// Threads: any.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_new(
    model: *const siskin_model,
    options: *const siskin_session_options,
    out: *mut *mut siskin_session,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::made(out, || {
            let options = looking_or_default(options, |options| Ok(options.clone()))?;
            let session = looking(model, |model| Ok(model.session(options.session)?))?;
            let remote = Remote::new(session.stop_handle());
            let state = State {
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

/// Adds a message that stands before the next prompt, such as one of the role `system`.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_say(
    session: *mut siskin_session,
    role: *const c_char,
    role_length: usize,
    content: *const c_char,
    content_length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            let (role, content) =
                (text("role", role, role_length)?, text("content", content, content_length)?);
            state.leave();
            state.session.say(role, content);
            Ok(())
        })
    }
}

/// Says a text as the user where the model has a chat template, goes on from it where it has none, and gives it to read
/// where the model makes a text of a text; `siskin_session_next` then gives the answer. What the session shares with
/// what it has read is not read again. An answer that was being written is left as it is.
///
/// Control tokens that the text spells are text. After `SISKIN_ERROR_CANCELLED`, the text was not said.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let text = self::text("text", text, length)?;
            state.begin(|session, options| session.begin(text, options))
        })
    }
}

/// Goes on from a text as it is, without the chat template. `special` says whether control tokens that it spells are
/// such: not for text from strangers. An empty text goes on where the last one ended.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_raw(
    session: *mut siskin_session,
    text: *const c_char,
    length: usize,
    special: bool,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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

/// Answers a conversation: a JSON list of objects with `role` and `content`, which are texts. It takes the place of
/// what was said before; what both have in common is not read again.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_messages(
    session: *mut siskin_session,
    json: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let messages = Message::list_from_json(text("json", json, length)?)?;
            state.begin(|session, options| session.converse(&messages, options))
        })
    }
}

/// Goes on from tokens behind those that the session has.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_prompt_tokens(
    session: *mut siskin_session,
    ids: *const u32,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, remote| {
            remote.check()?;
            let ids = values("ids", ids, count)?;
            state.begin(|session, options| session.begin_tokens(ids, options))
        })
    }
}

/// The next token of the answer and the text that it brought. After the last one, `done` is set, again and again.
///
/// After `SISKIN_ERROR_CANCELLED` the answer is where it was: the call can be made again.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_next(
    session: *mut siskin_session,
    out: *mut siskin_piece,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, remote| {
            let frame = Frame::new("out", out)?;
            remote.check()?;
            frame.fill(&state.next()?);
            Ok(())
        })
    }
}

/// The most tokens of the answers that begin from now on; 0: as many as there is room for.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_set_max_tokens(
    session: *mut siskin_session,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            state.max_tokens = if tokens == 0 { usize::MAX } else { tokens };
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the session is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stop(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_now(session) }
}

/// Makes the means to stop the session, which may outlive it.
///
/// Threads: any, at any time while the session is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stopper(
    session: *const siskin_session,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_of(session, out) }
}

/// Frees a session. Null is nothing. One that a call is at work on stays as it is: stop that, and wait for it.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_free(session: *mut siskin_session) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(session) }
}

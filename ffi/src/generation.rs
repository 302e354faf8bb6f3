//! Generations: the responses to requests of an engine.

use std::ffi::c_char;

use siskin::Model;
use siskin::serving::{GenerationEvent, GenerationStream, RequestCanceler, StreamEnd, StreamUsage};

use crate::arguments::{SizedOutput, output};
use crate::cancel_handle::{Canceler, siskin_cancel_handle};
use crate::chat_response::ChatResponse;
use crate::error::{Outcome, siskin_error};
use crate::guard::{self, Handle};
use crate::session::{
    SISKIN_FINISH_REASON_CANCELED, SISKIN_FINISH_REASON_NONE, SISKIN_FINISH_REASON_TIMEOUT, finish_reason,
    siskin_candidate, siskin_finish_reason, siskin_text_chunk,
};

/// The response to a request of an engine. One call at a time may use it, from any thread. Freed with
/// `siskin_generation_free`, which cancels it unless it has ended.
pub struct siskin_generation {
    _opaque: [u8; 0],
}

impl Handle for siskin_generation {
    type Inner = GenerationState;
    type Control = RequestCanceler;
    const MAGIC: [u8; 8] = *b"SISKgene";
    const NAME: &'static str = "generation";
}

/// The generation behind a handle.
pub(crate) struct GenerationState {
    stream: GenerationStream,
    model: Model,
    visible_tokens: Vec<u32>,
    /// How the text is split, if it is that of a chat.
    chat: Option<ChatResponse>,
    usage: StreamUsage,
    finish_reason: siskin_finish_reason,
    failure: Option<siskin::Error>,
    /// The text of the last chunk, NUL-terminated.
    text: String,
    /// The bytes of its token.
    bytes: Vec<u8>,
    /// Its candidates.
    top: Vec<siskin_candidate>,
}

/// The tokens of a request. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_generation_usage {
    /// `sizeof(siskin_generation_usage)`.
    pub struct_size: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// How many of these were found in the prefix cache; 0 before the end.
    pub cached_tokens: u64,
    /// Generated tokens that `siskin_generation_next` has returned; at the end, all.
    pub generated_tokens: u64,
}

impl GenerationState {
    pub(crate) fn new(
        stream: GenerationStream,
        model: Model,
        visible_tokens: Vec<u32>,
        chat: Option<ChatResponse>,
    ) -> Self {
        let usage = StreamUsage { prompt_tokens: stream.prompt_tokens(), ..StreamUsage::default() };
        Self {
            stream,
            model,
            visible_tokens,
            chat,
            usage,
            finish_reason: SISKIN_FINISH_REASON_NONE,
            failure: None,
            text: String::new(),
            bytes: Vec::new(),
            top: Vec::new(),
        }
    }

    /// Returns what cancels the request.
    pub(crate) fn canceler(&self) -> RequestCanceler {
        self.stream.handle().canceler()
    }

    fn next(&mut self) -> Outcome<siskin_text_chunk> {
        self.text.clear();
        self.bytes.clear();
        self.top.clear();
        let mut token = None;
        match self.stream.next_event() {
            Some(GenerationEvent::Token { token: sampled, text, top, .. }) => {
                self.usage.generated_tokens += 1;
                let is_visible = self.visible_tokens.contains(&sampled.id);
                if let Ok(tokenizer) = self.model.tokenizer() {
                    tokenizer.piece_into(sampled.id, is_visible, &mut self.bytes)?;
                }
                self.text = text;
                self.top.extend(top.iter().map(|choice| siskin_candidate {
                    token: choice.id,
                    log_probability: choice.log_probability,
                }));
                token = Some(sampled);
            }
            Some(GenerationEvent::End { text, end, usage, .. }) => {
                (self.text, self.usage) = (text, usage);
                self.end(end);
            }
            // Not in C: sessions score texts.
            Some(GenerationEvent::Prompt { .. }) | None => {}
        }
        let has_ended = self.finish_reason != SISKIN_FINISH_REASON_NONE || self.failure.is_some();
        if let Some(chat) = &mut self.chat {
            chat.read(&mut self.text, has_ended);
        }
        // Text that was held back comes before the error.
        if let Some(failure) = self.failure.as_ref().filter(|_| self.text.is_empty()) {
            return Err(failure.clone().into());
        }
        let length = self.text.len();
        self.text.push('\0');
        Ok(siskin_text_chunk {
            struct_size: 0,
            text: self.text.as_ptr().cast(),
            length,
            bytes: self.bytes.as_ptr(),
            byte_count: self.bytes.len(),
            top: self.top.as_ptr(),
            top_count: self.top.len(),
            token: token.map_or(u32::MAX, |token| token.id),
            log_probability: token.map_or(f32::NAN, |token| token.log_probability),
            has_token: token.is_some(),
            done: token.is_none() && length == 0,
            finish_reason: self.finish_reason,
        })
    }

    fn end(&mut self, end: StreamEnd) {
        match end {
            StreamEnd::Finished(reason) => self.finish_reason = finish_reason(Some(reason)),
            StreamEnd::DeadlineExceeded => self.finish_reason = SISKIN_FINISH_REASON_TIMEOUT,
            StreamEnd::Canceled | StreamEnd::ReaderTooSlow => {
                self.finish_reason = SISKIN_FINISH_REASON_CANCELED;
            }
            StreamEnd::Failed(error) => self.failure = Some(error),
        }
    }
}

/// Waits for the next chunk of the response. Unless the engine has a thread of its own, the calling thread runs forward
/// passes for all requests meanwhile. After the last chunk, `done` is set. Chunks are kept until they are taken; while 256
/// are not, the request is paused. After an error other than `SISKIN_ERROR_BUSY` the response has failed, and further calls
/// return the error again.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_next(
    generation: *mut siskin_generation,
    out: *mut siskin_text_chunk,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `generation` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::exclusive(generation, |state, _| {
            let result = SizedOutput::new("out", out)?;
            result.write(&state.next()?);
            Ok(())
        })
    }
}

/// Returns the assistant's message as far as it was generated, after `siskin_engine_submit_chat`, as
/// `siskin_session_message` does. The text is valid until the next call that modifies the generation.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_message(
    generation: *mut siskin_generation,
    message: *mut *const c_char,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `generation` is null or live; `message` and `length` are disjoint outputs.
    unsafe {
        guard::exclusive(generation, |state, _| {
            let (message, length) = (output("message", message)?, output("length", length)?);
            let json = ChatResponse::json_of(&mut state.chat, "siskin_engine_submit_chat")?;
            length.write(json.len() - 1);
            message.write(json.as_ptr().cast());
            Ok(())
        })
    }
}

/// Reads the number of tokens.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_read_usage(
    generation: *const siskin_generation,
    out: *mut siskin_generation_usage,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `generation` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(generation, |state| {
            let StreamUsage { prompt_tokens, cached_tokens, generated_tokens } = state.usage;
            SizedOutput::new("out", out)?.write(&siskin_generation_usage {
                struct_size: 0,
                prompt_tokens: prompt_tokens as u64,
                cached_tokens: cached_tokens as u64,
                generated_tokens: generated_tokens as u64,
            });
            Ok(())
        })
    }
}

/// Cancels the request for good, without affecting others. Chunks already generated are returned first, then the last, with
/// `SISKIN_FINISH_REASON_CANCELED`: within milliseconds, except to a thread that runs a forward pass for other requests,
/// which returns after the pass.
///
/// Threads: any, at any time during the generation's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_cancel(generation: *const siskin_generation) -> *mut siskin_error {
    // SAFETY: pointer contract: `generation` is null or live.
    unsafe {
        guard::control(generation, |canceler| {
            // A copy: the host may free the generation as soon as it sees the cancellation.
            canceler.clone().cancel();
            Ok(())
        })
    }
}

/// Creates a handle that cancels the request and may outlive the generation. `siskin_cancel_handle_reset` has no effect
/// on it.
///
/// Threads: any, at any time during the generation's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_cancel_handle(
    generation: *const siskin_generation,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `generation` is null or live; `out` is null or writable.
    unsafe { Canceler::of(generation, out, |canceler| Canceler::Request(canceler.clone())) }
}

/// Frees a generation, and cancels its request unless that has ended. Null is ignored. A generation that another call is
/// using is not freed: cancel it and wait for that call first.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_generation_free(generation: *mut siskin_generation) {
    // SAFETY: pointer contract: `generation` is null or live, and not used afterwards.
    unsafe { guard::free(generation) }
}

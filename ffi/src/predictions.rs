//! Results of encoders.

use std::ffi::c_char;

/// One result of an encoder: a class, a score, a labeled span, an answer or a token. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_found {
    /// `sizeof(siskin_found)`.
    pub struct_size: usize,
    /// The name of the class or label, the text of the answer or of the token; UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// Its length in bytes.
    pub length: usize,
    /// The byte offset in the text where the span begins.
    pub start: usize,
    /// The byte offset of its end, exclusive.
    pub end: usize,
    /// Its probability; the score of a pair; the predicted value of a regression model.
    pub score: f32,
    /// The token id; `UINT32_MAX` if the result is not a token.
    pub token: u32,
}

/// The same with an owned text.
#[derive(Default)]
pub(crate) struct OwnedMatch {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) span: (usize, usize),
    pub(crate) token: Option<u32>,
}

impl OwnedMatch {
    pub(crate) fn view(&self) -> siskin_found {
        siskin_found {
            struct_size: 0,
            text: self.text.as_ptr().cast(),
            length: self.text.len(),
            start: self.span.0,
            end: self.span.1,
            score: self.score,
            token: self.token.unwrap_or(u32::MAX),
        }
    }
}

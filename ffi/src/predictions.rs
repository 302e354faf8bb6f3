//! Predictions of encoders.

use std::ffi::c_char;

/// A prediction of an encoder: a class, a relevance score, a labeled span, an answer or a token. Set `struct_size`
/// before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_prediction {
    /// `sizeof(siskin_prediction)`.
    pub struct_size: usize,
    /// The name of the class or label, or the text of the answer or token: UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// The length of `text` in bytes.
    pub length: usize,
    /// The byte offset of the start of the span in the input.
    pub start: usize,
    /// The byte offset of the end of the span in the input, exclusive.
    pub end: usize,
    /// The probability, the relevance score, or the value that a regression model predicts.
    pub score: f32,
    /// The token id; `UINT32_MAX` unless the prediction is a token.
    pub token: u32,
}

/// A prediction that owns its text.
#[derive(Default)]
pub(crate) struct OwnedPrediction {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) span: (usize, usize),
    pub(crate) token: Option<u32>,
}

impl OwnedPrediction {
    pub(crate) fn view(&self) -> siskin_prediction {
        siskin_prediction {
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

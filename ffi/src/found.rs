//! What encoders find.

use std::ffi::c_char;

/// Something that an encoder found: a class, a score, a run with a label, an answer or a token. Set `struct_size` before
/// the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_found {
    /// `sizeof(siskin_found)`.
    pub struct_size: usize,
    /// The name of the class or label, the words of the answer, or the text of the token; UTF-8, without a zero.
    pub text: *const c_char,
    /// Bytes of that.
    pub length: usize,
    /// The first byte of the text that it stands for.
    pub start: usize,
    /// The first byte behind that.
    pub end: usize,
    /// Its probability; of pairs, their score; of the classes of a model of numbers (`regression`), the number.
    pub score: f32,
    /// The token; all ones where it is none.
    pub token: u32,
}

/// The same with text of its own.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) span: (usize, usize),
    pub(crate) token: Option<u32>,
}

impl Found {
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

//! Structured output: what a response must be.

use std::ffi::c_char;

use siskin::constraint::StructuredOutput;

use crate::arguments::text;
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard;
use crate::session::siskin_session;

/// What a response must be.
pub type siskin_structured_output = u32;
/// Any text.
pub const SISKIN_STRUCTURED_OUTPUT_NONE: siskin_structured_output = 0;
/// One of some texts, given as a JSON list.
pub const SISKIN_STRUCTURED_OUTPUT_CHOICE: siskin_structured_output = 1;
/// A JSON object.
pub const SISKIN_STRUCTURED_OUTPUT_JSON_OBJECT: siskin_structured_output = 2;
/// JSON that is valid under a JSON Schema.
pub const SISKIN_STRUCTURED_OUTPUT_JSON_SCHEMA: siskin_structured_output = 3;
/// A match of a regular expression.
pub const SISKIN_STRUCTURED_OUTPUT_REGEX: siskin_structured_output = 4;
/// A sentence of a grammar in Lark.
pub const SISKIN_STRUCTURED_OUTPUT_LARK: siskin_structured_output = 5;
/// A sentence of a grammar in GBNF, the format of llama.cpp.
pub const SISKIN_STRUCTURED_OUTPUT_GBNF: siskin_structured_output = 6;

/// Converts a kind of structured output and its definition.
pub(crate) fn structured_output(
    kind: siskin_structured_output,
    text: &str,
) -> Outcome<Option<StructuredOutput>> {
    let text = text.to_owned();
    Ok(Some(match kind {
        SISKIN_STRUCTURED_OUTPUT_NONE => return Ok(None),
        SISKIN_STRUCTURED_OUTPUT_CHOICE => StructuredOutput::choices(&text)?,
        SISKIN_STRUCTURED_OUTPUT_JSON_OBJECT => StructuredOutput::JsonObject,
        SISKIN_STRUCTURED_OUTPUT_JSON_SCHEMA => StructuredOutput::JsonSchema(text),
        SISKIN_STRUCTURED_OUTPUT_REGEX => StructuredOutput::Regex(text),
        SISKIN_STRUCTURED_OUTPUT_LARK => StructuredOutput::Lark(text),
        SISKIN_STRUCTURED_OUTPUT_GBNF => StructuredOutput::Gbnf(text),
        other => {
            return Err(PendingError::argument("kind", format!("{other} is not a siskin_structured_output")));
        }
    }))
}

/// Sets what responses started after this call must be. `definition` is the list of texts, schema, regular expression or
/// grammar; it is ignored for `SISKIN_STRUCTURED_OUTPUT_NONE` and `SISKIN_STRUCTURED_OUTPUT_JSON_OBJECT`. A response that
/// is complete ends with `SISKIN_FINISH_REASON_EOS`.
///
/// All kinds but `SISKIN_STRUCTURED_OUTPUT_CHOICE` return `SISKIN_ERROR_UNSUPPORTED` if the library was built without
/// grammars. A schema or grammar that is invalid is `SISKIN_ERROR_ARGUMENT`, and one that cannot be enforced
/// `SISKIN_ERROR_UNSUPPORTED`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_set_structured_output(
    session: *mut siskin_session,
    kind: siskin_structured_output,
    definition: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `definition` is a text of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, _| {
            let output = structured_output(kind, text("definition", definition, length)?)?;
            Ok(state.session.set_structured_output(output.as_ref())?)
        })
    }
}

//! Buffers that grow with the text: an error where memory is short, instead of the end of the process.

use crate::{Error, ErrorKind, Result};

/// Appends `value`.
#[inline]
pub(super) fn push<T>(buffer: &mut Vec<T>, value: T) -> Result<()> {
    reserve(buffer, 1)?;
    buffer.push(value);
    Ok(())
}

/// Makes room for `more` values, so that appending them takes no memory.
#[inline]
pub(super) fn reserve<T>(buffer: &mut Vec<T>, more: usize) -> Result<()> {
    buffer.try_reserve(more).map_err(|_| short())
}

/// What is said where memory is short.
#[cold]
pub(super) fn short() -> Error {
    Error::new(
        ErrorKind::Memory,
        "text",
        "there is not enough memory for a text of this length; split it into parts",
    )
}

//! Fallible allocation of buffers that grow with the text: an error instead of an abort if memory is exhausted.

use siskin_format::{Error, ErrorKind, Result};

/// Appends `value`.
#[inline]
pub(super) fn push<T>(buffer: &mut Vec<T>, value: T) -> Result<()> {
    reserve(buffer, 1)?;
    buffer.push(value);
    Ok(())
}

/// Reserves memory for `more` values, so that appending them does not allocate.
#[inline]
pub(super) fn reserve<T>(buffer: &mut Vec<T>, more: usize) -> Result<()> {
    buffer.try_reserve(more).map_err(|_| short())
}

/// Returns the error for failed allocations.
#[cold]
pub(super) fn short() -> Error {
    Error::new(ErrorKind::Memory, "text", "cannot allocate memory for a text of this length; split it")
}

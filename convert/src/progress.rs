//! Progress reports of long operations.

/// Receives progress. Calls come from one thread at a time.
pub trait ProgressSink: Sync {
    /// Reports the number of bytes that will be written. Called once.
    fn total(&self, bytes: u64);

    /// Reports that `bytes` more bytes were written.
    fn advance(&self, bytes: u64);

    /// Reports the current activity as text.
    fn message(&self, text: &str);

    /// Reports a note for the user, such as that a packed model could not be cached.
    fn note(&self, text: &str) {
        self.message(text);
    }

    /// Returns true to stop with [`ErrorKind::Canceled`](siskin_format::ErrorKind::Canceled).
    fn canceled(&self) -> bool {
        false
    }
}

/// Discards all progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl ProgressSink for NoProgress {
    fn total(&self, _bytes: u64) {}

    fn advance(&self, _bytes: u64) {}

    fn message(&self, _text: &str) {}
}

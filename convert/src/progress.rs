//! How long work tells how far it is.

/// Is told how far the work is. Calls come from one thread at a time.
pub trait Progress: Sync {
    /// The number of bytes that the work will write. Called once.
    fn total(&self, bytes: u64);

    /// So many more bytes are written.
    fn advance(&self, bytes: u64);

    /// What is being done, in words.
    fn message(&self, text: &str);

    /// What the user should know, such as that a packed model could not be kept.
    fn note(&self, text: &str) {
        self.message(text);
    }

    /// Whether the work should stop with [`ErrorKind::Cancelled`](siskin::ErrorKind::Cancelled).
    fn cancelled(&self) -> bool {
        false
    }
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn total(&self, _bytes: u64) {}

    fn advance(&self, _bytes: u64) {}

    fn message(&self, _text: &str) {}
}

//! Messages about the operation of the server.

use std::fmt;
use std::sync::Arc;

/// Takes messages about the operation of the server, such as why a new file of aliases is not used.
#[derive(Clone)]
pub struct OperationLog(Arc<dyn Fn(&str) + Send + Sync>);

impl OperationLog {
    /// Creates a log that calls `write` with each message, which is one line. It must not block for long.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    pub(crate) fn write(&self, message: &str) {
        (self.0)(message);
    }
}

impl fmt::Debug for OperationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationLog").finish_non_exhaustive()
    }
}

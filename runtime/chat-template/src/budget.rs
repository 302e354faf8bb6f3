//! Resource limits of a rendering, and its failures.

/// The remaining work and memory of one rendering.
///
/// Memory is counted when it is allocated and never returned, so that the counted amount is an upper bound of the
/// memory in use.
#[derive(Debug)]
pub(super) struct Budget {
    work: u64,
    memory: u64,
}

/// The message of a failed rendering.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RenderError(pub(super) Box<str>);

/// The result of evaluating a part of a template.
pub(super) type Eval<T> = std::result::Result<T, RenderError>;

impl RenderError {
    /// Creates a failure from its message.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into().into_boxed_str())
    }
}

/// Returns a failure with a formatted message.
macro_rules! fail {
    ($($words:tt)*) => { return Err($crate::budget::RenderError::new(format!($($words)*))) };
}
pub(super) use fail;

impl Budget {
    /// Creates a budget of the given steps and bytes.
    pub(super) fn new(work: u64, memory: u64) -> Self {
        Self { work, memory }
    }

    /// Consumes `steps` of work.
    pub(super) fn spend(&mut self, steps: usize) -> Eval<()> {
        match self.work.checked_sub(steps as u64) {
            Some(left) => self.work = left,
            None => fail!("too much work; the template may never end"),
        }
        Ok(())
    }

    /// Consumes the work of scanning `bytes` of text.
    pub(super) fn scan(&mut self, bytes: usize) -> Eval<()> {
        self.spend(1 + bytes / 64)
    }

    /// Consumes `bytes` of memory; called before they are allocated.
    pub(super) fn allocate(&mut self, bytes: usize) -> Eval<()> {
        match self.memory.checked_sub(bytes as u64) {
            Some(left) => self.memory = left,
            None => fail!("builds more text than is allowed"),
        }
        self.scan(bytes)
    }
}

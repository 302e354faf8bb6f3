//! What a template may use up, and how it fails.

/// Work and memory that are left for one rendering.
///
/// Memory is counted as it is taken and never given back, so what is counted is at least what is held.
#[derive(Debug)]
pub(super) struct Budget {
    work: u64,
    memory: u64,
}

/// Why a rendering failed, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) Box<str>);

/// A result of a part of the template.
pub(super) type Eval<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with its words.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into().into_boxed_str())
    }
}

/// Returns a failure with formatted words.
macro_rules! fail {
    ($($words:tt)*) => { return Err($crate::template::budget::Failure::new(format!($($words)*))) };
}
pub(super) use fail;

impl Budget {
    /// A budget of so many steps and bytes.
    pub(super) fn new(work: u64, memory: u64) -> Self {
        Self { work, memory }
    }

    /// Takes `steps` of work.
    pub(super) fn spend(&mut self, steps: usize) -> Eval<()> {
        match self.work.checked_sub(steps as u64) {
            Some(left) => self.work = left,
            None => fail!("does too much work; it may never end"),
        }
        Ok(())
    }

    /// Takes the work of looking at `bytes` of text.
    pub(super) fn scan(&mut self, bytes: usize) -> Eval<()> {
        self.spend(1 + bytes / 64)
    }

    /// Takes `bytes` of memory, before they are allocated.
    pub(super) fn allocate(&mut self, bytes: usize) -> Eval<()> {
        match self.memory.checked_sub(bytes as u64) {
            Some(left) => self.memory = left,
            None => fail!("builds more text than is allowed"),
        }
        self.scan(bytes)
    }
}

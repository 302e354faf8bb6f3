//! A limit of the memory that the models of an engine reserve together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use siskin_format::{Error, ErrorKind, Result};

/// Counts the bytes that contexts reserve, and keeps them within a limit.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    reserved: AtomicUsize,
}

/// A part of a [`MemoryBudget`], which is free again when it is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, reserved: AtomicUsize::new(0) }
    }

    /// Returns how many bytes are reserved.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Acquire)
    }

    /// Returns how many bytes are not reserved.
    pub fn free(&self) -> usize {
        self.limit.saturating_sub(self.reserved())
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if there are fewer left.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<MemoryReservation> {
        let limit = self.limit;
        let adds = |reserved: usize| reserved.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, adds) {
            Ok(_) => Ok(MemoryReservation { budget: Arc::clone(self), bytes }),
            Err(reserved) => {
                let message = format!(
                    "the model needs {bytes} bytes, but models have reserved {reserved} of {limit}; remove one, or use a \
                     shorter context"
                );
                Err(Error::new(ErrorKind::Memory, "budget", message))
            }
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_stay_within_the_limit() {
        let budget = Arc::new(MemoryBudget::new(100));
        let first = budget.reserve(60).unwrap();
        let error = budget.reserve(41).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Memory, "budget"));
        assert!(error.message().contains("41 bytes, but models have reserved 60 of 100"), "{error}");
        let second = budget.reserve(40).unwrap();
        assert_eq!((budget.reserved(), budget.free()), (100, 0));
        drop(first);
        assert_eq!((budget.reserved(), budget.free()), (40, 60));
        assert!(budget.reserve(usize::MAX).is_err());
        drop(second);
        assert_eq!(budget.reserved(), 0);
    }
}

//! Locks.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex, also after a panic of the thread that held it: every call leaves runners usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

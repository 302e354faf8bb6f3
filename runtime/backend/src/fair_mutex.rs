//! A mutex that a thread cannot take again before one that waits for it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex for values that a thread locks again and again, such as for one pass after the other.
///
/// The thread that is next holds `next` while it waits, so that a thread that unlocks and locks again comes after it; other
/// waiting threads are in the order of the system's mutex. A panic does not poison it: callers must tolerate a half-updated
/// value.
#[derive(Debug, Default)]
pub struct FairMutex<T> {
    next: Mutex<()>,
    value: Mutex<T>,
}

impl<T> FairMutex<T> {
    /// Creates an unlocked mutex.
    pub fn new(value: T) -> Self {
        Self { next: Mutex::new(()), value: Mutex::new(value) }
    }

    /// Waits for the other threads, and locks the mutex.
    // Not inlined, for size: the contents are used for much longer than this takes.
    #[inline(never)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if no thread holds it or waits for it.
    #[inline(never)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let _next = try_lock(&self.next)?;
        try_lock(&self.value)
    }
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::FairMutex;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_waiting_thread_is_next() {
        let mutex = Arc::new(FairMutex::new(0));
        let greedy = Arc::clone(&mutex);
        let worker = thread::spawn(move || {
            let mut turns = 0;
            while *greedy.lock() == 0 {
                let guard = greedy.lock();
                // The other thread waits meanwhile.
                thread::sleep(Duration::from_millis(5));
                drop(guard);
                turns += 1;
            }
            turns
        });
        thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        *mutex.lock() = 1;
        let waited = start.elapsed();
        assert!(waited < Duration::from_millis(200), "{waited:?}");
        assert!(worker.join().unwrap() < 1000);
    }

    #[test]
    fn a_panic_does_not_poison_it() {
        let mutex = Arc::new(FairMutex::new(1));
        let broken = Arc::clone(&mutex);
        let outcome = thread::spawn(move || {
            let _guard = broken.lock();
            panic!("while it is locked");
        })
        .join();
        assert!(outcome.is_err());
        assert_eq!(*mutex.lock(), 1);
        assert!(mutex.try_lock().is_some());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
    }
}

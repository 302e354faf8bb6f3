//! Guards of every function of the interface: checks the handle, enforces exclusive access, catches panics.
//!
//! A handle is a block of memory that begins with a magic word. `const` functions may access it concurrently; all
//! others need exclusive access, and calls meanwhile return [`SISKIN_ERROR_BUSY`]. A panic during a mutable call
//! poisons the handle: it can only be freed.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::error::{
    Outcome, PendingError, SISKIN_ERROR_BUSY, SISKIN_ERROR_HANDLE, SISKIN_ERROR_NULL, SISKIN_ERROR_POISONED,
    siskin_error, thrown, told,
};

/// An opaque type of the header, and its contents.
pub(crate) trait Handle {
    /// The state that its functions work on.
    type Inner: Send + Sync;
    /// The state that any thread may use at any time, including during a call.
    type Remote: Send + Sync;
    /// The first word of its memory.
    const MAGIC: [u8; 8];
    /// Its name in errors.
    const NAME: &'static str;
}

/// The memory of a handle.
#[repr(C)]
struct Block<T: Handle> {
    magic: AtomicU64,
    /// The number of shared users; −1: one exclusive user.
    users: AtomicI32,
    poisoned: AtomicBool,
    remote: T::Remote,
    inner: UnsafeCell<T::Inner>,
}

/// A lock on a handle, released on drop.
struct Turn<'a, T: Handle> {
    block: &'a Block<T>,
    alone: bool,
}

impl<'a, T: Handle> Turn<'a, T> {
    fn take(block: &'a Block<T>, alone: bool) -> Outcome<Self> {
        let enter = |users: i32| match (users, alone) {
            (0, true) => Some(-1),
            (0.., false) => users.checked_add(1),
            _ => None,
        };
        if block.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            let message = "another call is at work on it; wait for that, or stop it first";
            return Err(PendingError::new(SISKIN_ERROR_BUSY, T::NAME, message));
        }
        let turn = Self { block, alone };
        if block.poisoned.load(Ordering::Relaxed) {
            let message = "an earlier call failed inside; free it and make another";
            return Err(PendingError::new(SISKIN_ERROR_POISONED, T::NAME, message));
        }
        Ok(turn)
    }
}

impl<T: Handle> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if self.alone && std::thread::panicking() {
            self.block.poisoned.store(true, Ordering::Relaxed);
        }
        if self.alone {
            self.block.users.store(0, Ordering::Release);
        } else {
            self.block.users.fetch_sub(1, Ordering::Release);
        }
    }
}

thread_local! {
    /// Whether this thread is inside a callback of the host.
    static CALLING_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls a callback of the host. Until it returns, this thread may not call the library.
pub(crate) fn calling_back<R>(call: impl FnOnce() -> R) -> R {
    let before = CALLING_BACK.replace(true);
    let result = call();
    CALLING_BACK.set(before);
    result
}

/// Runs `work` and converts failures and panics to an error object.
pub(crate) fn guarded(work: impl FnOnce() -> Outcome) -> *mut siskin_error {
    let mut work = Some(work);
    // There are more than a hundred functions: the panic handler is compiled once, not per function.
    run_guarded(&mut || work.take().map_or(Ok(()), |work| work()))
}

fn run_guarded(work: &mut dyn FnMut() -> Outcome) -> *mut siskin_error {
    if CALLING_BACK.get() {
        let message = "a callback may not call the library; return from it first";
        return told(PendingError::new(SISKIN_ERROR_BUSY, "callback", message));
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(failure)) => told(failure),
        Err(payload) => told(thrown(&*payload)),
    }
}

/// Returns the memory behind a handle.
///
/// # Safety
/// The pointer is null, or points to a handle of the library that was not freed.
unsafe fn block<'a, T: Handle>(handle: *const T) -> Outcome<&'a Block<T>> {
    let block = handle.cast::<Block<T>>();
    if block.is_null() {
        return Err(PendingError::new(SISKIN_ERROR_NULL, T::NAME, "is null"));
    }
    // SAFETY: every handle of the library begins with a magic word; a misaligned address is not a handle.
    let right = block.is_aligned()
        && unsafe { (*block.cast::<AtomicU64>()).load(Ordering::Relaxed) } == u64::from_le_bytes(T::MAGIC);
    if !right {
        return Err(PendingError::new(
            SISKIN_ERROR_HANDLE,
            T::NAME,
            "is a handle of another kind, or was freed",
        ));
    }
    // SAFETY: the magic word identifies the block type, and the caller guarantees that it is alive.
    Ok(unsafe { &*block })
}

/// Runs `work` with exclusive access to a handle.
///
/// # Safety
/// As for every function of the header: a handle is null or one of the library's that was not freed.
pub(crate) unsafe fn alone<T: Handle>(
    handle: *mut T,
    work: impl FnOnce(&mut T::Inner, &T::Remote) -> Outcome,
) -> *mut siskin_error {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let block = unsafe { block(handle.cast_const()) }?;
        let _turn = Turn::take(block, true)?;
        // SAFETY: access is exclusive while the `Turn` lives.
        work(unsafe { &mut *block.inner.get() }, &block.remote)
    })
}

/// Runs `work` with shared access to a handle.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn shared<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    guarded(|| unsafe { looking(handle, work) })
}

/// The same inside another guarded function.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn looking<T: Handle, R>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome<R>,
) -> Outcome<R> {
    // SAFETY: guaranteed by the caller.
    let block = unsafe { block(handle) }?;
    let _turn = Turn::take(block, false)?;
    // SAFETY: the contents are not modified while the `Turn` lives; concurrent `const` functions only read.
    work(unsafe { &*block.inner.get() })
}

/// Runs `work` on the options behind a pointer, or returns the default of `R` if it is null.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn looking_or_default<T: Handle, R: Default>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome<R>,
) -> Outcome<R> {
    if handle.is_null() {
        return Ok(R::default());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { looking(handle, work) }
}

/// Uses the state that any thread may use at any time.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn remote<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Remote) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    guarded(|| work(&unsafe { block(handle) }?.remote))
}

/// Creates a handle and writes it to `out`.
///
/// # Safety
/// `out` is null or valid for writes.
pub(crate) unsafe fn made<T: Handle>(
    out: *mut *mut T,
    work: impl FnOnce() -> Outcome<(T::Inner, T::Remote)>,
) -> *mut siskin_error {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { crate::arguments::place("out", out) }?;
        let (inner, remote) = work()?;
        let block = Block::<T> {
            magic: AtomicU64::new(u64::from_le_bytes(T::MAGIC)),
            users: AtomicI32::new(0),
            poisoned: AtomicBool::new(false),
            remote,
            inner: UnsafeCell::new(inner),
        };
        out.write(Box::into_raw(Box::new(block)).cast());
        Ok(())
    })
}

/// Frees a handle. Null is ignored; a handle that is in use, or of another type, is not freed.
///
/// # Safety
/// As for [`alone`], and the handle is not used afterwards.
pub(crate) unsafe fn free<T: Handle>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // A panic in the destructor ends here: it cannot be reported.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: guaranteed by the caller.
        let Ok(block) = (unsafe { block(handle.cast_const()) }) else { return };
        if block.users.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        block.magic.store(0, Ordering::Relaxed);
        // SAFETY: `made` allocated it as a box, no call is inside, and none can enter any more.
        drop(unsafe { Box::from_raw(handle.cast::<Block<T>>()) });
    }));
}

//! What every function does around its work: looks at its handle, keeps others out, ends panics.
//!
//! A handle is a block of memory that begins with a magic word. `const` functions may be inside it together; others are
//! alone, and whoever comes meanwhile gets [`SISKIN_ERROR_BUSY`]. A panic while a handle is being changed makes it
//! unusable: all that can be done with it is to free it.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::error::{
    Failure, Outcome, SISKIN_ERROR_BUSY, SISKIN_ERROR_HANDLE, SISKIN_ERROR_NULL, SISKIN_ERROR_POISONED,
    siskin_error, thrown, told,
};

/// An opaque type of the header, and what is behind it.
pub(crate) trait Handle {
    /// What its functions work on.
    type Inner: Send + Sync;
    /// What any thread may use at any time, also while a function is at work.
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
    /// How many are inside; −1: one that is alone.
    users: AtomicI32,
    poisoned: AtomicBool,
    remote: T::Remote,
    inner: UnsafeCell<T::Inner>,
}

/// Somebody inside a handle.
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
            return Err(Failure::new(SISKIN_ERROR_BUSY, T::NAME, message));
        }
        let turn = Self { block, alone };
        if block.poisoned.load(Ordering::Relaxed) {
            let message = "an earlier call failed inside; free it and make another";
            return Err(Failure::new(SISKIN_ERROR_POISONED, T::NAME, message));
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
    /// Whether this thread is in a callback of the host's.
    static CALLING_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls the host back. Until it returns, this thread may not call the library.
pub(crate) fn calling_back<R>(call: impl FnOnce() -> R) -> R {
    let before = CALLING_BACK.replace(true);
    let result = call();
    CALLING_BACK.set(before);
    result
}

/// Runs `work`; makes an error object of what goes wrong, panics included.
pub(crate) fn guarded(work: impl FnOnce() -> Outcome) -> *mut siskin_error {
    let mut work = Some(work);
    // There are more than a hundred functions: what ends their panics is compiled once.
    run_guarded(&mut || work.take().map_or(Ok(()), |work| work()))
}

fn run_guarded(work: &mut dyn FnMut() -> Outcome) -> *mut siskin_error {
    if CALLING_BACK.get() {
        let message = "a callback may not call the library; return from it first";
        return told(Failure::new(SISKIN_ERROR_BUSY, "callback", message));
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(failure)) => told(failure),
        Err(payload) => told(thrown(&*payload)),
    }
}

/// The memory behind a pointer that the host says is a handle.
///
/// # Safety
/// The pointer is null, or points to a handle of the library that was not freed.
unsafe fn block<'a, T: Handle>(handle: *const T) -> Outcome<&'a Block<T>> {
    let block = handle.cast::<Block<T>>();
    if block.is_null() {
        return Err(Failure::new(SISKIN_ERROR_NULL, T::NAME, "is null"));
    }
    // SAFETY: every handle of the library begins with a magic word; an odd address is none of them.
    let right = block.is_aligned()
        && unsafe { (*block.cast::<AtomicU64>()).load(Ordering::Relaxed) } == u64::from_le_bytes(T::MAGIC);
    if !right {
        return Err(Failure::new(SISKIN_ERROR_HANDLE, T::NAME, "is a handle of another kind, or was freed"));
    }
    // SAFETY: the magic word says that this is such a block, and the caller that it lives.
    Ok(unsafe { &*block })
}

/// Works on a handle alone.
///
/// # Safety
/// As for every function of the header: a handle is null or one of the library's that was not freed.
pub(crate) unsafe fn alone<T: Handle>(
    handle: *mut T,
    work: impl FnOnce(&mut T::Inner, &T::Remote) -> Outcome,
) -> *mut siskin_error {
    guarded(|| {
        // SAFETY: the caller's promise.
        let block = unsafe { block(handle.cast_const()) }?;
        let _turn = Turn::take(block, true)?;
        // SAFETY: nobody else is inside while the turn lives.
        work(unsafe { &mut *block.inner.get() }, &block.remote)
    })
}

/// Looks at a handle, together with others.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn shared<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { looking(handle, work) })
}

/// The same inside another function.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn looking<T: Handle, R>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome<R>,
) -> Outcome<R> {
    // SAFETY: the caller's promise.
    let block = unsafe { block(handle) }?;
    let _turn = Turn::take(block, false)?;
    // SAFETY: nobody changes it while the turn lives; what `const` functions do at the same time is to read.
    work(unsafe { &*block.inner.get() })
}

/// The options behind a pointer, or `R`'s usual ones where it is null.
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
    // SAFETY: the caller's promise.
    unsafe { looking(handle, work) }
}

/// Uses what any thread may use at any time.
///
/// # Safety
/// As for [`alone`].
pub(crate) unsafe fn remote<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Remote) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    guarded(|| work(&unsafe { block(handle) }?.remote))
}

/// Makes a handle and puts it where the host wants it.
///
/// # Safety
/// `out` is null or may be written.
pub(crate) unsafe fn made<T: Handle>(
    out: *mut *mut T,
    work: impl FnOnce() -> Outcome<(T::Inner, T::Remote)>,
) -> *mut siskin_error {
    guarded(|| {
        // SAFETY: the caller's promise.
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

/// Frees a handle. Null is nothing; one that somebody is inside of, or of another kind, stays as it is.
///
/// # Safety
/// As for [`alone`], and nobody uses the handle afterwards.
pub(crate) unsafe fn free<T: Handle>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // Panics on the way end here: there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        let Ok(block) = (unsafe { block(handle.cast_const()) }) else { return };
        if block.users.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        block.magic.store(0, Ordering::Relaxed);
        // SAFETY: `made` made it of a box, nobody is inside, and nobody can enter any more.
        drop(unsafe { Box::from_raw(handle.cast::<Block<T>>()) });
    }));
}

//! Guards of every exported function: check the handle, lock it, catch panics.
//!
//! A handle is a block of memory that begins with a magic number. `const` functions may use it concurrently; all others
//! need exclusive access, and concurrent calls return `SISKIN_ERROR_BUSY`. A panic during an exclusive call poisons the
//! handle: it can only be freed.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::error::{
    Outcome, PendingError, SISKIN_ERROR_HANDLE, SISKIN_ERROR_NULL, SISKIN_ERROR_POISONED, into_object,
    panic_error, siskin_error,
};

/// An opaque type of the header, and its contents.
pub(crate) trait Handle {
    /// The state that its functions read and modify.
    type Inner: Send + Sync;
    /// The state that any thread may use at any time, also during an exclusive call.
    type Control: Send + Sync;
    /// The magic number at the start of its memory.
    const MAGIC: [u8; 8];
    /// Its name in errors.
    const NAME: &'static str;
}

/// The beginning of the memory of every handle.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    /// The number of shared users; −1: one exclusive user.
    users: AtomicI32,
    poisoned: AtomicBool,
}

/// The memory of a handle.
#[repr(C)]
struct Block<T: Handle> {
    header: Header,
    control: T::Control,
    inner: UnsafeCell<T::Inner>,
}

/// What is checked of a handle. The checks are compiled once instead of for each exported function.
struct HandleType {
    magic: u64,
    align: usize,
    name: &'static str,
}

impl HandleType {
    const fn of<T: Handle>() -> Self {
        Self { magic: u64::from_le_bytes(T::MAGIC), align: align_of::<Block<T>>(), name: T::NAME }
    }

    /// Returns the header of a handle.
    ///
    /// # Safety
    /// `handle` is null, or live during `'a` (see the pointer contract of the crate).
    #[inline(never)]
    unsafe fn header<'a>(&self, handle: *const Header) -> Outcome<&'a Header> {
        if handle.is_null() {
            return Err(PendingError::new(SISKIN_ERROR_NULL, self.name, "must not be null"));
        }
        // SAFETY: `handle` is not null, hence live, and every live object begins with a magic number of eight bytes; they
        // are read only if they are aligned.
        let is_handle = handle.addr().is_multiple_of(self.align.max(align_of::<AtomicU64>()))
            && unsafe { (*handle.cast::<AtomicU64>()).load(Ordering::Relaxed) } == self.magic;
        if !is_handle {
            return Err(PendingError::new(
                SISKIN_ERROR_HANDLE,
                self.name,
                "wrong handle type, or already freed",
            ));
        }
        // SAFETY: `handle` is live during `'a` (see `# Safety`), and its magic number is that of a handle.
        Ok(unsafe { &*handle })
    }
}

/// A lock on a handle, released on drop.
struct HandleLock<'a> {
    header: &'a Header,
    exclusive: bool,
}

impl<'a> HandleLock<'a> {
    #[inline(never)]
    fn take(header: &'a Header, name: &str, exclusive: bool) -> Outcome<Self> {
        let enter = |users: i32| match (users, exclusive) {
            (0, true) => Some(-1),
            (0.., false) => users.checked_add(1),
            _ => None,
        };
        if header.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            return Err(PendingError::busy());
        }
        let lock = Self { header, exclusive };
        if header.poisoned.load(Ordering::Relaxed) {
            let message = "an earlier call panicked; free the handle and create another";
            return Err(PendingError::new(SISKIN_ERROR_POISONED, name, message));
        }
        Ok(lock)
    }
}

impl Drop for HandleLock<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        if self.exclusive && std::thread::panicking() {
            self.header.poisoned.store(true, Ordering::Relaxed);
        }
        if self.exclusive {
            self.header.users.store(0, Ordering::Release);
        } else {
            self.header.users.fetch_sub(1, Ordering::Release);
        }
    }
}

thread_local! {
    /// Whether this thread is inside a callback of the host.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls a callback of the host. Calls of the library from this thread are rejected until it returns.
pub(crate) fn in_callback<R>(call: impl FnOnce() -> R) -> R {
    let before = IN_CALLBACK.replace(true);
    let result = call();
    IN_CALLBACK.set(before);
    result
}

/// Runs `work` and converts its error or panic to an error object.
pub(crate) fn guarded(work: impl FnOnce() -> Outcome) -> *mut siskin_error {
    let mut work = Some(work);
    // A trait object, so that the panic handler is compiled once instead of for each exported function.
    run_guarded(&mut || work.take().map_or(Ok(()), |work| work()))
}

fn run_guarded(work: &mut dyn FnMut() -> Outcome) -> *mut siskin_error {
    if IN_CALLBACK.get() {
        return into_object(PendingError::busy());
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => into_object(error),
        Err(payload) => into_object(panic_error(&*payload)),
    }
}

/// Returns the memory behind a handle.
///
/// # Safety
/// `handle` is null, or live during `'a` (see the pointer contract of the crate).
unsafe fn block<'a, T: Handle>(handle: *const T) -> Outcome<&'a Block<T>> {
    // SAFETY: `handle` is null or live during `'a` (see `# Safety`).
    unsafe { const { HandleType::of::<T>() }.header(handle.cast()) }?;
    // SAFETY: `handle` is live during `'a` (see `# Safety`), and its magic number is that of `Block<T>`.
    Ok(unsafe { &*handle.cast::<Block<T>>() })
}

/// How a function uses a handle.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Exclusive,
    Shared,
    /// Without a lock.
    Control,
}

/// Runs `work` with access to a handle, which it gets. Compiled once instead of for each exported function.
///
/// # Safety
/// `handle` is null, or live until this function returns (see the pointer contract of the crate).
#[inline(never)]
unsafe fn access(
    handle: *const Header,
    kind: &HandleType,
    access: Access,
    work: &mut dyn FnMut(*const Header) -> Outcome,
) -> *mut siskin_error {
    run_guarded(&mut || {
        // SAFETY: `handle` is null, or live until this returns (see `# Safety`).
        let header = unsafe { kind.header(handle) }?;
        let _lock = match access {
            Access::Exclusive => Some(HandleLock::take(header, kind.name, true)?),
            Access::Shared => Some(HandleLock::take(header, kind.name, false)?),
            Access::Control => None,
        };
        work(handle)
    })
}

/// Runs `work` with the memory of a handle, after [`access`].
///
/// # Safety
/// As for [`access`].
unsafe fn with_block<T: Handle>(
    handle: *const T,
    how: Access,
    work: impl FnOnce(&Block<T>) -> Outcome,
) -> *mut siskin_error {
    let mut work = Some(work);
    let mut run = |header: *const Header| {
        // SAFETY: `access` has checked that it is a `Block<T>`, which is live (see `# Safety`).
        let block = unsafe { &*header.cast::<Block<T>>() };
        work.take().map_or(Ok(()), |work| work(block))
    };
    // SAFETY: `handle` is null, or live until this returns (see `# Safety`).
    unsafe { access(handle.cast(), const { &HandleType::of::<T>() }, how, &mut run) }
}

/// Runs `work` with exclusive access to a handle.
///
/// # Safety
/// `handle` is null, or live until this function returns (see the pointer contract of the crate).
pub(crate) unsafe fn exclusive<T: Handle>(
    handle: *mut T,
    work: impl FnOnce(&mut T::Inner, &T::Control) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: `handle` is null, or live until this returns (see `# Safety`); the exclusive lock is held during `work`.
    unsafe {
        with_block(handle.cast_const(), Access::Exclusive, |block| {
            work(&mut *block.inner.get(), &block.control)
        })
    }
}

/// Runs `work` with shared access to a handle.
///
/// # Safety
/// As for [`exclusive`].
pub(crate) unsafe fn shared<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: `handle` is null, or live until this returns (see `# Safety`); the contents are not modified while the lock is
    // held, and concurrent `const` functions only read.
    unsafe { with_block(handle, Access::Shared, |block| work(&*block.inner.get())) }
}

/// Like [`shared`], inside another guarded function.
///
/// # Safety
/// As for [`exclusive`].
pub(crate) unsafe fn borrow<T: Handle, R>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome<R>,
) -> Outcome<R> {
    // SAFETY: `handle` is null or live, also while `work` uses the contents (see `# Safety`).
    let block = unsafe { block(handle) }?;
    let _lock = HandleLock::take(&block.header, T::NAME, false)?;
    // SAFETY: the contents are not modified while the `HandleLock` lives; concurrent `const` functions only read.
    work(unsafe { &*block.inner.get() })
}

/// Runs `work` on the options behind a pointer, or returns the default of `R` if it is null.
///
/// # Safety
/// As for [`exclusive`].
pub(crate) unsafe fn borrow_or_default<T: Handle, R: Default>(
    handle: *const T,
    work: impl FnOnce(&T::Inner) -> Outcome<R>,
) -> Outcome<R> {
    if handle.is_null() {
        return Ok(R::default());
    }
    // SAFETY: `handle` is not null, hence live until this returns (see `# Safety`).
    unsafe { borrow(handle, work) }
}

/// Runs `work` on the state that any thread may use at any time.
///
/// # Safety
/// As for [`exclusive`].
pub(crate) unsafe fn control<T: Handle>(
    handle: *const T,
    work: impl FnOnce(&T::Control) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: `handle` is null, or live while `work` uses its control state (see `# Safety`).
    unsafe { with_block(handle, Access::Control, |block| work(&block.control)) }
}

/// Creates a handle and writes it to `out`.
///
/// # Safety
/// `out` is null, or writable until this function returns (see the pointer contract of the crate).
pub(crate) unsafe fn create<T: Handle>(
    out: *mut *mut T,
    work: impl FnOnce() -> Outcome<(T::Inner, T::Control)>,
) -> *mut siskin_error {
    guarded(|| {
        // SAFETY: `out` is null, or writable with no other access until this returns (see `# Safety`).
        let out = unsafe { crate::arguments::output("out", out) }?;
        let (inner, control) = work()?;
        let block = Block::<T> {
            header: Header {
                magic: AtomicU64::new(u64::from_le_bytes(T::MAGIC)),
                users: AtomicI32::new(0),
                poisoned: AtomicBool::new(false),
            },
            control,
            inner: UnsafeCell::new(inner),
        };
        out.write(Box::into_raw(Box::new(block)).cast());
        Ok(())
    })
}

/// Frees a handle. Null is ignored; a handle that is in use, or of the wrong type, is not freed.
///
/// # Safety
/// As for [`exclusive`], and the handle is not used afterwards.
pub(crate) unsafe fn free<T: Handle>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // A panic in the destructor ends here: it cannot be reported.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `handle` is not null, hence live: it is freed only below (see `# Safety`).
        let Ok(block) = (unsafe { block(handle.cast_const()) }) else { return };
        if block.header.users.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        block.header.magic.store(0, Ordering::Relaxed);
        // SAFETY: `create` allocated it as a box; no call is using it, and none can begin any more.
        drop(unsafe { Box::from_raw(handle.cast::<Block<T>>()) });
    }));
}

//! Pointers of the host, with the functions that release them.

use std::ffi::c_void;

use crate::guard::in_callback;

/// Releases `user`. It is called exactly once, from any thread, and must not call the library. May be null.
pub type siskin_release_function = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A pointer of the host. Dropping it calls its release function.
pub(crate) struct HostPointer {
    user: *mut c_void,
    release: siskin_release_function,
}

// SAFETY: the header states that the `user` pointer of a callback or buffer is used and released from any thread.
unsafe impl Send for HostPointer {}
// SAFETY: as above; the library itself never dereferences the pointer.
unsafe impl Sync for HostPointer {}

impl HostPointer {
    /// # Safety
    /// `release` is null, or may be called once with `user`, from any thread.
    pub(crate) unsafe fn new(user: *mut c_void, release: siskin_release_function) -> Self {
        Self { user, release }
    }

    pub(crate) fn user(&self) -> *mut c_void {
        self.user
    }
}

impl Drop for HostPointer {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `new` requires that `release` may be called once with `user`, and this is the only call.
            in_callback(|| unsafe { release(self.user) });
        }
    }
}

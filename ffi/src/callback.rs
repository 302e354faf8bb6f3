//! Pointers owned by the host, with the function that releases them.

use std::ffi::c_void;

use crate::guard::calling_back;

/// Releases `user`. Called exactly once, from any thread; it must not call the library. May be null.
pub type siskin_release = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A pointer owned by the host. Dropping it calls the host's release function.
pub(crate) struct Foreign {
    user: *mut c_void,
    release: siskin_release,
}

// SAFETY: the header states that the `user` pointer of a callback or buffer is used and released from any thread.
unsafe impl Send for Foreign {}
// SAFETY: as above; the library itself never dereferences the pointer.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// # Safety
    /// `release` may be called once with `user`.
    pub(crate) unsafe fn new(user: *mut c_void, release: siskin_release) -> Self {
        Self { user, release }
    }

    pub(crate) fn user(&self) -> *mut c_void {
        self.user
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: guaranteed by the caller of `new`.
            calling_back(|| unsafe { release(self.user) });
        }
    }
}

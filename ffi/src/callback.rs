//! What belongs to the host and comes with a function that lets go of it.

use std::ffi::c_void;

use crate::guard::calling_back;

/// Lets go of what was given with it. Called exactly once, from any thread; it may not call the library. May be null.
pub type siskin_release = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A pointer of the host's; when it is dropped, the host lets go of it.
pub(crate) struct Foreign {
    user: *mut c_void,
    release: siskin_release,
}

// SAFETY: the header says that what goes with a callback or a buffer is used and let go of from any thread.
unsafe impl Send for Foreign {}
// SAFETY: as above; the library itself never looks behind the pointer.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// # Safety
    /// `release` may be called with `user`, once.
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
            // SAFETY: `new`'s caller promised it.
            calling_back(|| unsafe { release(self.user) });
        }
    }
}

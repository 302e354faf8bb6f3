//! Pinned host memory, which the device reads directly.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys};
use siskin_device::DevicePtr;
use siskin_format::Result;

use super::context::CudaStream;
use super::libraries::check;

/// The buffer that writes go through; it grows on demand.
pub(super) struct StagingBuffer {
    host: *mut c_void,
    size: usize,
    /// Signaled when the last copy is done.
    copied: sys::CUevent,
}

impl StagingBuffer {
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let copied = check("create an event", driver::event::create(flags))?;
        Ok(Self { host: std::ptr::null_mut(), size: 0, copied })
    }

    /// Enqueues a copy to the device; `bytes` may be reused when this returns.
    pub(super) fn copy(&mut self, ptr: DevicePtr, bytes: &[u8], stream: &CudaStream) -> Result<()> {
        // SAFETY: the staging memory is written only when the last copy from it is done, and is as long as `size`
        // says.
        unsafe {
            check("wait for a copy", driver::event::synchronize(self.copied))?;
            if self.size < bytes.len() {
                if self.size > 0 {
                    check("free memory", driver::free_host(self.host))?;
                    self.size = 0;
                }
                let size = bytes.len().next_power_of_two();
                self.host = check("pin memory", driver::malloc_host(size, 0))?;
                self.size = size;
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.host.cast(), bytes.len());
            let from = std::slice::from_raw_parts(self.host.cast::<u8>(), bytes.len());
            check("copy to the device", driver::memcpy_htod_async(ptr, from, stream.0))?;
            check("copy to the device", driver::event::record(self.copied, stream.0))
        }
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        // SAFETY: both were created here; the device has finished all previous work.
        unsafe {
            if self.size > 0 {
                let _ = driver::free_host(self.host);
            }
            let _ = driver::event::destroy(self.copied);
        }
    }
}

//! Pinned host memory, which the device reads directly.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys};
use siskin_device::DevicePtr;
use siskin_format::Result;

use super::context::CudaStream;
use super::libraries::check;

/// The maximum number of bytes that are read at once.
const MAX_READ: usize = 16 << 20;

/// The buffer that reads and writes go through; it grows on demand.
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

    /// Copies from the device, after all previous work: in parts, each to pinned memory first, which is faster than to
    /// other memory.
    pub(super) fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8], stream: &CudaStream) -> Result<()> {
        let mut from = ptr;
        for part in bytes.chunks_mut(MAX_READ) {
            self.reserve(part.len())?;
            // SAFETY: the staging memory is as long as `size` says, and its last copy is done when it is reserved; it is
            // read after the copy to it is done. The memory at `from` was allocated by the device.
            unsafe {
                let pinned = std::slice::from_raw_parts_mut(self.host.cast::<u8>(), part.len());
                check("copy from the device", driver::memcpy_dtoh_async(pinned, from, stream.0))?;
                stream.synchronize()?;
                part.copy_from_slice(pinned);
            }
            from += part.len() as DevicePtr;
        }
        Ok(())
    }

    /// Waits for the last copy, and makes room for `bytes` bytes.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        // SAFETY: the event and the memory were created here, and nothing uses the memory when the last copy is done.
        unsafe {
            check("wait for a copy", driver::event::synchronize(self.copied))?;
            if self.size < bytes {
                if self.size > 0 {
                    check("free memory", driver::free_host(self.host))?;
                    self.size = 0;
                }
                let size = bytes.next_power_of_two();
                self.host = check("pin memory", driver::malloc_host(size, 0))?;
                self.size = size;
            }
        }
        Ok(())
    }

    /// Enqueues a copy to the device; `bytes` may be reused when this returns.
    pub(super) fn copy(&mut self, ptr: DevicePtr, bytes: &[u8], stream: &CudaStream) -> Result<()> {
        self.reserve(bytes.len())?;
        // SAFETY: the staging memory is as long as `size` says, and its last copy is done when it is reserved.
        unsafe {
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

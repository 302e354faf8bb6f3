//! The context of a device, and its stream.

use cudarc::driver::{result as driver, sys};
use siskin_format::{Error, Result};

use super::libraries::check;

/// The primary context of a device.
#[derive(Clone, Copy)]
pub(super) struct CudaContext {
    context: sys::CUcontext,
    /// The compute capability, such as 90.
    pub(super) compute_capability: i32,
    /// The maximum shared memory of a block, in bytes.
    pub(super) shared_memory: usize,
    /// The number of multiprocessors.
    pub(super) multiprocessors: usize,
}

impl CudaContext {
    /// Retains the context of the device with this index, and makes it current in this thread.
    pub(super) fn open(index: usize) -> Result<Self> {
        check("start", driver::init())?;
        let index = i32::try_from(index).unwrap_or(i32::MAX);
        let device = check(&format!("find device {index}"), driver::device::get(index))?;
        // SAFETY: the device was returned by the driver.
        let context = check("retain the primary context", unsafe { driver::primary_ctx::retain(device) })?;
        let attribute = |which| {
            // SAFETY: the device was returned by the driver.
            check("query the device", unsafe { driver::device::get_attribute(device, which) })
        };
        let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let shared =
            attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let multiprocessors = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        if major < 8 {
            let message = format!("device {index} is sm_{major}{minor}; the kernels need sm_80 or newer");
            return Err(Error::unsupported("device", message));
        }
        let opened = Self {
            context,
            compute_capability: 10 * major + minor,
            shared_memory: usize::try_from(shared).unwrap_or(0),
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
        };
        opened.set_current()?;
        Ok(opened)
    }

    /// Makes the context current in this thread.
    pub(super) fn set_current(self) -> Result<()> {
        // SAFETY: the context was returned by the driver, and is never released.
        check("set the current context", unsafe { driver::ctx::set_current(self.context) })
    }
}

/// A stream, destroyed on drop.
pub(super) struct CudaStream(pub(super) sys::CUstream);

impl CudaStream {
    pub(super) fn new() -> Result<Self> {
        let kind = driver::stream::StreamKind::NonBlocking;
        check("create a stream", driver::stream::create(kind)).map(Self)
    }

    /// Waits for all work so far.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        check("synchronize the stream", unsafe { driver::stream::synchronize(self.0) })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: it was created by the driver, and nothing else destroys it.
        let _ = unsafe { driver::stream::destroy(self.0) };
    }
}

//! Memory of a device that several owners share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siskin_device::{Device, DevicePtr};
use siskin_format::Result;

/// A device, locked for each use.
#[derive(Clone)]
pub(crate) struct SharedDevice(Arc<Mutex<dyn Device + Send>>);

impl SharedDevice {
    pub(crate) fn new(device: impl Device + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(device)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, dyn Device + Send + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceMemory> {
        let ptr = self.lock().allocate(bytes)?;
        Ok(DeviceMemory { device: self.clone(), ptr, bytes })
    }

    /// Allocates memory with these contents.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.allocate(bytes.len())?;
        self.lock().write(memory.ptr, bytes)?;
        Ok(memory)
    }
}

/// Device memory, freed on drop.
pub(crate) struct DeviceMemory {
    device: SharedDevice,
    pub(crate) ptr: DevicePtr,
    pub(crate) bytes: usize,
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A device that was lost has no memory to free.
        let _ = self.device.lock().free(self.ptr);
    }
}

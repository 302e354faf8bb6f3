//! Device memory, and execution of command lists.

use siskin_format::Result;

use crate::{CommandList, DevicePtr};

/// What a planner must know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// The maximum shared memory of a block, in bytes.
    pub shared_memory: usize,
    /// The number of multiprocessors.
    pub multiprocessors: usize,
    /// The bytes that the device keeps as workspace.
    pub workspace: usize,
    /// Whether it has fp8 matmuls.
    pub fp8: bool,
    /// Whether timings are meaningful; false for a device that is emulated on the CPU.
    pub timed: bool,
}

impl Default for DeviceCapabilities {
    /// Those of an H100, without workspace.
    fn default() -> Self {
        Self { shared_memory: 227 << 10, multiprocessors: 132, workspace: 0, fp8: true, timed: true }
    }
}

/// An accelerator with its own memory.
pub trait Device {
    /// Returns what the device can do; it never changes.
    fn capabilities(&self) -> DeviceCapabilities;

    /// Allocates memory, aligned to [`ALIGNMENT`](crate::ALIGNMENT). Its contents are undefined.
    ///
    /// # Errors
    /// [`siskin_format::ErrorKind::Memory`] if there is too little, or if the device fails.
    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr>;

    /// Frees memory.
    ///
    /// # Errors
    /// If the device fails.
    fn free(&mut self, ptr: DevicePtr) -> Result<()>;

    /// Writes to memory, after all previous work. `bytes` may be reused when this returns.
    ///
    /// # Errors
    /// If the device fails.
    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<()>;

    /// Reads memory, after all previous work.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<()>;

    /// Returns the free bytes; `None` if only the memory of the process limits them.
    ///
    /// # Errors
    /// If the device fails.
    fn free_bytes(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Executes a list after all previous work. A list that was run before may have been captured as a graph.
    ///
    /// # Errors
    /// If a kernel is unknown, or the device fails.
    fn run(&mut self, commands: &CommandList) -> Result<()>;

    /// Executes a list without capturing it.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_uncaptured(&mut self, commands: &CommandList) -> Result<()> {
        self.run(commands)
    }
}

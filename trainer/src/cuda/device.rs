//! The interface of a device.

use siskin_format::Result;

use super::tape::{DevicePtr, Tape};

/// Device memory, and execution of tapes.
pub trait Device {
    /// Allocates memory, aligned to 256 bytes. Its contents are undefined.
    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr>;

    /// Frees memory.
    fn free(&mut self, place: DevicePtr) -> Result<()>;

    /// Writes to memory, after all previous work. `bytes` may be reused when this returns.
    fn write(&mut self, place: DevicePtr, bytes: &[u8]) -> Result<()>;

    /// Reads memory, after all previous work.
    fn read(&mut self, place: DevicePtr, bytes: &mut [u8]) -> Result<()>;

    /// Returns the free bytes; `None` if only the memory of the process limits them.
    fn free_bytes(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Returns the bytes that the device keeps as workspace.
    fn workspace_bytes(&self) -> usize {
        0
    }

    /// Returns the maximum shared memory of a block, in bytes.
    fn shared_bytes(&self) -> usize {
        227 << 10
    }

    /// Returns true if timings are meaningful; false for a device that is emulated on the CPU.
    fn is_timed(&self) -> bool {
        true
    }

    /// Returns true if the device has fp8 matmuls.
    fn has_fp8(&self) -> bool {
        true
    }

    /// Executes a tape after all previous work. A tape that was run before may have been captured as a CUDA graph.
    fn run(&mut self, tape: &Tape) -> Result<()>;

    /// Executes a tape without capturing it.
    fn run_uncaptured(&mut self, tape: &Tape) -> Result<()> {
        self.run(tape)
    }
}

//! What the executor asks of a device.

use siskin::Result;

use super::tape::{Place, Tape};

/// Memory, and work over it.
pub trait Device {
    /// Memory that nothing else has, from a multiple of 256 on. What is in it is anything.
    fn allocate(&mut self, bytes: usize) -> Result<Place>;

    /// Gives memory back.
    fn free(&mut self, place: Place) -> Result<()>;

    /// Writes to memory, after all work so far. The bytes may be used again when this returns.
    fn write(&mut self, place: Place, bytes: &[u8]) -> Result<()>;

    /// Reads memory, after all work so far.
    fn read(&mut self, place: Place, bytes: &mut [u8]) -> Result<()>;

    /// The bytes that nothing has yet; none where that is as much as the process gets.
    fn free_bytes(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// The bytes that it keeps for its own work.
    fn own_bytes(&self) -> usize {
        0
    }

    /// The bytes of shared memory that a block of a kernel may have.
    fn shared_bytes(&self) -> usize {
        227 << 10
    }

    /// Whether it is as fast as a device: one that is carried out by the processor is not.
    fn is_timed(&self) -> bool {
        true
    }

    /// Whether it multiplies numbers of eight bits.
    fn has_eights(&self) -> bool {
        true
    }

    /// Does what a tape says, after all work so far. A tape that came before may have been recorded.
    fn run(&mut self, tape: &Tape) -> Result<()>;

    /// The same for a tape that is not worth recording.
    fn once(&mut self, tape: &Tape) -> Result<()> {
        self.run(tape)
    }
}

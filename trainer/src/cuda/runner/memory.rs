//! The device memory of a step.

use siskin_device::{Device, DevicePtr};
use siskin_format::{Error, ErrorKind, Result};

/// Adds what a user can do to the error of a device that is out of memory.
pub(super) fn with_advice(error: Error) -> Error {
    if error.kind() != ErrorKind::Memory {
        return error;
    }
    let message = format!("{}; use a smaller batch.max_tokens, or set recompute", error.message());
    Error::new(ErrorKind::Memory, error.location(), message)
}

/// Device memory that grows on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GrowableMemory {
    pub(super) place: DevicePtr,
    size: usize,
}

impl GrowableMemory {
    /// Grows to `bytes` bytes; returns true if it was reallocated.
    fn grow(&mut self, device: &mut dyn Device, bytes: usize) -> Result<bool> {
        if bytes <= self.size {
            return Ok(false);
        }
        self.free(device)?;
        *self = Self { place: device.allocate(bytes).map_err(with_advice)?, size: bytes };
        Ok(true)
    }

    /// Frees its memory.
    fn free(&mut self, device: &mut dyn Device) -> Result<()> {
        match std::mem::take(self) {
            Self { size: 0, .. } => Ok(()),
            Self { place, .. } => device.free(place),
        }
    }
}

/// The bytes that a batch needs of each area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepBytes {
    pub(super) arena: usize,
    pub(super) scratch: usize,
    pub(super) head: usize,
    pub(super) tables: usize,
}

/// The memory of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepMemory {
    /// Activations, their gradients, and what forward keeps for backward.
    pub(super) arena: GrowableMemory,
    /// Scratch memory of an operation.
    pub(super) scratch: GrowableMemory,
    /// The head's buffers for a chunk of rows.
    pub(super) head: GrowableMemory,
    /// Tables of the batch.
    pub(super) tables: GrowableMemory,
}

impl StepMemory {
    /// Grows the areas; returns true if one was reallocated. If an allocation fails, all are freed, since the next
    /// batch may need less.
    pub(super) fn grow(&mut self, device: &mut dyn Device, bytes: &StepBytes) -> Result<bool> {
        let moved = self.grow_each(device, bytes);
        if moved.is_err() {
            let areas = [&mut self.arena, &mut self.scratch, &mut self.head, &mut self.tables];
            let freed = areas.into_iter().try_for_each(|area| area.free(device));
            return moved.and_then(|moved| freed.map(|()| moved));
        }
        moved
    }

    fn grow_each(&mut self, device: &mut dyn Device, bytes: &StepBytes) -> Result<bool> {
        let mut moved = self.arena.grow(device, bytes.arena)?;
        moved |= self.scratch.grow(device, bytes.scratch)?;
        moved |= self.head.grow(device, bytes.head)?;
        Ok(moved | self.tables.grow(device, bytes.tables)?)
    }
}

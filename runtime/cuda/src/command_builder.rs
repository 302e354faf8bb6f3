//! What kernels are appended to: the command list, with scratch memory and batch tables.

use siskin_device::{CommandList, DevicePtr, KernelArgument, aligned};

use crate::batch_tables::BatchTables;

/// The command list, scratch memory and batch tables that operations write to.
#[derive(Debug)]
pub struct CommandBuilder<'a> {
    /// The command list.
    pub commands: &'a mut CommandList,
    /// The tables of the batch, which the caller copies to the device before the commands run.
    pub tables: &'a mut BatchTables,
    /// Scratch memory, which the caller allocates before the commands run.
    pub scratch: &'a mut OpScratch,
}

/// Scratch memory of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpScratch {
    base: DevicePtr,
    used: usize,
    max: usize,
}

impl OpScratch {
    /// Scratch memory that begins at `base`.
    pub fn new(base: DevicePtr) -> Self {
        Self { base, used: 0, max: 0 }
    }

    /// Allocates f32 elements, until the next operation begins.
    pub fn floats(&mut self, count: usize) -> DevicePtr {
        let place = self.base + self.used as DevicePtr;
        self.used += aligned(4 * count);
        self.max = self.max.max(self.used);
        place
    }

    /// Like [`Self::floats`], in bytes.
    pub fn bytes(&mut self, count: usize) -> DevicePtr {
        self.floats(count.div_ceil(4))
    }

    /// Like [`Self::floats`], for f64 elements.
    pub fn doubles(&mut self, count: usize) -> DevicePtr {
        self.floats(2 * count)
    }

    /// Frees all scratch memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the most bytes that any operation has used: the size that must be allocated at the base.
    pub fn max_bytes(&self) -> usize {
        self.max
    }
}

/// Returns a boolean argument.
pub fn flag(on: bool) -> KernelArgument {
    KernelArgument::Int(i32::from(on))
}

/// Returns an integer argument.
pub fn int(number: usize) -> KernelArgument {
    KernelArgument::Int(i32::try_from(number).unwrap_or(i32::MAX))
}

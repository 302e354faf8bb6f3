//! What kernels are appended to: the command list, with scratch memory and batch tables.

use siskin_device::{CommandList, DevicePtr, KernelArgument, Precision, aligned};

use super::batch_tables::BatchTables;

/// The command list, scratch memory and batch tables that operations write to.
pub(super) struct CommandBuilder<'a> {
    pub(super) commands: &'a mut CommandList,
    pub(super) tables: &'a mut BatchTables,
    pub(super) scratch: &'a mut OpScratch,
}

/// Scratch memory of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpScratch {
    base: DevicePtr,
    used: usize,
    /// The maximum that any operation used.
    pub(super) peak: usize,
}

impl OpScratch {
    /// Scratch memory that begins at `base`.
    pub(super) fn new(base: DevicePtr) -> Self {
        Self { base, used: 0, peak: 0 }
    }

    /// Allocates f32 elements, until the next operation begins.
    pub(super) fn floats(&mut self, count: usize) -> DevicePtr {
        let place = self.base + self.used as DevicePtr;
        self.used += aligned(4 * count);
        self.peak = self.peak.max(self.used);
        place
    }

    /// Like [`Self::floats`], in bytes.
    pub(super) fn bytes(&mut self, count: usize) -> DevicePtr {
        self.floats(count.div_ceil(4))
    }

    /// Like [`Self::floats`], for f64 elements.
    pub(super) fn doubles(&mut self, count: usize) -> DevicePtr {
        self.floats(2 * count)
    }

    /// Frees all scratch memory.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

/// Returns a boolean argument.
pub(super) fn flag(on: bool) -> KernelArgument {
    KernelArgument::Int(i32::from(on))
}

/// Returns an integer argument.
pub(super) fn int(number: usize) -> KernelArgument {
    KernelArgument::Int(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Returns the padded width of table rows with `columns` columns.
pub(super) fn padded_width(precision: Precision, columns: usize) -> usize {
    columns.next_multiple_of(precision.vector_width())
}

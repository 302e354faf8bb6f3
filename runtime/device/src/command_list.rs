//! The work of a device, recorded before it is executed.

use std::ops::Range;

use crate::{Command, DevicePtr, GridSize, KernelArgument, Launch, MatmulCommand, Precision};

/// Threads per block of elementwise kernels.
const THREADS: usize = 256;
/// The maximum grid size of such kernels along x: as many blocks as any device runs at once.
const MAX_BLOCKS: usize = 4096;
/// The maximum grid size along y and z.
const MAX_GRID_ROWS: usize = 65_535;

/// Commands in order.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandList {
    precision: Precision,
    commands: Vec<Command>,
}

impl CommandList {
    /// Creates an empty list for tensors of this precision.
    pub fn new(precision: Precision) -> Self {
        Self { precision, commands: Vec::new() }
    }

    /// Returns the precision of tensors.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns true if there are no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Iterates over the commands, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Command> {
        self.commands.iter()
    }

    /// Returns a range of the commands.
    #[must_use]
    pub fn slice(&self, commands: Range<usize>) -> Self {
        Self { precision: self.precision, commands: self.commands[commands].to_vec() }
    }

    /// Appends a kernel by its full name; no-op without blocks.
    pub fn kernel(
        &mut self,
        name: &str,
        grid: GridSize,
        threads: usize,
        shared: usize,
        arguments: &[KernelArgument],
    ) {
        if grid.is_empty() {
            return;
        }
        self.commands.push(Command::Launch(Launch {
            kernel: name.to_owned(),
            grid,
            threads: threads as u32,
            shared: shared as u32,
            arguments: arguments.to_vec(),
        }));
    }

    /// Returns the name of a kernel for this precision.
    pub fn kernel_name(&self, name: &str) -> String {
        format!("{name}_{}", self.precision.suffix())
    }

    /// Appends an elementwise kernel over `count` elements; the count is its last argument.
    pub fn elementwise(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        let blocks = count.div_ceil(THREADS * self.precision.vector_width()).min(MAX_BLOCKS);
        let arguments = [arguments, &[KernelArgument::Long(count as i64)]].concat();
        self.kernel(&self.kernel_name(name), GridSize::linear(blocks), THREADS, 0, &arguments);
    }

    /// Appends a kernel over the elements of a matrix, row by row.
    pub fn elementwise_2d(&mut self, name: &str, rows: usize, columns: usize, arguments: &[KernelArgument]) {
        let vectors = columns.div_ceil(self.precision.vector_width());
        let threads = vectors.next_multiple_of(32).min(THREADS);
        let grid = GridSize::new(vectors.div_ceil(threads), rows.min(MAX_GRID_ROWS), 1);
        self.kernel(&self.kernel_name(name), grid, threads, 0, arguments);
    }

    /// Appends a kernel with one warp per item, of `count` items.
    pub fn warp_per_item(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        let grid = GridSize::linear(count.div_ceil(THREADS / 32));
        self.kernel(&self.kernel_name(name), grid, THREADS, 0, arguments);
    }

    /// Appends a matmul; no-op for an empty output.
    pub fn matmul(&mut self, matmul: MatmulCommand) {
        if matmul.shape.m > 0 && matmul.shape.n > 0 {
            self.commands.push(Command::Matmul(matmul));
        }
    }

    /// Appends a memset to zero; no-op without bytes.
    pub fn clear(&mut self, ptr: DevicePtr, bytes: usize) {
        if bytes > 0 {
            self.commands.push(Command::Clear { ptr, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_work_is_not_recorded() {
        let mut list = CommandList::new(Precision::Bf16);
        list.elementwise("add", 0, &[]);
        list.elementwise_2d("embed", 0, 8, &[]);
        list.warp_per_item("norm", 0, &[]);
        list.clear(256, 0);
        assert!(list.is_empty());
    }

    #[test]
    fn elementwise_kernels_have_a_thread_for_each_vector() {
        let mut list = CommandList::new(Precision::Bf16);
        list.elementwise("add", 256 * 8 + 1, &[]);
        list.elementwise("add", 1 << 40, &[]);
        let grids: Vec<GridSize> = list
            .iter()
            .map(|command| match command {
                Command::Launch(launch) => launch.grid,
                _ => panic!("{command:?}"),
            })
            .collect();
        assert_eq!(grids, [GridSize::linear(2), GridSize::linear(MAX_BLOCKS)]);
        assert_eq!(list.slice(1..2).len(), 1);
    }
}

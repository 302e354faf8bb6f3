//! The launches of a step, recorded before they are executed: an equal tape can run as the same CUDA graph.

use super::Precision;

/// An address in the memory of a device; 0: none.
pub type DevicePtr = u64;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelArgument {
    /// An address.
    Ptr(DevicePtr),
    /// A 32-bit integer.
    Int(i32),
    /// A 64-bit integer.
    Long(i64),
    /// An f32.
    Float(f32),
}

/// A launch of a kernel in `kernels/cuda/`.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its name.
    pub kernel: String,
    /// The grid size; never 0.
    pub grid: [u32; 3],
    /// Threads per block.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
    /// Its arguments.
    pub arguments: Vec<KernelArgument>,
}

/// A matrix of the tape's dtype: rows are `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceMatrix {
    /// Its first element.
    pub ptr: DevicePtr,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Whether it is transposed.
    pub transposed: bool,
}

/// A matmul `out = a · b + bias`, optionally accumulated into `out`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TapeMatmul {
    /// The dtype of a and b.
    pub precision: Precision,
    /// Rows and columns of the output, and columns of a.
    pub shape: [usize; 3],
    /// `shape[0]` × `shape[2]`.
    pub a: DeviceMatrix,
    /// `shape[2]` × `shape[1]`.
    pub b: DeviceMatrix,
    /// The output, never transposed.
    pub out: DeviceMatrix,
    /// Whether the output is f32, whatever a and b are.
    pub f32_output: bool,
    /// Whether the output is accumulated into.
    pub accumulate: bool,
    /// One element per column; 0: none.
    pub bias: DevicePtr,
    /// Where the pre-activation is stored if the output is tanh-GELU of it, with rows like those of the output; 0: no
    /// GELU epilogue.
    pub pre_activation: DevicePtr,
    /// The formats of a and b if they are fp8: neither a nor the rows of b are transposed then.
    pub fp8: Option<[Fp8Operand; 2]>,
}

/// The fp8 formats ([arXiv:2209.05433](https://arxiv.org/abs/2209.05433)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Format {
    /// E4M3: up to 448, with three mantissa bits.
    E4M3,
    /// E5M2: up to 57344, with two mantissa bits.
    E5M2,
}

impl Fp8Format {
    /// Returns the largest finite value.
    pub fn max(self) -> f32 {
        match self {
            Self::E4M3 => 448.0,
            Self::E5M2 => 57344.0,
        }
    }
}

/// An fp8 operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fp8Operand {
    /// Its format.
    pub format: Fp8Format,
    /// The place of its inverse scale, an f32 that values are multiplied by.
    pub inverse_scale: DevicePtr,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A kernel launch.
    Launch(Launch),
    /// A matmul.
    Matmul(TapeMatmul),
    /// A memset to zero.
    Clear {
        /// The first byte.
        place: DevicePtr,
        /// The number of bytes.
        bytes: usize,
    },
}

/// Commands in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// The dtype of values.
    pub precision: Precision,
    /// The commands.
    pub commands: Vec<Command>,
}

/// Threads per block of elementwise kernels.
const THREADS: usize = 256;
/// The maximum grid size of such kernels along x: as many blocks as any device runs at once.
const MAX_BLOCKS: usize = 4096;
/// The maximum grid size along y and z.
const MAX_GRID_ROWS: usize = 65_535;

impl Tape {
    /// Creates an empty tape.
    pub fn new(precision: Precision) -> Self {
        Self { precision, commands: Vec::new() }
    }

    /// Returns a range of its commands.
    pub(super) fn part(&self, commands: std::ops::Range<usize>) -> Self {
        Self { precision: self.precision, commands: self.commands[commands].to_vec() }
    }

    /// Appends a kernel by its full name; no-op without blocks.
    pub(super) fn kernel(
        &mut self,
        name: &str,
        grid: [usize; 3],
        threads: usize,
        shared: usize,
        arguments: &[KernelArgument],
    ) {
        if grid.contains(&0) {
            return;
        }
        self.commands.push(Command::Launch(Launch {
            kernel: name.to_owned(),
            grid: grid.map(|side| side as u32),
            threads: threads as u32,
            shared: shared as u32,
            arguments: arguments.to_vec(),
        }));
    }

    /// Returns the name of a kernel for this precision.
    pub(super) fn kernel_name(&self, name: &str) -> String {
        format!("{name}_{}", self.precision.suffix())
    }

    /// Appends an elementwise kernel over `count` elements; the count is its last argument.
    pub(super) fn elementwise(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        let blocks = count.div_ceil(THREADS * self.precision.wide()).min(MAX_BLOCKS);
        let arguments = [arguments, &[KernelArgument::Long(count as i64)]].concat();
        self.kernel(&self.kernel_name(name), [blocks, 1, 1], THREADS, 0, &arguments);
    }

    /// Appends a kernel over the elements of a table, row by row.
    pub(super) fn elementwise_2d(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
        arguments: &[KernelArgument],
    ) {
        let vectors = columns.div_ceil(self.precision.wide());
        let threads = vectors.next_multiple_of(32).min(THREADS);
        let grid = [vectors.div_ceil(threads), rows.min(MAX_GRID_ROWS), 1];
        self.kernel(&self.kernel_name(name), grid, threads, 0, arguments);
    }

    /// Appends a kernel with one warp per item, of `count` items.
    pub(super) fn warp_per_item(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        self.kernel(&self.kernel_name(name), [count.div_ceil(THREADS / 32), 1, 1], THREADS, 0, arguments);
    }

    /// Appends a matmul; no-op for an empty output.
    pub(super) fn matmul(&mut self, product: TapeMatmul) {
        if product.shape[0] > 0 && product.shape[1] > 0 {
            self.commands.push(Command::Matmul(product));
        }
    }

    /// Appends a memset to zero.
    pub(super) fn clear(&mut self, place: DevicePtr, bytes: usize) {
        if bytes > 0 {
            self.commands.push(Command::Clear { place, bytes });
        }
    }
}

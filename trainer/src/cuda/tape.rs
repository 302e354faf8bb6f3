//! The launches of a step, recorded before they are executed: an equal tape can run as the same CUDA graph.

use super::Precision;

/// An address in the memory of a device; 0: none.
pub type Place = u64;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelArgument {
    /// An address.
    Place(Place),
    /// A 32-bit integer.
    Whole(i32),
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
    pub place: Place,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Whether it is transposed.
    pub turned: bool,
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
    pub floats: bool,
    /// Whether the output is accumulated into.
    pub add: bool,
    /// One element per column; 0: none.
    pub bias: Place,
    /// Where the pre-activation is stored if the output is tanh-GELU of it, with rows like those of the output; 0: no
    /// GELU epilogue.
    pub before: Place,
    /// The formats of a and b if they are fp8: neither a nor the rows of b are transposed then.
    pub eights: Option<[Eight; 2]>,
}

/// The fp8 formats ([arXiv:2209.05433](https://arxiv.org/abs/2209.05433)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Format {
    /// E4M3: up to 448, with three mantissa bits.
    Near,
    /// E5M2: up to 57344, with two mantissa bits.
    Far,
}

impl Fp8Format {
    /// Returns the largest finite value.
    pub fn limit(self) -> f32 {
        match self {
            Self::Near => 448.0,
            Self::Far => 57344.0,
        }
    }
}

/// An fp8 operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eight {
    /// Its format.
    pub range: Fp8Format,
    /// The place of its inverse scale, an f32 that values are multiplied by.
    pub inverse: Place,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A kernel launch.
    Launch(Launch),
    /// A matmul.
    Multiply(TapeMatmul),
    /// A memset to zero.
    Clear {
        /// The first byte.
        place: Place,
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
const MOST_BLOCKS: usize = 4096;
/// The maximum grid size along y and z.
const MOST_ROWS: usize = 65_535;

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
    pub(super) fn named(&self, name: &str) -> String {
        format!("{name}_{}", self.precision.suffix())
    }

    /// Appends an elementwise kernel over `count` elements; the count is its last argument.
    pub(super) fn numbers(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        let blocks = count.div_ceil(THREADS * self.precision.wide()).min(MOST_BLOCKS);
        let arguments = [arguments, &[KernelArgument::Long(count as i64)]].concat();
        self.kernel(&self.named(name), [blocks, 1, 1], THREADS, 0, &arguments);
    }

    /// Appends a kernel over the elements of a table, row by row.
    pub(super) fn cells(&mut self, name: &str, rows: usize, columns: usize, arguments: &[KernelArgument]) {
        let across = columns.div_ceil(self.precision.wide());
        let threads = across.next_multiple_of(32).min(THREADS);
        let grid = [across.div_ceil(threads), rows.min(MOST_ROWS), 1];
        self.kernel(&self.named(name), grid, threads, 0, arguments);
    }

    /// Appends a kernel with one warp per item, of `count` items.
    pub(super) fn warps(&mut self, name: &str, count: usize, arguments: &[KernelArgument]) {
        self.kernel(&self.named(name), [count.div_ceil(THREADS / 32), 1, 1], THREADS, 0, arguments);
    }

    /// Appends a matmul; no-op for an empty output.
    pub(super) fn multiply(&mut self, product: TapeMatmul) {
        if product.shape[0] > 0 && product.shape[1] > 0 {
            self.commands.push(Command::Multiply(product));
        }
    }

    /// Appends a memset to zero.
    pub(super) fn clear(&mut self, place: Place, bytes: usize) {
        if bytes > 0 {
            self.commands.push(Command::Clear { place, bytes });
        }
    }
}

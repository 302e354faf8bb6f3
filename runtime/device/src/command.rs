//! The commands of a list.

use crate::{DevicePtr, Precision};

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

/// The number of blocks of a launch in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSize {
    /// Along x: at most 2³¹ − 1.
    pub x: u32,
    /// Along y: at most 65,535.
    pub y: u32,
    /// Along z: at most 65,535.
    pub z: u32,
}

impl GridSize {
    /// A grid with one dimension.
    pub fn linear(blocks: usize) -> Self {
        Self::new(blocks, 1, 1)
    }

    /// A grid with these numbers of blocks.
    pub fn new(x: usize, y: usize, z: usize) -> Self {
        Self { x: x as u32, y: y as u32, z: z as u32 }
    }

    /// Returns true if it has no blocks.
    pub fn is_empty(self) -> bool {
        self.x == 0 || self.y == 0 || self.z == 0
    }
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its name, with that of its precision.
    pub kernel: String,
    /// The grid, never empty.
    pub grid: GridSize,
    /// Threads per block.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
    /// Its arguments.
    pub arguments: Vec<KernelArgument>,
}

/// A matrix of the list's precision: rows are `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceMatrix {
    /// Its first element.
    pub ptr: DevicePtr,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Whether it is transposed.
    pub transposed: bool,
}

/// The size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

/// The sizes of a matmul, named as in BLAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmShape {
    /// Rows of a and of the output.
    pub m: usize,
    /// Columns of b and of the output.
    pub n: usize,
    /// Columns of a, and rows of b: the summed dimension.
    pub k: usize,
}

/// A matmul `out = a · b + bias`, optionally accumulated into `out`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatmulCommand {
    /// The dtype of a and b.
    pub precision: Precision,
    /// The sizes.
    pub shape: GemmShape,
    /// m × k.
    pub a: DeviceMatrix,
    /// k × n.
    pub b: DeviceMatrix,
    /// m × n, never transposed.
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
    pub fp8: Option<Fp8Operands>,
}

impl MatmulCommand {
    /// A matmul `out = a · b` without epilogue.
    pub fn new(
        precision: Precision,
        shape: GemmShape,
        a: DeviceMatrix,
        b: DeviceMatrix,
        out: DeviceMatrix,
    ) -> Self {
        Self {
            precision,
            shape,
            a,
            b,
            out,
            f32_output: false,
            accumulate: false,
            bias: 0,
            pre_activation: 0,
            fp8: None,
        }
    }
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
    /// The address of its inverse scale, an f32 that values are multiplied by.
    pub inverse_scale: DevicePtr,
}

/// The operands of an fp8 matmul.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fp8Operands {
    /// Of the left matrix.
    pub a: Fp8Operand,
    /// Of the right matrix.
    pub b: Fp8Operand,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A kernel launch.
    Launch(Launch),
    /// A matmul.
    Matmul(MatmulCommand),
    /// A memset to zero.
    Clear {
        /// The first byte.
        ptr: DevicePtr,
        /// The number of bytes.
        bytes: usize,
    },
}

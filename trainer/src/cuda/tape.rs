//! What a device is to do, written down before it is done: the same tape again is the same recorded graph.

use super::Precision;

/// A place in the memory of a device; 0: none.
pub type Place = u64;

/// What a kernel is called with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A place.
    Place(Place),
    /// A whole number of 32 bits.
    Whole(i32),
    /// A whole number of 64 bits.
    Long(i64),
    /// A float.
    Float(f32),
}

/// A kernel of `kernels/cuda/`, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its name.
    pub kernel: String,
    /// Blocks along each side; never 0.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// What it is called with.
    pub arguments: Vec<Argument>,
}

/// A matrix of numbers of the precision of the tape: rows `stride` numbers apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    /// Where it begins.
    pub place: Place,
    /// From a row to the next.
    pub stride: usize,
    /// Whether its columns are meant as rows.
    pub turned: bool,
}

/// `out = a · b + bias`, or added to what `out` holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Of a, b.
    pub precision: Precision,
    /// Rows and columns of the output, and columns of a.
    pub shape: [usize; 3],
    /// `shape[0]` × `shape[2]`.
    pub a: Matrix,
    /// `shape[2]` × `shape[1]`.
    pub b: Matrix,
    /// Where the output goes, never turned.
    pub out: Matrix,
    /// Whether the output is floats, whatever a and b are.
    pub floats: bool,
    /// Whether it is added to what is there.
    pub add: bool,
    /// A number for each column; 0: none.
    pub bias: Place,
    /// Where all that goes, where the output is GELU of it, by the hyperbolic tangent: rows as those of the output; 0: the
    /// output is no function of it.
    pub before: Place,
    /// What a and b are, where they are numbers of eight bits: neither a nor the rows of b are turned then.
    pub eights: Option<[Eight; 2]>,
}

/// How far numbers of eight bits reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// To 448, with three binary digits (e4m3).
    Near,
    /// To 57344, with two (e5m2).
    Far,
}

impl Range {
    /// The largest number.
    pub fn limit(self) -> f32 {
        match self {
            Self::Near => 448.0,
            Self::Far => 57344.0,
        }
    }
}

/// A table of numbers of eight bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eight {
    /// How far they reach.
    pub range: Range,
    /// Where the float is that they are multiplied by.
    pub inverse: Place,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A kernel.
    Launch(Launch),
    /// A product of matrices.
    Multiply(Product),
    /// Zero bytes.
    Clear {
        /// From here on.
        place: Place,
        /// So many.
        bytes: usize,
    },
}

/// Work in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// Of tables of values.
    pub precision: Precision,
    /// What is done.
    pub commands: Vec<Command>,
}

/// Threads of kernels that take numbers one by one.
const THREADS: usize = 256;
/// Blocks along the first side of such kernels: as many as any device has at work.
const MOST_BLOCKS: usize = 4096;
/// Blocks along the second and third side.
const MOST_ROWS: usize = 65_535;

impl Tape {
    /// With nothing on it.
    pub fn new(precision: Precision) -> Self {
        Self { precision, commands: Vec::new() }
    }

    /// Some of its work.
    pub(super) fn part(&self, commands: std::ops::Range<usize>) -> Self {
        Self { precision: self.precision, commands: self.commands[commands].to_vec() }
    }

    /// A kernel by its whole name; nothing where it has no blocks.
    pub(super) fn kernel(
        &mut self,
        name: &str,
        grid: [usize; 3],
        threads: usize,
        shared: usize,
        arguments: &[Argument],
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

    /// The name of a kernel for this precision.
    pub(super) fn named(&self, name: &str) -> String {
        format!("{name}_{}", self.precision.suffix())
    }

    /// A kernel that takes `count` numbers one by one; their count is its last argument.
    pub(super) fn numbers(&mut self, name: &str, count: usize, arguments: &[Argument]) {
        let blocks = count.div_ceil(THREADS * self.precision.wide()).min(MOST_BLOCKS);
        let arguments = [arguments, &[Argument::Long(count as i64)]].concat();
        self.kernel(&self.named(name), [blocks, 1, 1], THREADS, 0, &arguments);
    }

    /// A kernel that takes the cells of a table, row by row.
    pub(super) fn cells(&mut self, name: &str, rows: usize, columns: usize, arguments: &[Argument]) {
        let across = columns.div_ceil(self.precision.wide());
        let threads = across.next_multiple_of(32).min(THREADS);
        let grid = [across.div_ceil(threads), rows.min(MOST_ROWS), 1];
        self.kernel(&self.named(name), grid, threads, 0, arguments);
    }

    /// A kernel of which each warp takes one of `count` things.
    pub(super) fn warps(&mut self, name: &str, count: usize, arguments: &[Argument]) {
        self.kernel(&self.named(name), [count.div_ceil(THREADS / 32), 1, 1], THREADS, 0, arguments);
    }

    /// A product of matrices; nothing where it has no numbers.
    pub(super) fn multiply(&mut self, product: Product) {
        if product.shape[0] > 0 && product.shape[1] > 0 {
            self.commands.push(Command::Multiply(product));
        }
    }

    /// Zero bytes.
    pub(super) fn clear(&mut self, place: Place, bytes: usize) {
        if bytes > 0 {
            self.commands.push(Command::Clear { place, bytes });
        }
    }
}

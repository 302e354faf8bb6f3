//! Products of numbers of eight bits: which, and what is remembered of their tables.
//!
//! A table is multiplied by a scale before it is rounded. The scale follows from the largest number that the table had in
//! the last steps, which the device remembers; before the first step the first batch goes through once for that alone.

use siskin::Result;
use siskin::graph::{Op, WeightId};

use super::device::Device;
use super::op::{Work, whole};
use super::tape::{Argument, Eight, Place, Range, Tape};
use super::{Precision, aligned};
use crate::program::{Node, Program};
use crate::state::{Data, Tables};

/// Steps that are remembered.
const STEPS: usize = 16;
/// Rows and columns that a block takes.
const SIDE: usize = 32;
/// What rows and columns of such products are multiples of.
const MULTIPLE: usize = 16;
/// Tables of a product: what goes in, the matrix, and the gradient of what comes out.
const TABLES: usize = 3;

/// The names of the tables of a checkpoint.
const HISTORY: &str = "eights.history";
const SCALES: &str = "eights.scales";

/// The products of eight bits, and where their tables' scales are.
#[derive(Clone, Debug)]
pub(super) struct Eights {
    /// The matrices, by their number.
    list: Vec<WeightId>,
    /// Largest numbers of this step, of the last ones, scales, one over scales, and the largest that may be.
    largest: Place,
    history: Place,
    scales: Place,
    inverses: Place,
    limits: Place,
}

/// What a product knows of one of its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    largest: Place,
    scale: Place,
    inverse: Place,
    range: Range,
}

/// A table that becomes one of eight bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    pub(super) from: Place,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From a row to the next.
    pub(super) stride: usize,
}

/// Where it is: as it was, and columns as rows, whose length is a multiple of 16.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    pub(super) plain: Place,
    pub(super) turned: Place,
    pub(super) turned_stride: usize,
}

/// The matrix of a product that can have eight bits: those of feed-forward layers, and the last.
fn matrix(program: &Program, number: usize) -> Option<WeightId> {
    let Op::Linear { parts } = &program.nodes[number].op else { return None };
    let [(weight, _)] = parts[..] else { return None };
    let of = &program.weights[weight];
    let named = of.name.contains("ffn_") || number + 1 == program.nodes.len();
    let fits = of.rows.is_multiple_of(MULTIPLE) && of.columns.is_multiple_of(MULTIPLE);
    (named && fits).then_some(weight)
}

impl Eights {
    pub(super) fn new<D: Device>(device: &mut D, program: &Program) -> Result<Self> {
        let mut list: Vec<WeightId> =
            (0..program.nodes.len()).filter_map(|number| matrix(program, number)).collect();
        list.sort_unstable();
        list.dedup();
        let count = TABLES * list.len();
        let mut room = |numbers: Vec<f32>| -> Result<Place> {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
            let place = device.allocate(aligned(bytes.len()))?;
            device.write(place, &bytes)?;
            Ok(place)
        };
        let limit = |index: usize| range(index % TABLES).limit();
        Ok(Self {
            largest: room(vec![0.0; count])?,
            history: room(vec![0.0; STEPS * count])?,
            scales: room(vec![1.0; count])?,
            inverses: room(vec![1.0; count])?,
            limits: room((0..count).map(limit).collect())?,
            list,
        })
    }

    /// What is known of the tables of a product; none where it has no eight bits.
    pub(super) fn of(&self, node: &Node) -> Option<[Known; TABLES]> {
        let Op::Linear { parts } = &node.op else { return None };
        let [(weight, _)] = parts[..] else { return None };
        let first = TABLES * self.list.binary_search(&weight).ok()?;
        Some(std::array::from_fn(|index| {
            let at = |place: Place| place + 4 * (first + index) as Place;
            Known {
                largest: at(self.largest),
                scale: at(self.scales),
                inverse: at(self.inverses),
                range: range(index),
            }
        }))
    }

    /// What is done after a step, or after the batch that goes through for this alone.
    pub(super) fn remember(&self, precision: Precision) -> Tape {
        let mut tape = Tape::new(precision);
        let count = TABLES * self.list.len();
        let places = [self.largest, self.history, self.scales, self.inverses, self.limits];
        let arguments = [&places.map(Argument::Place)[..], &[count, STEPS].map(whole)].concat();
        tape.kernel("remember_largest", [count.div_ceil(256), 1, 1], 256, 0, &arguments);
        tape
    }

    /// Makes the largest numbers of the step at hand count no more.
    pub(super) fn forget<D: Device>(&self, device: &mut D) -> Result<()> {
        device.write(self.largest, &vec![0; 4 * TABLES * self.list.len()])
    }

    /// Puts what is remembered into the tables of a checkpoint.
    pub(super) fn read<D: Device>(&self, device: &mut D, tables: &mut Tables) -> Result<()> {
        for (name, place, count) in self.tables() {
            let mut numbers = vec![0.0; count];
            super::weights::read_floats(device, place, &mut numbers)?;
            tables.insert(name.to_owned(), Data::Numbers(numbers));
        }
        Ok(())
    }

    /// Takes it from there; whether it was there.
    pub(super) fn write<D: Device>(&self, device: &mut D, tables: &Tables) -> Result<bool> {
        for (name, place, count) in self.tables() {
            let Some(Data::Numbers(numbers)) = tables.get(name) else { return Ok(false) };
            if numbers.len() != count {
                return Ok(false);
            }
            let bytes = |numbers: &[f32]| -> Vec<u8> {
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
            };
            device.write(place, &bytes(numbers))?;
            if name == SCALES {
                let inverses: Vec<f32> = numbers.iter().map(|scale| 1.0 / scale).collect();
                device.write(self.inverses, &bytes(&inverses))?;
            }
        }
        Ok(true)
    }

    fn tables(&self) -> [(&'static str, Place, usize); 2] {
        let count = TABLES * self.list.len();
        [(HISTORY, self.history, STEPS * count), (SCALES, self.scales, count)]
    }

    /// The tables of a checkpoint, as they are before the first step.
    pub(super) fn empty(&self) -> Vec<(String, Data)> {
        let table = |(name, _, count): (&str, Place, usize)| {
            (name.to_owned(), Data::Numbers(vec![if name == SCALES { 1.0 } else { 0.0 }; count]))
        };
        self.tables().into_iter().map(table).collect()
    }
}

/// Gradients have more exponents and fewer digits.
fn range(index: usize) -> Range {
    if index + 1 == TABLES { Range::Far } else { Range::Near }
}

impl Known {
    /// As a product is told.
    pub(super) fn eight(self) -> Eight {
        Eight { range: self.range, inverse: self.inverse }
    }
}

/// Rounds a table to eight bits, as it is and turned as is wanted; `keep`: its largest number counts.
pub(super) fn cast(
    work: &mut Work<'_>,
    table: Cast,
    known: Known,
    [plain, turned]: [bool; 2],
    keep: bool,
) -> Made {
    let Cast { from, rows, columns, stride } = table;
    let turned_stride = rows.next_multiple_of(MULTIPLE);
    let mut room = |wanted: bool, bytes: usize| if wanted { work.scratch.bytes(bytes) } else { 0 };
    let made = Made {
        plain: room(plain, rows * columns),
        turned: room(turned, columns * turned_stride),
        turned_stride,
    };
    let grid = [columns.div_ceil(SIDE), turned_stride.div_ceil(SIDE), 1];
    let parts = work.scratch.floats(grid[0] * grid[1]);
    let arguments = [
        &[Argument::Place(from), whole(rows), whole(columns), whole(stride)][..],
        &[Argument::Place(known.scale), whole(known.range as usize)],
        &[made.plain, made.turned].map(Argument::Place),
        &[whole(turned_stride), Argument::Place(parts)],
    ];
    let name = work.tape.named("to_eight");
    work.tape.kernel(&name, grid, 256, 0, &arguments.concat());
    if keep {
        let arguments = [Argument::Place(parts), whole(grid[0] * grid[1]), Argument::Place(known.largest)];
        work.tape.kernel("keep_largest_of_parts", [1, 1, 1], 256, 0, &arguments);
    }
    made
}

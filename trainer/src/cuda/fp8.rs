//! fp8 matmuls: which ones, and the scaling state of their tensors.
//!
//! Delayed scaling: a tensor is multiplied by a scale before it is rounded to fp8. The scale follows from the maximum
//! magnitude (amax) of the tensor in the last steps, a history that the device keeps; before the first step, the
//! first batch runs once only to fill it.

use siskin_device::{
    CommandList, Device, DevicePtr, Fp8Format, Fp8Operand, GridSize, KernelArgument, Precision, aligned,
};
use siskin_format::Result;
use siskin_graph::{Node, Op, WeightId, op};

use crate::program::Program;
use crate::state::{TableData, Tables};
use siskin_cuda::{CommandBuilder, int};

/// The length of the amax history, in steps.
const STEPS: usize = 16;
/// Rows and columns that a block processes.
const SIDE: usize = 32;
/// Rows and columns of fp8 matmuls are multiples of this.
const MULTIPLE: usize = 16;
/// Elements from an inverse scale to the next, as in `runtime/cuda/kernels/fp8.cu`: cuBLASLt reads them at multiples of
/// 16 bytes.
const SCALE_STRIDE: usize = 4;
/// Tensors of a matmul: input, weight, and the gradient of the output.
const TABLES: usize = 3;

/// The names of the tables of a checkpoint.
const HISTORY: &str = "fp8.history";
const SCALES: &str = "fp8.scales";

/// The fp8 matmuls, and the places of their tensors' scales.
#[derive(Clone, Debug)]
pub(super) struct Fp8Matmuls {
    /// The weight matrices, by index.
    list: Vec<WeightId>,
    /// Per tensor: amax of this step, amax of past steps, scales, inverse scales, and the largest value of the
    /// format.
    amax: DevicePtr,
    history: DevicePtr,
    scales: DevicePtr,
    inverse_scales: DevicePtr,
    limits: DevicePtr,
}

/// The scaling state of one tensor of a matmul.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fp8Scaling {
    amax: DevicePtr,
    scale: DevicePtr,
    inverse_scale: DevicePtr,
    format: Fp8Format,
}

/// The scaling state of a matmul's tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fp8LinearScaling {
    pub(super) input: Fp8Scaling,
    pub(super) weight: Fp8Scaling,
    /// Of the gradient of the output.
    pub(super) gradient: Fp8Scaling,
    /// Whether the amax of these tensors is recorded.
    pub(super) records_amax: bool,
}

/// The layouts that a tensor is cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fp8Layouts {
    pub(super) plain: bool,
    pub(super) transposed: bool,
}

impl Fp8Layouts {
    pub(super) const PLAIN: Self = Self { plain: true, transposed: false };
    pub(super) const TRANSPOSED: Self = Self { plain: false, transposed: true };
}

/// A tensor to be cast to fp8.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fp8Cast {
    pub(super) from: DevicePtr,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from a row to the next.
    pub(super) stride: usize,
}

/// The places of the fp8 tensor: as is, and transposed with rows padded to a multiple of 16.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fp8Tensor {
    pub(super) plain: DevicePtr,
    pub(super) transposed: DevicePtr,
    pub(super) transposed_stride: usize,
}

/// Returns the weight matrix of a node that can use fp8: those of feed-forward layers, and the last.
fn matrix(program: &Program, number: usize) -> Option<WeightId> {
    let Op::Linear(op::Linear { parts }) = &program.graph.nodes[number].op else { return None };
    let [(weight, _)] = parts[..] else { return None };
    let of = &program.graph.weights[weight];
    let named = of.name.contains("ffn_") || number + 1 == program.graph.nodes.len();
    let fits = of.rows.is_multiple_of(MULTIPLE) && of.columns.is_multiple_of(MULTIPLE);
    (named && fits).then_some(weight)
}

impl Fp8Matmuls {
    pub(super) fn new(device: &mut dyn Device, program: &Program) -> Result<Self> {
        let mut list: Vec<WeightId> =
            (0..program.graph.nodes.len()).filter_map(|number| matrix(program, number)).collect();
        list.sort_unstable();
        list.dedup();
        let count = TABLES * list.len();
        let mut alloc = |numbers: Vec<f32>| -> Result<DevicePtr> {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
            let place = device.allocate(aligned(bytes.len()))?;
            device.write(place, &bytes)?;
            Ok(place)
        };
        let limit = |index: usize| range(index % TABLES).max();
        Ok(Self {
            amax: alloc(vec![0.0; count])?,
            history: alloc(vec![0.0; STEPS * count])?,
            scales: alloc(vec![1.0; count])?,
            inverse_scales: alloc(vec![1.0; SCALE_STRIDE * count])?,
            limits: alloc((0..count).map(limit).collect())?,
            list,
        })
    }

    /// Returns the scaling state of a matmul's tensors; `None` without fp8.
    pub(super) fn of(&self, node: &Node, records_amax: bool) -> Option<Fp8LinearScaling> {
        let Op::Linear(op::Linear { parts }) = &node.op else { return None };
        let [(weight, _)] = parts[..] else { return None };
        let first = TABLES * self.list.binary_search(&weight).ok()?;
        let [input, weight, gradient] = std::array::from_fn(|index| {
            let element = |place: DevicePtr, index: usize| place + 4 * index as DevicePtr;
            let at = |place| element(place, first + index);
            Fp8Scaling {
                amax: at(self.amax),
                scale: at(self.scales),
                inverse_scale: element(self.inverse_scales, SCALE_STRIDE * (first + index)),
                format: range(index),
            }
        });
        Some(Fp8LinearScaling { input, weight, gradient, records_amax })
    }

    /// Returns the command list that updates the history after a step, or after the batch that only fills it.
    pub(super) fn amax_update_commands(&self, precision: Precision) -> CommandList {
        let mut commands = CommandList::new(precision);
        let count = TABLES * self.list.len();
        let places = [self.amax, self.history, self.scales, self.inverse_scales, self.limits];
        let arguments = [&places.map(KernelArgument::Ptr)[..], &[count, STEPS].map(int)].concat();
        commands.kernel("update_fp8_scales", GridSize::linear(count.div_ceil(256)), 256, 0, &arguments);
        commands
    }

    /// Resets the amax values of the current step.
    pub(super) fn reset(&self, device: &mut dyn Device) -> Result<()> {
        device.write(self.amax, &vec![0; 4 * TABLES * self.list.len()])
    }

    /// Copies the history into the tables of a checkpoint.
    pub(super) fn read(&self, device: &mut dyn Device, tables: &mut Tables) -> Result<()> {
        for (name, place, count) in self.tables() {
            let mut numbers = vec![0.0; count];
            super::weights::read_floats(device, place, &mut numbers)?;
            tables.insert(name.to_owned(), TableData::Numbers(numbers));
        }
        Ok(())
    }

    /// Loads the history from a checkpoint; returns false if it has none.
    pub(super) fn write(&self, device: &mut dyn Device, tables: &Tables) -> Result<bool> {
        for (name, place, count) in self.tables() {
            let Some(TableData::Numbers(numbers)) = tables.get(name) else { return Ok(false) };
            if numbers.len() != count {
                return Ok(false);
            }
            let bytes = |numbers: &[f32]| -> Vec<u8> {
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
            };
            device.write(place, &bytes(numbers))?;
            if name == SCALES {
                let inverses: Vec<f32> =
                    numbers.iter().flat_map(|scale| [1.0 / scale; SCALE_STRIDE]).collect();
                device.write(self.inverse_scales, &bytes(&inverses))?;
            }
        }
        Ok(true)
    }

    fn tables(&self) -> [(&'static str, DevicePtr, usize); 2] {
        let count = TABLES * self.list.len();
        [(HISTORY, self.history, STEPS * count), (SCALES, self.scales, count)]
    }

    /// Returns the tables of a checkpoint, as they are before the first step.
    pub(super) fn empty(&self) -> Vec<(String, TableData)> {
        let table = |(name, _, count): (&str, DevicePtr, usize)| {
            (name.to_owned(), TableData::Numbers(vec![if name == SCALES { 1.0 } else { 0.0 }; count]))
        };
        self.tables().into_iter().map(table).collect()
    }
}

/// Returns the fp8 format: gradients have more exponent and fewer mantissa bits.
fn range(index: usize) -> Fp8Format {
    if index + 1 == TABLES { Fp8Format::E5M2 } else { Fp8Format::E4M3 }
}

impl Fp8Scaling {
    /// Returns the fp8 operand of a matmul.
    pub(super) fn fp8(self) -> Fp8Operand {
        Fp8Operand { format: self.format, inverse_scale: self.inverse_scale }
    }
}

/// Casts a tensor to fp8, as is and transposed as requested; `keep`: its amax is recorded.
pub(super) fn cast(
    work: &mut CommandBuilder<'_>,
    table: Fp8Cast,
    known: Fp8Scaling,
    layouts: Fp8Layouts,
    keep: bool,
) -> Fp8Tensor {
    let Fp8Cast { from, rows, columns, stride } = table;
    let transposed_stride = rows.next_multiple_of(MULTIPLE);
    let mut alloc = |wanted: bool, bytes: usize| if wanted { work.scratch.bytes(bytes) } else { 0 };
    let made = Fp8Tensor {
        plain: alloc(layouts.plain, rows * columns),
        transposed: alloc(layouts.transposed, columns * transposed_stride),
        transposed_stride,
    };
    let (across, down) = (columns.div_ceil(SIDE), transposed_stride.div_ceil(SIDE));
    let grid = GridSize::new(across, down, 1);
    let parts = work.scratch.floats(across * down);
    let arguments = [
        &[KernelArgument::Ptr(from), int(rows), int(columns), int(stride)][..],
        &[KernelArgument::Ptr(known.scale), int(known.format as usize)],
        &[made.plain, made.transposed].map(KernelArgument::Ptr),
        &[int(transposed_stride), KernelArgument::Ptr(parts)],
    ];
    let name = work.commands.kernel_name("to_fp8");
    work.commands.kernel(&name, grid, 256, 0, &arguments.concat());
    if keep {
        let arguments = [KernelArgument::Ptr(parts), int(across * down), KernelArgument::Ptr(known.amax)];
        work.commands.kernel("update_amax", GridSize::linear(1), 256, 0, &arguments);
    }
    made
}

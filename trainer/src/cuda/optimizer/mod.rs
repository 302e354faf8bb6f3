//! Optimizers on a device: all tensors in one launch where the update rule allows it, after the norm of their
//! gradients.
//!
//! An optimizer is a file with a type that implements `DeviceUpdateRule`, and a line in `OPTIMIZERS`. The state tables
//! of each tensor, and so the contents of a checkpoint, are those of the CPU optimizer of that name.

mod adafactor;
mod adamw;
mod adamw_8bit;
mod layout;
mod lion;
mod muon;
mod sgd;

pub(super) use layout::{AllTensors, OptimizedWeight, StateTable, put, read_tables, write_tables};

use siskin_device::{CommandList, Device, DevicePtr, GridSize, KernelArgument, Precision};
use siskin_format::{Error, Result};

use super::weights::{DeviceWeights, TrainedWeight};
use crate::optimizer::{Optimizer, OptimizerOptions, StepArguments};
use crate::program::Program;
use crate::settings::{Settings, unknown};
use crate::state::{TableData, TableView, Tables, bytes_of, words};
use siskin_cuda::BatchTables;
use siskin_cuda::{CommandBuilder, OpScratch};

type Build = fn(&Settings) -> Result<Box<dyn DeviceUpdateRule>>;

/// All device optimizers: name, and constructor from settings.
const OPTIMIZERS: &[(&str, Build)] = &[
    ("adamw", adamw::adamw),
    ("adam", adamw::adam),
    ("sgd", sgd::build),
    ("lion", lion::build),
    ("adafactor", adafactor::build),
    ("muon", muon::build),
    ("adamw_8bit", adamw_8bit::build),
];

/// An update rule.
pub(super) trait DeviceUpdateRule {
    /// Returns what its kernels read of a step, by index; `count` is the number of the step, from 1.
    fn step_values(&self, count: u64) -> Vec<f64>;

    /// Returns a factor on the learning rate of a tensor, in addition to that of groups.
    fn lr_factor(&self, _: &OptimizedWeight) -> f64 {
        1.0
    }

    /// Appends the update with gradients of known norm, and the zeroing of gradients.
    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>);
}

/// The norm of a step's gradients, as the device computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OptimizerResult {
    /// The global norm, without the loss scale.
    pub grad_norm: f64,
    /// Whether all gradients are finite: otherwise the weights did not change.
    pub finite: bool,
    /// Successful steps so far.
    pub count: u64,
}

/// The f64 fields of `Step` in `runtime/cuda/kernels/optimizer.cuh`: host values common to all optimizers, host values
/// of this one, and results of the device.
const COMMON_SCALARS: usize = 4;
const METHOD_SCALARS: usize = 16;
const RESULT_SCALARS: usize = 3;

/// An optimizer that a device takes over.
#[derive(Clone, Copy)]
pub struct HostOptimizer<'a> {
    /// Its options.
    pub options: &'a OptimizerOptions,
    /// The same optimizer on the CPU, which names and sizes its states.
    pub state: &'a Optimizer,
}

/// An optimizer, and the places of its states.
pub(super) struct DeviceOptimizer {
    method: Box<dyn DeviceUpdateRule>,
    list: Vec<OptimizedWeight>,
    step: DevicePtr,
    commands: CommandList,
    /// Successful steps so far, and the name of their table.
    count: u64,
    table: String,
}

impl DeviceOptimizer {
    /// Creates the states of the weights that have gradients.
    pub(super) fn new(
        device: &mut dyn Device,
        precision: Precision,
        program: &Program,
        weights: &DeviceWeights,
        HostOptimizer { options, state }: HostOptimizer<'_>,
    ) -> Result<Self> {
        let Some((_, build)) = OPTIMIZERS.iter().find(|(name, _)| *name == options.name) else {
            let known: Vec<_> = OPTIMIZERS.iter().map(|(name, _)| *name).collect();
            return Err(unknown("optimizer.name", "optimizer", &options.name, &known));
        };
        let method = build(&options.settings).map_err(|error| error.within("optimizer"))?;
        let list = allocate_states(device, precision, program, weights, state)?;
        let tensors = put(device, &list, |held| method.lr_factor(held))?;
        let step = device.allocate(8 * (COMMON_SCALARS + METHOD_SCALARS + RESULT_SCALARS))?;
        device.write(step, &[0; 8 * (COMMON_SCALARS + METHOD_SCALARS + RESULT_SCALARS)])?;
        let commands = permanent_commands(device, precision, |work| {
            let all = AllTensors { list: &list, tensors, step };
            let parts = all.parts(work, "all", |_| true);
            let sums = work.scratch.doubles(parts.count);
            let count = KernelArgument::Int(parts.count as i32);
            let to = KernelArgument::Ptr(sums);
            all.launch(work, "grad_squares", parts, &[to]);
            work.commands.kernel(
                "grad_norm",
                GridSize::linear(1),
                layout::THREADS,
                0,
                &[to, count, KernelArgument::Ptr(step)],
            );
            work.scratch.clear();
            method.record(work, &all);
        })?;
        Ok(Self { method, list, step, commands, count: 0, table: state.step_table() })
    }

    /// Returns the place of the step data.
    pub(super) fn place(&self) -> DevicePtr {
        self.step
    }

    /// Runs one step, then the lists `after`; `arguments.grad_factor` is the loss scale of gradients, `ema_weight` the
    /// interpolation weight of the moving average.
    pub(super) fn step(
        &mut self,
        device: &mut dyn Device,
        arguments: StepArguments,
        limit: Option<f64>,
        ema_weight: f64,
        after: &[&CommandList],
    ) -> Result<OptimizerResult> {
        let mut scalars =
            vec![arguments.learning_rate, limit.unwrap_or(0.0), arguments.grad_factor, ema_weight];
        scalars.extend(self.method.step_values(self.count + 1));
        scalars.resize(COMMON_SCALARS + METHOD_SCALARS, 0.0);
        let bytes: Vec<u8> = scalars.into_iter().flat_map(f64::to_le_bytes).collect();
        device.write(self.step, &bytes)?;
        device.run(&self.commands)?;
        for commands in after {
            device.run(commands)?;
        }
        let mut bytes = [0; 8 * RESULT_SCALARS];
        device.read(self.step + 8 * (COMMON_SCALARS + METHOD_SCALARS) as DevicePtr, &mut bytes)?;
        let number = |index: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            f64::from_le_bytes(own)
        };
        let finite = number(2) != 0.0;
        self.count += u64::from(finite);
        Ok(OptimizerResult { grad_norm: number(0) / arguments.grad_factor, finite, count: self.count })
    }

    /// Copies all tables and the step count into those of a checkpoint.
    pub(super) fn read(&self, device: &mut dyn Device, tables: &mut Tables) -> Result<()> {
        read_tables(&self.list, device, tables)?;
        tables.insert(self.table.clone(), TableData::Bytes(bytes_of([self.count])));
        Ok(())
    }

    /// Loads them from a checkpoint.
    pub(super) fn write(&mut self, device: &mut dyn Device, tables: &Tables) -> Result<()> {
        write_tables(&self.list, device, tables)?;
        [self.count] = words(tables, &self.table)?;
        Ok(())
    }
}

/// Allocates the state tables of all trained tensors, initially zero.
fn allocate_states(
    device: &mut dyn Device,
    precision: Precision,
    program: &Program,
    weights: &DeviceWeights,
    own: &Optimizer,
) -> Result<Vec<OptimizedWeight>> {
    let mut list = Vec::new();
    let mut clear = CommandList::new(precision);
    for TrainedWeight { index, values, gradient } in weights.trained() {
        let factors = own.factors(index).ok_or_else(|| {
            Error::argument("optimizer", format!("tensor {index} is trained, but has no optimizer state"))
        })?;
        let mut tables = Vec::new();
        for (name, view) in own.tables_of(index) {
            let (place, bytes) = (device.allocate(view.bytes())?, view.bytes());
            clear.clear(place, bytes);
            tables.push(StateTable { name, place, bytes, floats: matches!(view, TableView::Numbers(_)) });
        }
        let of = &program.graph.weights[index];
        list.push(OptimizedWeight {
            weight: values,
            gradient,
            rows: of.rows,
            columns: of.columns,
            rate: factors.lr,
            decay: factors.weight_decay,
            tables,
        });
    }
    device.run(&clear)?;
    Ok(list)
}

/// Builds a command list whose lists and scratch are allocated permanently.
pub(super) fn permanent_commands(
    device: &mut dyn Device,
    precision: Precision,
    work: impl Fn(&mut CommandBuilder<'_>),
) -> Result<CommandList> {
    let mut places = [0; 2];
    loop {
        let mut commands = CommandList::new(precision);
        let (mut tables, mut scratch) = (BatchTables::new(places[0]), OpScratch::new(places[1]));
        work(&mut CommandBuilder { commands: &mut commands, tables: &mut tables, scratch: &mut scratch });
        if places[0] != 0 {
            device.write(places[0], tables.bytes())?;
            return Ok(commands);
        }
        places = [device.allocate(tables.bytes().len())?, device.allocate(scratch.max_bytes())?];
    }
}

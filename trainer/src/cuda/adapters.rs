//! The row norms of DoRA adapters, recomputed after each step.

use siskin::Result;

use super::Precision;
use super::device::Device;
use super::optimizer::write_down;
use super::tape::{DeviceMatrix, KernelArgument, Place, Tape, TapeMatmul};
use super::weights::DeviceWeights;
use crate::adapters::{Lengths, TrainedAdapter};
use crate::program::Program;

/// Elements of a matrix that are processed at once.
const MOST: usize = 1 << 24;

/// Builds the tape that updates the inverse row norms of each matrix plus its adapter, some rows at a time. Empty
/// without DoRA adapters.
pub(super) fn renew<D: Device>(
    device: &mut D,
    precision: Precision,
    program: &Program,
    weights: &DeviceWeights,
    (adapters, factor): (&[TrainedAdapter], f64),
) -> Result<Tape> {
    write_down(device, precision, |work| {
        for adapter in adapters {
            let Some(Lengths { inverse, .. }) = adapter.lengths else { continue };
            let [matrix, first, second, inverse] =
                [adapter.beside, adapter.first, adapter.second, inverse].map(|weight| weights.list[weight]);
            let (all, columns) =
                (program.weights[adapter.beside].rows, program.weights[adapter.beside].columns);
            let rank = program.weights[adapter.first].rows;
            let step = (MOST / columns.max(1)).clamp(1, all.max(1));
            work.scratch.clear();
            let sum = work.scratch.floats(step * columns);
            for start in (0..all).step_by(step) {
                let rows = step.min(all - start);
                let table = |place: Place, stride: usize| DeviceMatrix { place, stride, turned: false };
                work.tape.multiply(TapeMatmul {
                    precision: Precision::F32,
                    shape: [rows, columns, rank],
                    a: table(second.floats + (4 * start * rank) as Place, rank),
                    b: table(first.floats, columns),
                    out: table(sum, columns),
                    floats: true,
                    add: false,
                    bias: 0,
                    before: 0,
                    eights: None,
                });
                let numbers = matrix.numbers + (start * columns * precision.bytes()) as Place;
                let to = inverse.floats + 4 * start as Place;
                let arguments = [
                    KernelArgument::Place(numbers),
                    KernelArgument::Place(sum),
                    KernelArgument::Float(factor as f32),
                    KernelArgument::Place(to),
                    KernelArgument::Whole(rows as i32),
                    KernelArgument::Whole(columns as i32),
                ];
                work.tape.warps("inverse_lengths", rows, &arguments);
            }
        }
    })
}

//! Muon on a device: the Newton–Schulz matmuls matrix by matrix, everything else for all tensors at once.

use siskin_device::{DeviceMatrix, DevicePtr, GemmShape, GridSize, KernelArgument, MatmulCommand, Precision};
use siskin_format::Result;

use super::layout::{OptimizedWeight, TensorParts, parts_of};
use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::{AdamSettings, MuonOptions, NEWTON_SCHULZ};
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    let options: MuonOptions = read("muon", settings)?;
    let moments = options.adamw.moments("muon.adamw")?;
    Ok(Box::new(Muon { options, moments }))
}

struct Muon {
    options: MuonOptions,
    moments: AdamSettings,
}

/// Returns true if updates are orthogonalized; all other tensors use AdamW.
fn is_matrix(held: &OptimizedWeight) -> bool {
    held.tables.len() == 1
}

/// Returns the smaller dimension.
fn height(held: &OptimizedWeight) -> usize {
    held.rows.min(held.columns)
}

impl DeviceUpdateRule for Muon {
    /// Returns what the other optimizers read, then the values in the order of `OfMuon` in
    /// `runtime/cuda/kernels/muon.cu`.
    fn step_values(&self, count: u64) -> Vec<f64> {
        let MuonOptions { momentum, nesterov, weight_decay, eps, .. } = self.options;
        let own = [momentum, 1.0 - momentum, f64::from(u8::from(nesterov)), weight_decay, eps];
        [self.moments.step_values(count), own.to_vec()].concat()
    }

    fn lr_factor(&self, held: &OptimizedWeight) -> f64 {
        if is_matrix(held) { 1.0 } else { self.options.adamw_lr_factor }
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        self.moments.record(work, all);
        let parts = all.parts(work, "matrices", is_matrix);
        let (mut whole, mut first) = (Vec::new(), 0);
        for (tensor, held) in all.of(is_matrix) {
            whole.extend([tensor, first, parts_of(held), 0].map(|number| number as i32));
            first += parts_of(held);
        }
        let count = whole.len() / 4;
        let whole = work.tables.ints("whole matrices", || whole);
        let sums = KernelArgument::Ptr(work.scratch.doubles(parts.count));
        let lengths = KernelArgument::Ptr(work.scratch.doubles(all.list.len()));
        all.run(work, "muon_momentum", parts, &[sums]);
        let arguments = [KernelArgument::Ptr(whole), KernelArgument::Ptr(all.step), sums, lengths];
        work.commands.kernel("muon_norms", GridSize::linear(count), 256, 0, &arguments);
        all.run(work, "muon_normalize", parts, &[lengths]);
        let max_of = |size: fn(&OptimizedWeight) -> usize| {
            all.of(is_matrix).map(|(_, held)| size(held)).max().unwrap_or(0)
        };
        let temporaries = NewtonSchulzScratch {
            next: work.scratch.floats(max_of(|held| held.weight.count())),
            squares: [(); 3].map(|()| work.scratch.floats(max_of(|held| height(held) * height(held)))),
        };
        let mut place = parts.place;
        for (_, held) in all.of(is_matrix) {
            let changes = self.newton_schulz(work, held, &temporaries);
            let own = TensorParts { place, count: parts_of(held) };
            place += 8 * own.count as DevicePtr;
            let adjust = self.options.adjust_lr_fn.factor(held.rows, held.columns);
            let name = work.commands.kernel_name("muon");
            all.run(work, &name, own, &[KernelArgument::Ptr(changes), KernelArgument::Float(adjust as f32)]);
        }
    }
}

/// The scratch memory of the Newton–Schulz iteration, reused for each matrix.
struct NewtonSchulzScratch {
    next: DevicePtr,
    squares: [DevicePtr; 3],
}

impl Muon {
    /// Orthogonalizes the matrix in the place of the gradient: brings its singular values near 1. Returns the place
    /// of the result.
    fn newton_schulz(
        &self,
        work: &mut CommandBuilder<'_>,
        held: &OptimizedWeight,
        temporaries: &NewtonSchulzScratch,
    ) -> DevicePtr {
        let (height, stride) = (height(held), held.columns);
        let wide = held.rows <= held.columns;
        let [gram, sum, scaled] = temporaries.squares;
        let table = |place: DevicePtr, transposed: bool| DeviceMatrix { ptr: place, stride, transposed };
        let square = |place: DevicePtr| DeviceMatrix { ptr: place, stride: height, transposed: false };
        let product = |shape: GemmShape, a: DeviceMatrix, b: DeviceMatrix, out: DeviceMatrix, add: bool| {
            MatmulCommand {
                f32_output: true,
                accumulate: add,
                ..MatmulCommand::new(Precision::F32, shape, a, b, out)
            }
        };
        let [a, b, c] = NEWTON_SCHULZ.map(KernelArgument::Float);
        let blocks = (height * height).div_ceil(256).clamp(1, 4096);
        let (mut own, mut next) = (held.gradient, temporaries.next);
        for _ in 0..self.options.ns_steps {
            let depth = held.rows.max(held.columns);
            // X Xᵀ, where X is the matrix, or its transpose if it is tall.
            let (left, right) = (table(own, !wide), table(own, wide));
            work.commands.matmul(product(
                GemmShape { m: height, n: height, k: depth },
                left,
                right,
                square(gram),
                false,
            ));
            let places = [sum, scaled].map(KernelArgument::Ptr);
            let arguments =
                [&[KernelArgument::Ptr(gram), a, b, c], &places[..], &[KernelArgument::Int(height as i32)]]
                    .concat();
            work.commands.kernel("muon_polynomial", GridSize::linear(blocks), 256, 0, &arguments);
            let shape = GemmShape { m: height, n: height, k: height };
            work.commands.matmul(product(shape, square(scaled), square(gram), square(sum), true));
            let (x, out) = (table(own, false), table(next, false));
            let (left, right) = if wide { (square(sum), x) } else { (x, square(sum)) };
            work.commands.matmul(product(
                GemmShape { m: held.rows, n: held.columns, k: height },
                left,
                right,
                out,
                false,
            ));
            (own, next) = (next, own);
        }
        own
    }
}

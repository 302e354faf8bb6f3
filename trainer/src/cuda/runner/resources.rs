//! The memory and the peak throughput of a device.

use std::time::Instant;

use siskin_device::{CommandList, DeviceMatrix, DevicePtr, GemmShape, MatmulCommand};
use siskin_format::Result;

use super::{DeviceObjective, DeviceRunner, PassKind, StepBytes};
use crate::batch::TrainingBatch;
use crate::cuda::block_type;
use crate::cuda::loss::Objective;
use crate::loss::Targets;
use crate::program::{BatchBytes, WeightBytes};
use crate::random::Random;

/// Rows and columns of the benchmark matmul: enough to occupy the whole device.
const SIDE: usize = 4096;
/// The number of timed repetitions.
const ROUNDS: usize = 16;

impl DeviceRunner {
    /// Returns the command list of a batch, and the bytes that it takes besides the weights: activations, and scratch
    /// memory of operations.
    ///
    /// # Errors
    /// If the batch does not fit the program.
    pub fn plan(
        &self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
    ) -> Result<(CommandList, BatchBytes)> {
        let goal = DeviceObjective { loss, targets, scale: 1.0 };
        let plan =
            self.record(batch, goal, &self.layout(batch, PassKind::Training)?, PassKind::Training, false)?;
        let StepBytes { arena, scratch, head, tables } = plan.bytes;
        let work = scratch + head + tables + self.device.capabilities().workspace;
        Ok((plan.commands, BatchBytes { activations: arena, scratch: work }))
    }

    /// Returns the bytes that a batch takes besides the weights.
    ///
    /// # Errors
    /// If the batch does not fit the program.
    pub fn memory(&self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<BatchBytes> {
        Ok(self.plan(batch, loss, targets)?.1)
    }

    /// Returns the bytes of all tensors, and of their gradients.
    pub fn resident_bytes(&self) -> WeightBytes {
        self.weights.bytes()
    }

    /// Returns the free bytes of the device; `None` if only the memory of the process limits them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn free_bytes(&self) -> Result<Option<usize>> {
        self.device.free_bytes()
    }

    /// Returns the FLOP/s that the device's matmuls reach in the current precision; `None` if it is emulated on the
    /// CPU.
    ///
    /// # Errors
    /// If the device fails, or has no memory for a matmul.
    pub fn peak_flops(&mut self) -> Result<Option<f64>> {
        if !self.device.capabilities().timed {
            return Ok(None);
        }
        let bytes = SIDE * SIDE * self.precision.bytes();
        let base = self.device.allocate(3 * bytes)?;
        let matrix = |number: usize| DeviceMatrix {
            ptr: base + (number * bytes) as DevicePtr,
            stride: SIDE,
            transposed: false,
        };
        // Matmuls of zeros take less power and run faster.
        let mut random = Random::new(0, &[]);
        let row: Vec<f32> = (0..SIDE).map(|_| random.normal() as f32).collect();
        let mut encoded = vec![0; SIDE * self.precision.bytes()];
        block_type(self.precision).quantize_row(&row, None, &mut encoded);
        self.device.write(base, &encoded.repeat(2 * SIDE))?;
        let mut commands = CommandList::new(self.precision);
        commands.matmul(MatmulCommand {
            precision: self.precision,
            shape: GemmShape { m: SIDE, n: SIDE, k: SIDE },
            a: matrix(0),
            b: matrix(1),
            out: matrix(2),
            f32_output: false,
            accumulate: false,
            bias: 0,
            pre_activation: 0,
            fp8: None,
        });
        // The first run chooses the algorithm. The timed runs are enqueued without synchronization in between, so
        // that they execute back to back.
        self.device.run_uncaptured(&commands)?;
        self.wait()?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            self.device.run_uncaptured(&commands)?;
        }
        self.wait()?;
        let each = begin.elapsed().as_secs_f64() / ROUNDS as f64;
        self.device.free(base)?;
        Ok(Some(2.0 * (SIDE as f64).powi(3) / each.max(f64::MIN_POSITIVE)))
    }
}

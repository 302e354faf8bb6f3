//! What a device has room for, and how fast it is.

use std::time::Instant;

use siskin::Result;

use super::{Device, Goal, Runner, Tape};
use crate::batch::Batch;
use crate::cuda::loss::Objective;
use crate::cuda::tape::{Matrix, Place, Product};
use crate::loss::Targets;

/// Rows and columns of the products that a device is measured with: enough for all of it.
const SIDE: usize = 4096;
/// How many of them are timed.
const ROUNDS: usize = 16;

impl<D: Device> Runner<D> {
    /// What the work for a batch is, and the bytes that it takes beside the weights: of what is computed, and for the work of
    /// operations.
    ///
    /// # Errors
    /// Where the batch does not fit the program.
    pub fn plan(&self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<(Tape, [usize; 2])> {
        let goal = Goal { loss, targets, scale: 1.0 };
        let plan = self.write_down(batch, goal, &self.layout(batch, true)?, true, false)?;
        let [arena, work @ ..] = plan.bytes;
        Ok((plan.tape, [arena, work.iter().sum::<usize>() + self.device.own_bytes()]))
    }

    /// The bytes of all tensors, and of their gradients.
    pub fn held(&self) -> [usize; 2] {
        self.weights.bytes()
    }

    /// The bytes of the device that nothing has yet; none where that is as much as the process gets.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn free_bytes(&self) -> Result<Option<usize>> {
        self.device.free_bytes()
    }

    /// Multiplications and additions in a second that the device's own products reach, in the precision at hand; none
    /// where it is carried out by the processor.
    ///
    /// # Errors
    /// Where the device fails, or has no room for a product.
    pub fn ceiling(&mut self) -> Result<Option<f64>> {
        if !self.device.is_timed() {
            return Ok(None);
        }
        let bytes = SIDE * SIDE * self.precision.bytes();
        let base = self.device.allocate(3 * bytes)?;
        let matrix =
            |number: usize| Matrix { place: base + (number * bytes) as Place, stride: SIDE, turned: false };
        let mut tape = Tape::new(self.precision);
        tape.clear(base, 3 * bytes);
        self.device.once(&tape)?;
        let mut tape = Tape::new(self.precision);
        tape.multiply(Product {
            precision: self.precision,
            shape: [SIDE; 3],
            a: matrix(0),
            b: matrix(1),
            out: matrix(2),
            floats: false,
            add: false,
            bias: 0,
            before: 0,
            eights: None,
        });
        // The first chooses how the product is computed. Those that are timed are asked for without a word in between: they
        // begin as soon as the device is done with the one before.
        self.device.once(&tape)?;
        self.wait()?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            self.device.once(&tape)?;
        }
        self.wait()?;
        let each = begin.elapsed().as_secs_f64() / ROUNDS as f64;
        self.device.free(base)?;
        Ok(Some(2.0 * (SIDE as f64).powi(3) / each.max(f64::MIN_POSITIVE)))
    }
}

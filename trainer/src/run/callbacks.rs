//! What a run reports while it trains.

use serde_json::{Value, json};

use crate::profile::Event;
use crate::report::Sample;
use crate::statistics::StepStatistics;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Steps so far.
    pub step: u64,
    /// The total number of steps.
    pub steps: u64,
    /// The mean loss of the step.
    pub loss: f64,
    /// The accuracy: the fraction of targets with the highest score.
    pub accuracy: f64,
    /// The auxiliary loss of the routers, not included in `loss`.
    pub router_loss: f64,
    /// The gradient norm.
    pub grad_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// The loss scale; other than 1 only in fp16.
    pub loss_scale: f64,
    /// Steps of this process that were skipped because the scaled gradients were not finite.
    pub skipped_steps: u64,
    /// Rows processed.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// The number of completed epochs.
    pub epoch: u64,
    /// The FLOPs of its matmuls.
    pub flops: f64,
}

impl StepReport {
    /// Returns the progress as a line of a log.
    pub fn json(&self) -> Value {
        json!({
            "step": self.step, "loss": self.loss, "accuracy": self.accuracy, "grad_norm": self.grad_norm,
            "learning_rate": self.learning_rate, "tokens": self.tokens, "seconds": self.seconds, "epoch": self.epoch,
            "router_loss": self.router_loss, "flops": self.flops, "loss_scale": self.loss_scale,
            "skipped_steps": self.skipped_steps,
        })
    }
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Validation {
    /// The step it was made after.
    pub step: u64,
    /// The mean loss.
    pub loss: f64,
    /// The accuracy: the fraction of targets with the highest score.
    pub accuracy: f64,
    /// Whether it was the best so far.
    pub best: bool,
}

impl Validation {
    /// Returns the result as a line of a log.
    pub fn json(&self) -> Value {
        json!({
            "step": self.step, "validation_loss": self.loss, "validation_accuracy": self.accuracy, "best": self.best,
        })
    }
}

/// Callbacks of a run.
pub trait RunCallbacks {
    /// Called after each step.
    fn step(&mut self, _: &StepReport) {}
    /// Called after each validation.
    fn validation(&mut self, _: &Validation) {}
    /// Called with the sample generations after each validation.
    fn samples(&mut self, _step: u64, _: &[Sample]) {}
    /// Called with tensor statistics after each step in which they were computed.
    fn statistics(&mut self, _: &StepStatistics) {}
    /// Called with the recorded events after the last profiled step.
    fn profile(&mut self, _: &[Event]) {}
    /// Called with warnings that do not end the run.
    fn warning(&mut self, _: &str) {}
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps were done.
    Completed,
    /// Early stopping.
    EarlyStopped,
    /// Stopped by the caller; it can resume from its last checkpoint.
    Interrupted,
}

impl RunEnd {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "early_stopping",
            Self::Interrupted => "interrupted",
        }
    }
}

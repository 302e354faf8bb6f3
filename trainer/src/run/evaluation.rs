//! Evaluation of a model on held-out text.

use siskin_format::Result;

use super::config::RunConfig;
use super::device_trainer::{self, DeviceArguments, DeviceTrainer};
use super::setup::RunSetup;
use super::{OpenDevice, loss_pooling};
use crate::adapters;
use crate::loss::{self, Loss, LossSum};
use crate::optimizer::{Optimizer, OptimizerOptions};
use crate::parameters::{Gradients, Parameters};
use crate::program::Recompute;
use crate::runner::{Runner, TrainingObjective};

/// Returns the loss of a model on the validation data, or `None` without such data. Nothing is built that only
/// training needs.
///
/// An `adapter` replaces the initial adapter of the model.
pub fn evaluate(
    config: &RunConfig,
    setup: &RunSetup,
    adapter: Option<&siskin_graph::adapter::Adapter>,
) -> Result<Option<LossSum>> {
    evaluate_with_device(config, setup, adapter, &device_trainer::open)
}

/// Like [`evaluate`], on another device than the config names.
pub fn evaluate_with_device(
    config: &RunConfig,
    setup: &RunSetup,
    adapter: Option<&siskin_graph::adapter::Adapter>,
    open: OpenDevice<'_>,
) -> Result<Option<LossSum>> {
    let mut parameters = setup.parameters(config.seed)?;
    if let Some(adapter) = adapter {
        adapters::load(&mut parameters, &setup.adapters, &setup.options, adapter)?;
    }
    let config =
        RunConfig { loss: loss_pooling::loss(&config.loss, &setup.file_contents.config)?, ..config.clone() };
    let gradients = Gradients::zeros(&parameters, |_| false);
    let optimizer = Optimizer::new(&OptimizerOptions::named("sgd"), &parameters, &gradients)?;
    // fp8 scales come from past steps, and there are none.
    let device = open(&DeviceArguments {
        config: &RunConfig { optimizer: OptimizerOptions::named("sgd"), fp8: false, ..config.clone() },
        program: &setup.program,
        parameters: &parameters,
        gradients: &gradients,
        optimizer: &optimizer,
        ema: None,
        adapters: &setup.adapters,
        qat: None,
    })?;
    if let Some(runner) = device {
        return DeviceTrainer::new(&config, runner)?.evaluate(&config, setup);
    }
    let loss = loss::named(&config.loss)?;
    let mut runner = Runner::new(setup.program.clone(), Recompute::None, |_| false)?;
    evaluate_batches(&config, setup, &mut runner, loss.as_ref(), &parameters)
}

/// Like [`measure`], with the open inputs of a run.
pub(super) fn evaluate_batches(
    config: &RunConfig,
    setup: &RunSetup,
    runner: &mut Runner<f32>,
    loss: &dyn Loss<f32>,
    parameters: &Parameters<f32>,
) -> Result<Option<LossSum>> {
    let Some(loader) = setup.validation_batches(config)? else { return Ok(None) };
    let mut sum = LossSum::default();
    for step in loader {
        let step = step?;
        let goal = TrainingObjective { loss, targets: &step.targets, scale: 1.0 };
        sum.add(&runner.evaluate(parameters, &step.batch, goal, None)?);
    }
    Ok(Some(sum))
}

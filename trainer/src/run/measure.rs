//! Evaluation of a model on held-out text.

use siskin::Result;

use super::config::RunConfig;
use super::on_device::{self, OnDevice, Start};
use super::setup::Material;
use super::{MakeEngine, vectors};
use crate::adapters;
use crate::loss::{self, Loss, Sum};
use crate::optimizer::{Optimizer, OptimizerOptions};
use crate::parameters::{Gradients, Parameters};
use crate::program::Recompute;
use crate::runner::{Goal, Runner};

/// Returns the loss of a model on the validation data, or `None` without such data. Nothing is built that only
/// training needs.
///
/// An `adapter` replaces the initial adapter of the model.
pub fn measure(
    config: &RunConfig,
    material: &Material,
    adapter: Option<&siskin::Adapter>,
) -> Result<Option<Sum>> {
    measure_with_engine(config, material, adapter, &on_device::open)
}

/// Like [`measure`], on another device than the config names.
pub fn measure_with_engine(
    config: &RunConfig,
    material: &Material,
    adapter: Option<&siskin::Adapter>,
    engine: MakeEngine<'_>,
) -> Result<Option<Sum>> {
    let mut parameters = material.parameters(config.seed)?;
    if let Some(adapter) = adapter {
        adapters::take(&mut parameters, &material.adapters, &material.options, adapter)?;
    }
    let config = RunConfig { loss: vectors::loss(&config.loss, &material.frame.config)?, ..config.clone() };
    let gradients = Gradients::zeros(&parameters, |_| false);
    let optimizer = Optimizer::new(&OptimizerOptions::named("sgd"), &parameters, &gradients)?;
    // fp8 scales come from past steps, and there are none.
    let device = engine(&Start {
        config: &RunConfig { optimizer: OptimizerOptions::named("sgd"), fp8: false, ..config.clone() },
        program: &material.program,
        parameters: &parameters,
        gradients: &gradients,
        optimizer: &optimizer,
        average: None,
        adapters: &material.adapters,
        rounding: None,
    })?;
    if let Some(engine) = device {
        return OnDevice::new(&config, engine)?.look(&config, material);
    }
    let loss = loss::named(&config.loss)?;
    let mut runner = Runner::new(material.program.clone(), Recompute::Nothing, |_| false)?;
    look(&config, material, &mut runner, loss.as_ref(), &parameters)
}

/// Like [`measure`], with the open inputs of a run.
pub(super) fn look(
    config: &RunConfig,
    material: &Material,
    runner: &mut Runner<f32>,
    loss: &dyn Loss<f32>,
    parameters: &Parameters<f32>,
) -> Result<Option<Sum>> {
    let Some(loader) = material.validation_batches(config)? else { return Ok(None) };
    let mut sum = Sum::default();
    for step in loader {
        let step = step?;
        let goal = Goal { loss, targets: &step.targets, scale: 1.0 };
        sum.add(&runner.evaluate(parameters, &step.batch, goal, None)?);
    }
    Ok(Some(sum))
}

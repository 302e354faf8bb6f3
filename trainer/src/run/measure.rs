//! How far off a model is on the texts that it is not trained on.

use siskin::Result;

use super::config::Config;
use super::material::Material;
use super::vectors;
use crate::adapters;
use crate::loss::{self, Loss, Sum};
use crate::parameters::Parameters;
use crate::program::Recompute;
use crate::runner::{Goal, Runner};

/// How far off a model is on the validation texts; none where there are no such texts. Nothing is built that only
/// training needs.
///
/// An `adapter` takes the place of the one that the model begins with.
pub fn measure(
    config: &Config,
    material: &Material,
    adapter: Option<&siskin::Adapter>,
) -> Result<Option<Sum>> {
    let mut parameters = material.parameters(config.seed)?;
    if let Some(adapter) = adapter {
        adapters::take(&mut parameters, &material.adapters, &material.options, adapter)?;
    }
    let loss = loss::named(&vectors::loss(&config.loss, &material.frame.config)?)?;
    let mut runner = Runner::new(material.program.clone(), Recompute::Nothing, |_| false)?;
    look(config, material, &mut runner, loss.as_ref(), &parameters)
}

/// The same with what a run has at hand.
pub(super) fn look(
    config: &Config,
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

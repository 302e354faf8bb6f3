//! Parameter groups.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};
use siskin_graph::WeightRole;

use crate::parameters::{Parameter, Parameters};
use crate::settings::{fits, within};

/// A parameter group: tensors by name, and their options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The tensors: a name in which `*` matches any characters.
    pub tensors: String,
    /// The factor on their learning rate.
    #[serde(default)]
    pub lr_factor: Option<f64>,
    /// The factor on their weight decay.
    #[serde(default)]
    pub weight_decay_factor: Option<f64>,
}

/// The factors on the learning rate and the weight decay of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupFactors {
    /// The learning rate.
    pub lr: f64,
    /// The weight decay: by default 1 for matrices and 0 for vectors (norms and biases).
    pub weight_decay: f64,
}

/// Returns the factors of a tensor.
pub(super) fn factors(groups: &[Group], parameter: &Parameter<f32>) -> GroupFactors {
    let decay = match parameter.role {
        WeightRole::Matrix => 1.0,
        WeightRole::Vector => 0.0,
    };
    let mut factors = GroupFactors { lr: 1.0, weight_decay: decay };
    for group in groups.iter().filter(|group| fits(&group.tensors, &parameter.name)) {
        factors.lr = group.lr_factor.unwrap_or(factors.lr);
        factors.weight_decay = group.weight_decay_factor.unwrap_or(factors.weight_decay);
    }
    factors
}

/// Checks that every group matches a trained tensor.
pub(super) fn check(
    groups: &[Group],
    parameters: &Parameters<f32>,
    trained: impl Fn(usize) -> bool,
) -> Result<()> {
    for (index, group) in groups.iter().enumerate() {
        let place = format!("optimizer.groups[{index}]");
        within(&format!("{place}.lr_factor"), group.lr_factor.unwrap_or(1.0), 0.0..=f64::MAX)?;
        within(
            &format!("{place}.weight_decay_factor"),
            group.weight_decay_factor.unwrap_or(1.0),
            0.0..=f64::MAX,
        )?;
        let fits = |(index, parameter): (usize, &Parameter<f32>)| {
            trained(index) && fits(&group.tensors, &parameter.name)
        };
        if !parameters.list.iter().enumerate().any(fits) {
            let message =
                format!("no trainable tensor matches `{}`; `*` matches any characters", group.tensors);
            return Err(Error::argument(format!("{place}.tensors"), message));
        }
    }
    Ok(())
}

//! What is particular to some tensors.

use serde::{Deserialize, Serialize};
use siskin::graph::Role;
use siskin::{Error, Result};

use crate::parameters::{Parameter, Parameters};
use crate::settings::{fits, within};

/// Tensors by their names, and what is particular to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Which: a name in which `*` stands for any letters.
    pub tensors: String,
    /// What their rate is multiplied by.
    #[serde(default)]
    pub rate: Option<f64>,
    /// What their weight decay is multiplied by.
    #[serde(default)]
    pub decay: Option<f64>,
}

/// What the rate and the weight decay of a tensor are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// The rate.
    pub rate: f64,
    /// The weight decay: where no group says otherwise, 1 for matrices and 0 for vectors (norms and biases).
    pub decay: f64,
}

/// Those of a tensor.
pub(super) fn factors(groups: &[Group], parameter: &Parameter<f32>) -> Factors {
    let decay = match parameter.role {
        Role::Matrix => 1.0,
        Role::Vector => 0.0,
    };
    let mut factors = Factors { rate: 1.0, decay };
    for group in groups.iter().filter(|group| fits(&group.tensors, &parameter.name)) {
        factors.rate = group.rate.unwrap_or(factors.rate);
        factors.decay = group.decay.unwrap_or(factors.decay);
    }
    factors
}

/// Whether every group is about some tensor that is trained.
pub(super) fn check(
    groups: &[Group],
    parameters: &Parameters<f32>,
    trained: impl Fn(usize) -> bool,
) -> Result<()> {
    for (index, group) in groups.iter().enumerate() {
        let place = format!("optimiser.groups[{index}]");
        within(&format!("{place}.rate"), group.rate.unwrap_or(1.0), 0.0..=f64::MAX)?;
        within(&format!("{place}.decay"), group.decay.unwrap_or(1.0), 0.0..=f64::MAX)?;
        let fits = |(index, parameter): (usize, &Parameter<f32>)| {
            trained(index) && fits(&group.tensors, &parameter.name)
        };
        if !parameters.list.iter().enumerate().any(fits) {
            let message =
                format!("no tensor that is trained fits `{}`; `*` stands for any letters", group.tensors);
            return Err(Error::argument(format!("{place}.tensors"), message));
        }
    }
    Ok(())
}

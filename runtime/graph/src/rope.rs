//! RoPE tables.

/// Rotary position embedding (RoPE).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// One angular frequency per rotated pair: pair i is columns i and i + pairs of each head.
    pub frequencies: Vec<f32>,
    /// Factor on sine and cosine.
    pub magnitude: f32,
    /// How frequencies change for long sequences.
    pub stretch: Option<RopeScaling>,
}

impl RopeTable {
    /// Returns the frequency of each pair, in a sequence of current or expected length `length`.
    pub fn frequency(&self, length: usize) -> impl Fn(usize) -> f32 + use<'_> {
        let columns = 2 * self.frequencies.len();
        let long = self.stretch.as_ref().filter(|stretch| length > stretch.length);
        let (list, base) = match long.map(|stretch| (&stretch.growth, stretch.length)) {
            None => (&self.frequencies[..], None),
            Some((RopeScalingRule::Other(frequencies), _)) => (&frequencies[..], None),
            Some((growth, usual)) => (&[][..], Some(growth.base_for(length, usual, columns).unwrap_or(1.0))),
        };
        move |pair| match base {
            Some(base) => (1.0 / libm::pow(base, (2 * pair) as f64 / columns as f64)) as f32,
            None => list[pair],
        }
    }
}

/// RoPE frequencies that depend on the length of the sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeScaling {
    /// The maximum length with unchanged frequencies.
    pub length: usize,
    /// The frequencies of longer sequences.
    pub growth: RopeScalingRule,
}

/// The RoPE frequencies of long sequences.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScalingRule {
    /// Dynamic NTK scaling: the base grows with the length.
    Base {
        /// The base for short sequences.
        base: f64,
        /// Factor by which the context is extended.
        factor: f64,
    },
    /// LongRoPE: another set of frequencies, the same for all long sequences.
    Other(Vec<f32>),
}

impl RopeScalingRule {
    /// Returns the base for a sequence of `length` tokens, more than the `usual` length, with `size` rotated columns
    /// per head; `None` if there is no base.
    pub fn base_for(&self, length: usize, usual: usize, size: usize) -> Option<f64> {
        let &Self::Base { base, factor } = self else { return None };
        let times = factor * length as f64 / usual as f64 - (factor - 1.0);
        Some(base * libm::pow(times, size as f64 / (size as f64 - 2.0)))
    }
}

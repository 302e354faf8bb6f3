//! RoPE tables.

/// Rotary position embedding (RoPE).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// One angular frequency per rotated pair: pair i is columns i and i + pairs of each head.
    pub frequencies: Vec<f32>,
    /// Factor on sine and cosine.
    pub magnitude: f32,
    /// RoPE scaling that depends on the length of the sequence.
    pub scaling: Option<RopeScaling>,
}

impl RopeTable {
    /// Returns the frequency of each pair, in a sequence of current or expected length `length`.
    pub fn frequency(&self, length: usize) -> impl Fn(usize) -> f32 + use<'_> {
        let columns = 2 * self.frequencies.len();
        let long = self.scaling.as_ref().filter(|scaling| length > scaling.length);
        let (list, base) = match long.map(|scaling| (&scaling.method, scaling.length)) {
            None => (&self.frequencies[..], None),
            Some((RopeScalingMethod::LongRope(frequencies), _)) => (&frequencies[..], None),
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
    /// The maximum length with unscaled frequencies (`original_max_position_embeddings`).
    pub length: usize,
    /// The frequencies of longer sequences.
    pub method: RopeScalingMethod,
}

/// How RoPE frequencies of long sequences are scaled.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScalingMethod {
    /// Dynamic NTK scaling: the base grows with the length.
    DynamicNtk {
        /// The base for short sequences.
        base: f64,
        /// Factor by which the context is extended.
        factor: f64,
    },
    /// LongRoPE: another set of frequencies, the same for all long sequences.
    LongRope(Vec<f32>),
}

impl RopeScalingMethod {
    /// Returns the base for a sequence of `length` tokens, more than the `usual` length, with `size` rotated columns
    /// per head; `None` if there is no base.
    pub fn base_for(&self, length: usize, usual: usize, size: usize) -> Option<f64> {
        let &Self::DynamicNtk { base, factor } = self else { return None };
        let times = factor * length as f64 / usual as f64 - (factor - 1.0);
        Some(base * libm::pow(times, size as f64 / (size as f64 - 2.0)))
    }
}

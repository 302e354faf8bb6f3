//! Rotary tables.

/// How rotary positions pair the columns of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// One angular frequency per rotated pair: pair i is columns i and i + pairs of each head.
    pub frequencies: Vec<f32>,
    /// Factor on sine and cosine.
    pub magnitude: f32,
    /// How frequencies change for long sequences.
    pub stretch: Option<Stretch>,
}

/// Rotary frequencies that depend on the length of the sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// The length up to which nothing changes.
    pub length: usize,
    /// What comes then.
    pub growth: Growth,
}

/// The rotary frequencies of long sequences.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth {
    /// Those of a base that grows with the length (dynamic NTK scaling).
    Base {
        /// The base of sequences that are not long.
        base: f64,
        /// How many times longer sequences may be.
        factor: f64,
    },
    /// Others, the same for all long sequences (longrope).
    Other(Vec<f32>),
}

impl Growth {
    /// The base for a sequence of `length` tokens, more than the `usual`, where `size` columns of each head are rotated;
    /// `None` where there is no base.
    pub fn base_for(&self, length: usize, usual: usize, size: usize) -> Option<f64> {
        let &Self::Base { base, factor } = self else { return None };
        let times = factor * length as f64 / usual as f64 - (factor - 1.0);
        Some(base * libm::pow(times, size as f64 / (size as f64 - 2.0)))
    }
}

//! RoPE tables.

use siskin_graph::{RopeScalingRule, RopeTable};
use siskin_kernels::ops::rope;

/// Writes all cosines, then all sines for `position` in a sequence of current or expected length `length`.
pub fn angles(table: &RopeTable, position: usize, length: usize, out: &mut [f32]) {
    let position = position as u32;
    let long = table.stretch.as_ref().filter(|stretch| length > stretch.length);
    match long.map(|stretch| (&stretch.growth, stretch.length)) {
        None => rope::turns(&table.frequencies, table.magnitude, position, out),
        Some((RopeScalingRule::Other(frequencies), _)) => {
            rope::turns(frequencies, table.magnitude, position, out)
        }
        Some((growth, usual)) => {
            let base = growth.base_for(length, usual, out.len()).unwrap_or(1.0);
            let size = out.len() as f64;
            let frequency = |pair: usize| (1.0 / libm::pow(base, (2 * pair) as f64 / size)) as f32;
            rope::turns_of(&frequency, table.magnitude, position, out);
        }
    }
}

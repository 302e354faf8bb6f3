//! RoPE tables.

use siskin_graph::{Rope, RopeScalingMethod};
use siskin_kernels::ops::rope;

/// Writes all cosines, then all sines for `position` in a sequence of current or expected length `length`.
pub fn rope_cos_sin(table: &Rope, position: usize, length: usize, out: &mut [f32]) {
    let position = position as u32;
    let long = table.scaling.as_ref().filter(|scaling| length > scaling.length);
    match long.map(|scaling| (&scaling.method, scaling.length)) {
        None => rope::cos_sin(&table.frequencies, table.magnitude, position, out),
        Some((RopeScalingMethod::LongRope(frequencies), _)) => {
            rope::cos_sin(frequencies, table.magnitude, position, out)
        }
        Some((method, usual)) => {
            let base = method.base_for(length, usual, out.len()).unwrap_or(1.0);
            let size = out.len() as f64;
            let frequency = |pair: usize| (1.0 / libm::pow(base, (2 * pair) as f64 / size)) as f32;
            rope::cos_sin_of(&frequency, table.magnitude, position, out);
        }
    }
}

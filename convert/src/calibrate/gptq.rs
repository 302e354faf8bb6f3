//! GPTQ rounding (arXiv:2210.17323) in the LDLQ form of QuIP (arXiv:2307.13304): minimizes the squared error of the
//! layer's outputs over the calibration activations.
//!
//! Let H = XᵀX be the Hessian, X the activations, and e the rounding errors of a row. The squared output error is
//! e·H·eᵀ. The factorization H = U·D·Uᵀ, with U unit upper triangular, splits it into one term per column: D times the
//! square of the column's own error plus the errors propagated from earlier columns. Columns are rounded in order. The
//! propagated errors are added to a column before it is rounded, and D is the weight of its squared error.

use super::hessian::Hessian;
use siskin_kernels::quant::row::{GROUP, RowType};
use std::ops::Range;

/// Damping added to H's diagonal, as a fraction of the diagonal's mean. It regularizes directions that calibration did
/// not cover.
const DAMPING: f64 = 0.01;

/// The U·D·Uᵀ factors of a matrix's Hessian.
pub(crate) struct Gptq {
    /// D, the weight of each column's squared error.
    importance: Vec<f32>,
    blocks: Vec<Block>,
}

struct Block {
    columns: Range<usize>,
    /// U, row-major.
    upper: Vec<f32>,
}

/// Sums of squared output errors and of squared outputs of a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OutputErrors {
    /// Sum of squared errors.
    pub(crate) error: f64,
    /// Sum of squared outputs.
    pub(crate) signal: f64,
}

impl OutputErrors {
    pub(crate) fn add(&mut self, other: Self) {
        self.error += other.error;
        self.signal += other.signal;
    }
}

impl Gptq {
    /// Factors a Hessian. Returns `None` if a sum is NaN or infinite.
    pub(super) fn new(hessian: &Hessian) -> Option<Self> {
        if !hessian.blocks.iter().all(|(_, sums)| sums.iter().all(|sum| sum.is_finite())) {
            return None;
        }
        let mut importance = Vec::new();
        let blocks = hessian.blocks.iter().map(|(columns, sums)| {
            let (upper, diagonal) = factors(sums, columns.len());
            importance.extend_from_slice(&diagonal);
            Block { columns: columns.clone(), upper }
        });
        let blocks = blocks.collect();
        Some(Self { importance, blocks })
    }

    /// Encodes a rotated row. Returns `None` if the row's width does not match the factors.
    pub(crate) fn encode(&self, ty: RowType, rotated: &[f32], out: &mut [u8]) -> Option<OutputErrors> {
        let fits = rotated.len() == self.importance.len() && ty.row_bytes(rotated.len()) == Some(out.len());
        if !fits {
            return None;
        }
        let scale = ty.scale(rotated, Some(&self.importance));
        ty.put_scale(out, scale);
        let mut products = OutputErrors::default();
        for block in &self.blocks {
            block.encode(ty, scale, rotated, &self.importance, out, &mut products);
        }
        Some(products)
    }
}

impl Block {
    fn encode(
        &self,
        ty: RowType,
        scale: f32,
        rotated: &[f32],
        importance: &[f32],
        out: &mut [u8],
        products: &mut OutputErrors,
    ) {
        let (row, importance) = (&rotated[self.columns.clone()], &importance[self.columns.clone()]);
        let mut errors = vec![0.0; row.len()];
        for start in (0..row.len()).step_by(GROUP) {
            let handed = self.handed_on(&errors[..start], start);
            let whole = self.handed_on(&row[..start], start);
            let mut wanted: [f32; GROUP] = std::array::from_fn(|i| row[start + i] + handed[i]);
            let factor = ty.factor(scale, &wanted, Some(&importance[start..start + GROUP]));
            let group = (self.columns.start + start) / GROUP;
            ty.put_factor(out, group, factor);
            let mut signal: [f32; GROUP] = std::array::from_fn(|i| row[start + i] + whole[i]);
            for i in 0..GROUP {
                let q = ty.integer(scale, factor, wanted[i]);
                ty.put_code(out, self.columns.start + start + i, q);
                let value = scale * f32::from(q * i16::from(factor));
                let error = row[start + i] - value;
                errors[start + i] = error;
                let weight = f64::from(importance[start + i]);
                products.error += weight * f64::from(wanted[i] - value).powi(2);
                products.signal += weight * f64::from(signal[i]).powi(2);
                let upper = &self.upper[(start + i) * row.len() + start..][..GROUP];
                for j in i + 1..GROUP {
                    wanted[j] += error * upper[j];
                    signal[j] += row[start + i] * upper[j];
                }
            }
        }
    }

    /// Sums what the earlier columns propagate to the sixteen columns from `start`.
    fn handed_on(&self, before: &[f32], start: usize) -> [f32; GROUP] {
        let mut sums = [0.0; GROUP];
        for (x, upper) in before.iter().zip(self.upper.chunks_exact(self.columns.len())) {
            for (sum, upper) in sums.iter_mut().zip(&upper[start..start + GROUP]) {
                *sum += x * upper;
            }
        }
        sums
    }
}

/// Factors the damped matrix of `size` rows into U and D.
fn factors(sums: &[f32], size: usize) -> (Vec<f32>, Vec<f32>) {
    let mean = (0..size).map(|i| f64::from(sums[i * size + i])).sum::<f64>() / size.max(1) as f64;
    // Without calibration activations, all columns are weighted alike.
    let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
    let mut rest: Vec<f64> = sums.iter().map(|&sum| f64::from(sum)).collect();
    (0..size).for_each(|i| rest[i * size + i] += damping);
    let (mut upper, mut diagonal) = (vec![0.0; size * size], vec![0.0; size]);
    let mut column = vec![0.0; size];
    for j in (0..size).rev() {
        // Rounding errors can leave a pivot smaller than the damping.
        let pivot = rest[j * size + j].max(damping * 1e-3);
        diagonal[j] = pivot as f32;
        for i in 0..j {
            column[i] = rest[i * size + j] / pivot;
            upper[i * size + j] = column[i] as f32;
        }
        upper[j * size + j] = 1.0;
        let (above, last) = rest.split_at_mut(j * size);
        for (i, row) in above.chunks_exact_mut(size).enumerate() {
            let times = column[i];
            for (x, y) in row[..j].iter_mut().zip(&last[..j]) {
                *x -= times * y;
            }
        }
    }
    (upper, diagonal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the Hessian of rows with correlated neighboring columns.
    fn hessian(size: usize) -> Vec<f32> {
        (0..size * size).map(|at| 2.0 * 0.9_f32.powi((at / size).abs_diff(at % size) as i32)).collect()
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        let size = 64;
        let sums = hessian(size);
        let (upper, diagonal) = factors(&sums, size);
        for i in 0..size {
            for j in 0..size {
                let terms = (0..size).map(|k| upper[i * size + k] * diagonal[k] * upper[j * size + k]);
                let damped = sums[i * size + j] + if i == j { 0.02 } else { 0.0 };
                assert!((terms.sum::<f32>() - damped).abs() < 1e-4, "{i} {j}");
                assert!(i <= j || upper[i * size + j] == 0.0);
            }
        }
    }

    fn guide(size: usize) -> Gptq {
        let (upper, importance) = factors(&hessian(size), size);
        Gptq { importance, blocks: vec![Block { columns: 0..size, upper }] }
    }

    #[test]
    fn products_change_less_than_with_nearest_numbers() {
        let size = 128;
        let guide = guide(size);
        let sums = hessian(size);
        let row: Vec<f32> = (0..size).map(|i| ((i * 71 % 64) as f32 - 31.5) / 20.0).collect();
        let error = |encoded: &[u8]| {
            let mut back = vec![0.0; size];
            assert!(RowType::W4I.decode(encoded, &mut back));
            let e: Vec<f32> = row.iter().zip(&back).map(|(x, y)| x - y).collect();
            (0..size * size).map(|at| f64::from(e[at / size] * sums[at] * e[at % size])).sum::<f64>()
        };
        let mut nearest = vec![0; RowType::W4I.row_bytes(size).unwrap()];
        let mut guided = nearest.clone();
        assert!(RowType::W4I.encode(&row, None, &mut nearest));
        let products = guide.encode(RowType::W4I, &row, &mut guided).unwrap();
        assert!(error(&guided) < 0.6 * error(&nearest), "{} {}", error(&guided), error(&nearest));
        // The tolerance covers the damping.
        assert!((products.error / error(&guided) - 1.0).abs() < 0.2, "{} {}", products.error, error(&guided));
        let signal = (0..size * size).map(|at| f64::from(row[at / size] * sums[at] * row[at % size]));
        assert!((products.signal / signal.sum::<f64>() - 1.0).abs() < 0.2);
    }

    #[test]
    fn sums_beyond_all_numbers_guide_nothing() {
        let mut hessian = Hessian::new(64);
        hessian.add(&[1e18; 64]);
        assert!(Gptq::new(&hessian).is_some());
        hessian.add(&[1e19; 64]);
        assert!(Gptq::new(&hessian).is_none());
    }

    #[test]
    fn only_rows_of_its_size_are_guided() {
        let mut out = vec![0; RowType::W8R.row_bytes(64).unwrap()];
        assert!(guide(128).encode(RowType::W8R, &[0.0; 64], &mut out).is_none());
    }
}

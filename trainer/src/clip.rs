//! Gradient norm and gradient clipping.

use rayon::prelude::*;
use siskin_format::{Error, ErrorKind};

use crate::parameters::{Gradients, Parameters};
use crate::real::Real;

/// Elements that are summed sequentially: fixed, so that the sum does not depend on the number of threads.
const CHUNK: usize = 1 << 14;

/// The norm of a gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm {
    /// The square root of the sum of all squares, in f64.
    pub norm: f64,
    /// The last tensor whose gradient has NaN or infinity: the backward pass starts at the end of a model, so those
    /// of earlier tensors follow from it.
    pub non_finite: Option<usize>,
}

impl GradientNorm {
    /// Computes the global norm of all tensors.
    pub fn of<T: Real>(gradients: &Gradients<T>) -> Self {
        let (mut sum, mut broken) = (0.0, None);
        for (index, gradient) in gradients.list.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let square = sum_of_squares(gradient);
            if !square.is_finite() {
                broken = Some(index);
            }
            sum += square;
        }
        Self { norm: sum.sqrt(), non_finite: broken }
    }

    /// Returns true if all gradients are finite.
    pub fn is_finite(&self) -> bool {
        self.non_finite.is_none()
    }

    /// Returns the factor on gradients that were scaled by `scale` and are clipped to the norm `limit`; `None`: no
    /// clipping.
    pub fn factor(&self, scale: f64, limit: Option<f64>) -> f64 {
        let short = limit.map_or(1.0, |limit| (limit / (self.norm / scale + 1e-6)).min(1.0));
        short / scale
    }

    /// Returns the error for a non-finite gradient, with the tensor's name; `None` if all are finite.
    pub fn error<T>(&self, parameters: &Parameters<T>) -> Option<Error> {
        let name = parameters.list.get(self.non_finite?).map_or("?", |parameter| parameter.name.as_str());
        Some(not_finite(name))
    }
}

/// Returns the error for the gradient of this tensor.
fn not_finite(name: &str) -> Error {
    let message = "contains NaN or infinity, although all activations are finite; lower the learning rate, or \
                   inspect the [statistics] of earlier steps";
    Error::new(ErrorKind::Numeric, format!("gradient of {name}"), message)
}

/// Returns the sum of squares, added in order.
pub(crate) fn sum_of_squares<T: Real>(numbers: &[T]) -> f64 {
    let square = |chunk: &[T]| chunk.iter().map(|number| number.f64() * number.f64()).sum::<f64>();
    let sums: Vec<f64> = numbers.par_chunks(CHUNK).map(square).collect();
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use siskin_graph::WeightRole;

    use super::*;
    use crate::parameters::Parameter;

    #[test]
    fn the_norm_covers_all_tensors() {
        let gradients = Gradients { list: vec![Some(vec![3.0_f32; 40_000]), None, Some(vec![-4.0; 40_000])] };
        let norm = GradientNorm::of(&gradients);
        assert_eq!(norm, GradientNorm { norm: 1000.0, non_finite: None });
        assert_eq!(norm.factor(1.0, None), 1.0);
        assert!((norm.factor(1.0, Some(1.0)) * 1000.0 - 1.0).abs() < 1e-6);
        assert!(
            (norm.factor(10.0, Some(1.0)) * 1000.0 - 1.0).abs() < 1e-6,
            "the limit is that of what is not scaled"
        );
        assert_eq!(norm.factor(8.0, Some(1e9)), 0.125, "what is short stays");
    }

    #[test]
    fn errors_name_the_tensor_with_non_finite_gradients() {
        let names = ["first", "second", "third"];
        let parameter = |name: &&str| Parameter {
            name: (*name).to_owned(),
            rows: 1,
            columns: 2,
            role: WeightRole::Vector,
            numbers: vec![0.0_f32; 2],
            forward: Default::default(),
        };
        let parameters = Parameters { list: names.iter().map(parameter).collect() };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let list = vec![Some(vec![f32::MAX; 2]), Some(vec![0.0, bad]), Some(vec![1.0, 0.0])];
            let norm = GradientNorm::of(&Gradients { list });
            let error = norm.error(&parameters).unwrap();
            assert_eq!((error.location(), error.kind()), ("gradient of second", ErrorKind::Numeric));
        }
        let finite = GradientNorm::of(&Gradients { list: vec![Some(vec![f32::MAX; 9])] });
        assert!(finite.is_finite() && finite.error(&parameters).is_none());
    }
}

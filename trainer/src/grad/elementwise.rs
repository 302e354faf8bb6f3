//! Elementwise functions.

use siskin_graph::ActivationFunction;
use siskin_graph::op::{Activate, Clamp, ClampedGate, Gate, Scale, Softcap};

use super::{GradientRule, RuleBackward, RuleCall, table};
use crate::real::Real;

/// The value of a function of one variable, and its derivative.
type ValueAndDerivative<T> = (T, T);

#[inline]
pub(super) fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

#[inline]
fn silu<T: Real>(x: T) -> ValueAndDerivative<T> {
    let s = sigmoid(x);
    (x * s, s * (T::ONE + x * (T::ONE - s)))
}

fn gelu<T: Real>(x: T) -> ValueAndDerivative<T> {
    let half = T::of(0.5);
    let below = half * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
    let density = T::of(0.398_942_280_401_432_7) * (-half * x * x).exp();
    (x * below, below + x * density)
}

#[inline]
fn gelu_tanh<T: Real>(x: T) -> ValueAndDerivative<T> {
    let (one, half) = (T::ONE, T::of(0.5));
    let (root, cubic) = (T::of(0.797_884_560_802_865_4), T::of(0.044_715));
    let t = (root * (x + cubic * x * x * x)).tanh();
    let inner = root * (one + T::of(3.0) * cubic * x * x);
    (half * x * (one + t), half * (one + t) + half * x * (one - t * t) * inner)
}

#[inline]
fn relu<T: Real>(x: T) -> ValueAndDerivative<T> {
    if x > T::ZERO { (x, T::ONE) } else { (T::ZERO, T::ZERO) }
}

#[inline]
fn logistic<T: Real>(x: T) -> ValueAndDerivative<T> {
    let s = sigmoid(x);
    (s, s * (T::ONE - s))
}

#[inline]
fn elu_plus_one<T: Real>(x: T) -> ValueAndDerivative<T> {
    let e = x.exp();
    if x > T::ZERO { (x + T::ONE, T::ONE) } else { (e, e) }
}

/// Evaluates `$body` with the activation's function as `$function`: each activation gets its own copy of the loops,
/// which vectorize.
macro_rules! with_activation {
    ($kind:expr, |$function:ident| $body:expr) => {
        with_activation!($kind, $function, $body, [
            Silu silu, Gelu gelu, GeluTanh gelu_tanh, Relu relu, Sigmoid logistic, EluPlusOne elu_plus_one
        ])
    };
    ($kind:expr, $function:ident, $body:expr, [$($name:ident $code:ident),*]) => {
        match $kind {
            $(ActivationFunction::$name => {
                let $function = $code::<T>;
                $body
            })*
        }
    };
}

/// The direction in which a rule runs.
enum ElementwisePass<'a, 'b, T> {
    Forward(&'a [&'a [T]], &'a mut [T]),
    Backward(RuleBackward<'a, 'b, T>),
}

impl<T: Real> ElementwisePass<'_, '_, T> {
    /// Applies an elementwise function of one input.
    fn unary(self, call: &RuleCall<'_, T>, function: impl Fn(T) -> ValueAndDerivative<T> + Sync) {
        let columns = call.columns();
        match self {
            Self::Forward(inputs, out) => table::each(out, columns, |row, out| {
                let x = table::row(inputs[0], columns, row);
                out.iter_mut().zip(x).for_each(|(out, x)| *out = function(*x).0);
            }),
            Self::Backward(back) => {
                let Some(to) = &mut back.input_gradients[0] else { return };
                table::each(to, columns, |row, to| {
                    let numbers = table::row(back.inputs[0], columns, row);
                    let numbers = numbers.iter().zip(table::row(back.gradient, columns, row));
                    to.iter_mut().zip(numbers).for_each(|(to, (x, g))| *to += *g * function(*x).1);
                });
            }
        }
    }

    /// Applies an elementwise function of two inputs: its value, and its partial derivatives.
    fn binary(self, call: &RuleCall<'_, T>, function: impl Fn(T, T) -> (T, [T; 2]) + Sync) {
        let columns = call.columns();
        match self {
            Self::Forward(inputs, out) => table::each(out, columns, |row, out| {
                let [x, y] = [0, 1].map(|input| table::row(inputs[input], columns, row));
                out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out = function(*x, *y).0);
            }),
            Self::Backward(back) => {
                for (index, to) in back.input_gradients.iter_mut().enumerate() {
                    let Some(to) = to else { continue };
                    table::each(to, columns, |row, to| {
                        let [x, y] = [0, 1].map(|input| table::row(back.inputs[input], columns, row));
                        let numbers = x.iter().zip(y).zip(table::row(back.gradient, columns, row));
                        to.iter_mut()
                            .zip(numbers)
                            .for_each(|(to, ((x, y), g))| *to += *g * function(*x, *y).1[index]);
                    });
                }
            }
        }
    }
}

/// Element-wise rules: the operation, and its body for both directions.
macro_rules! elementwise_rules {
    ($($operation:ident: |$own:ident, $call:ident, $pass:ident| $body:expr;)*) => {$(
        impl<T: Real> GradientRule<T> for $operation {
            fn forward(&self, $call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
                let ($own, $pass) = (self, ElementwisePass::Forward(inputs, out));
                $body
            }

            fn backward(&self, $call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
                let ($own, $pass) = (self, ElementwisePass::Backward(back));
                $body
            }
        }
    )*};
}

elementwise_rules! {
    Activate: |own, call, pass| with_activation!(own.function, |function| pass.unary(call, function));
    Scale: |own, call, pass| {
        let factor = T::of(f64::from(own.factor));
        pass.unary(call, |x| (x * factor, factor))
    };
    Softcap: |own, call, pass| {
        let cap = T::of(f64::from(own.cap));
        pass.unary(call, |x| {
            let t = (x / cap).tanh();
            (cap * t, T::ONE - t * t)
        })
    };
    Clamp: |own, call, pass| {
        let limit = T::of(f64::from(own.limit));
        pass.unary(call, |x| clamp(x, -limit, limit))
    };
    Gate: |own, call, pass| {
        with_activation!(own.function, |function| pass.binary(call, |gate, up| {
            let (value, derivative) = function(gate);
            (value * up, [derivative * up, value])
        }))
    };
    ClampedGate: |own, call, pass| {
        let [limit, slope] = [own.limits.limit, own.limits.slope].map(|x| T::of(f64::from(x)));
        pass.binary(call, |gate, up| {
            let (g, gate_passes) = if gate > limit { (limit, T::ZERO) } else { (gate, T::ONE) };
            let (u, up_passes) = clamp(up, -limit, limit);
            let s = sigmoid(slope * g);
            let derivative = s + g * slope * s * (T::ONE - s);
            (g * s * (u + T::ONE), [gate_passes * derivative * (u + T::ONE), up_passes * g * s])
        })
    };
}

/// A clamped value; the derivative is zero beyond the limits.
#[inline]
fn clamp<T: Real>(x: T, lowest: T, highest: T) -> ValueAndDerivative<T> {
    if x > highest {
        (highest, T::ZERO)
    } else if x < lowest {
        (lowest, T::ZERO)
    } else {
        (x, T::ONE)
    }
}

//! Functions of each number.

use siskin::graph::{ActivationKind, Op};

use super::{Back, Call, Rule, table};
use crate::real::Real;

/// A function of one number and how steep it is there.
fn value_and_slope<T: Real>(kind: ActivationKind, x: T) -> (T, T) {
    let (one, half) = (T::ONE, T::of(0.5));
    match kind {
        ActivationKind::Silu => {
            let s = sigmoid(x);
            (x * s, s * (one + x * (one - s)))
        }
        ActivationKind::Gelu => {
            let below = half * (one + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
            let density = T::of(0.398_942_280_401_432_7) * (-half * x * x).exp();
            (x * below, below + x * density)
        }
        ActivationKind::GeluTanh => {
            let (root, cubic) = (T::of(0.797_884_560_802_865_4), T::of(0.044_715));
            let t = (root * (x + cubic * x * x * x)).tanh();
            let inner = root * (one + T::of(3.0) * cubic * x * x);
            (half * x * (one + t), half * (one + t) + half * x * (one - t * t) * inner)
        }
        ActivationKind::Relu => {
            if x > T::ZERO {
                (x, one)
            } else {
                (T::ZERO, T::ZERO)
            }
        }
        ActivationKind::Sigmoid => {
            let s = sigmoid(x);
            (s, s * (one - s))
        }
        ActivationKind::EluPlusOne => {
            if x > T::ZERO {
                (x + one, one)
            } else {
                (x.exp(), x.exp())
            }
        }
    }
}

pub(super) fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

/// Rules whose output numbers depend on one input number each.
macro_rules! of_one {
    ($($(#[$about:meta])* $name:ident, $pattern:pat => $function:expr;)*) => {$(
        $(#[$about])*
        pub(super) struct $name;

        impl<T: Real> Rule<T> for $name {
            fn forward(&self, call: &Call<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
                let $pattern = call.node.op else { return };
                let function = $function;
                let columns = call.columns();
                table::each(out, columns, |row, out| {
                    let x = table::row(inputs[0], columns, row);
                    out.iter_mut().zip(x).for_each(|(out, x)| *out = function(*x).0);
                });
            }

            fn backward(&self, call: &Call<'_, T>, back: Back<'_, '_, T>) {
                let $pattern = call.node.op else { return };
                let function = $function;
                let columns = call.columns();
                let Some(to) = &mut back.to[0] else { return };
                table::each(to, columns, |row, to| {
                    let numbers = table::row(back.inputs[0], columns, row);
                    let gradient = table::row(back.gradient, columns, row);
                    let numbers = numbers.iter().zip(gradient);
                    to.iter_mut().zip(numbers).for_each(|(to, (x, g))| *to += *g * function(*x).1);
                });
            }
        }
    )*};
}

of_one! {
    /// A function of each number.
    Activate, Op::Activate(kind) => move |x: T| value_and_slope(kind, x);
    /// Every number times a constant.
    Scale, Op::Scale(factor) => {
        let factor = T::of(f64::from(factor));
        move |x: T| (x * factor, factor)
    };
    /// `cap · tanh(x / cap)`.
    Softcap, Op::Softcap(cap) => {
        let cap = T::of(f64::from(cap));
        move |x: T| {
            let t = (x / cap).tanh();
            (cap * t, T::ONE - t * t)
        }
    };
    /// Every number limited to ± the constant.
    Clamp, Op::Clamp(limit) => {
        let limit = T::of(f64::from(limit));
        move |x: T| if x > limit { (limit, T::ZERO) } else if x < -limit { (-limit, T::ZERO) } else { (x, T::ONE) }
    };
}

/// Rules whose output numbers depend on a gate and another number each: value, and how steep it is along both.
macro_rules! of_two {
    ($($(#[$about:meta])* $name:ident, $pattern:pat => $function:expr;)*) => {$(
        $(#[$about])*
        pub(super) struct $name;

        impl<T: Real> Rule<T> for $name {
            fn forward(&self, call: &Call<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
                let $pattern = call.node.op else { return };
                let function = $function;
                let columns = call.columns();
                table::each(out, columns, |row, out| {
                    let (gate, up) = (table::row(inputs[0], columns, row), table::row(inputs[1], columns, row));
                    out.iter_mut().zip(gate).zip(up).for_each(|((out, g), u)| *out = function(*g, *u).0);
                });
            }

            fn backward(&self, call: &Call<'_, T>, back: Back<'_, '_, T>) {
                let $pattern = call.node.op else { return };
                let function = $function;
                let columns = call.columns();
                for (index, to) in back.to.iter_mut().enumerate() {
                    let Some(to) = to else { continue };
                    table::each(to, columns, |row, to| {
                        let inputs = [0, 1].map(|input| table::row(back.inputs[input], columns, row));
                        let gradient = table::row(back.gradient, columns, row);
                        for (i, to) in to.iter_mut().enumerate() {
                            *to += gradient[i] * function(inputs[0][i], inputs[1][i]).1[index];
                        }
                    });
                }
            }
        }
    )*};
}

of_two! {
    /// `activation(gate) · up`.
    Gate, Op::Gate(kind) => move |gate: T, up: T| {
        let (value, slope) = value_and_slope(kind, gate);
        (value * up, [slope * up, value])
    };
    /// `g · sigmoid(slope · g) · (u + 1)` of what the limits leave.
    GateLimited, Op::GateLimited(limits) => {
        let (limit, slope) = (T::of(f64::from(limits.limit)), T::of(f64::from(limits.slope)));
        move |gate: T, up: T| {
            let (g, open) = if gate > limit { (limit, T::ZERO) } else { (gate, T::ONE) };
            let (u, free) = if up > limit {
                (limit, T::ZERO)
            } else if up < -limit {
                (-limit, T::ZERO)
            } else {
                (up, T::ONE)
            };
            let s = sigmoid(slope * g);
            let along = s + g * slope * s * (T::ONE - s);
            (g * s * (u + T::ONE), [open * along * (u + T::ONE), free * g * s])
        }
    };
}

//! The operations of a graph: one struct for each, and one table of them.
//!
//! A struct has the operation's parameters, and implements [`Operation`]: its weights, shapes and checks. Everything
//! else that is done with operations is a trait of the crate that does it, which every struct implements. The crate
//! finds the implementation with [`dispatch!`](crate::dispatch), which does not compile while one is missing.

mod attention;
mod columns;
mod elementwise;
mod embed;
mod experts;
mod head;
mod input;
mod linear;
mod linear_attention;
mod multi_lora;
mod norm;
mod operation;

pub use attention::{
    Attention, AttentionMask, KeyBias, LinformerProjection, RelativePositionBias, Rope, StoreCrossKv,
};
pub use columns::{Im2col, RepeatColumns, SelectOutputs, SliceColumns};
pub use elementwise::{Activate, Add, Affine, Clamp, ClampedGate, Gate, Scale, Softcap};
pub use embed::{Embed, EmbedPosition, EmbedSegment, SinusoidalPositions};
pub use experts::{Combine, Dispatch, ExpertLinear, Route, Routing};
pub use head::HeadRole;
pub use input::{ExternalInput, InputFeatures};
pub use linear::Linear;
pub use linear_attention::{CausalConv1d, DecayGate, LinearAttention, STATE_PANEL, StateUpdate};
pub use multi_lora::{LoraWeights, MultiLora};
pub use norm::{L2Normalize, Norm, NormKind};
pub use operation::{Operands, Operation, ShapeCheck};

use crate::types::WeightId;
use std::fmt;

/// Defines [`Op`] and [`dispatch!`](crate::dispatch) from the names of the operations. The first token is a dollar
/// sign, which the definition of a macro in a macro needs.
macro_rules! operations {
    ($d:tt $($name:ident,)*) => {
        /// One operation.
        #[derive(Clone, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        impl Op {
            /// The names of all operations.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// Returns the name, without parameters.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }
        }

        $(impl From<$name> for Op {
            fn from(operation: $name) -> Self {
                Self::$name(operation)
            }
        }

        impl OpVariant for $name {
            fn of(op: &Op) -> Option<&Self> {
                if let Op::$name(operation) = op { Some(operation) } else { None }
            }
        })*

        /// Evaluates an expression with the struct of an operation: `dispatch!(op, |operation| expression)` takes an
        /// [`Op`](crate::Op) or a reference to one. The expression is compiled once for each operation, so that a
        /// trait which it uses must be implemented by all of them.
        #[macro_export]
        macro_rules! dispatch {
            ($d op:expr, |$d operation:ident| $d then:expr) => {
                match $d op { $($crate::Op::$name($d operation) => $d then,)* }
            };
        }
    };
}

operations! { $
    Embed,
    EmbedSegment,
    EmbedPosition,
    SinusoidalPositions,
    InputFeatures,
    ExternalInput,
    Im2col,
    Norm,
    L2Normalize,
    Linear,
    MultiLora,
    Route,
    Dispatch,
    ExpertLinear,
    Combine,
    SliceColumns,
    RepeatColumns,
    SelectOutputs,
    Rope,
    Attention,
    StoreCrossKv,
    DecayGate,
    CausalConv1d,
    LinearAttention,
    Activate,
    Gate,
    ClampedGate,
    Add,
    Affine,
    Scale,
    Softcap,
    Clamp,
}

/// The struct of an operation, which [`Op::downcast_ref`] returns.
pub trait OpVariant: Sized {
    /// Returns the struct if `op` is this operation.
    fn of(op: &Op) -> Option<&Self>;
}

impl Op {
    /// Returns the struct of the operation if it is a `T`, as in `op.downcast_ref::<Attention>()`.
    pub fn downcast_ref<T: OpVariant>(&self) -> Option<&T> {
        T::of(self)
    }

    /// Returns the operation's shape rule and weights.
    pub fn operation(&self) -> &dyn Operation {
        dispatch!(self, |operation| operation)
    }

    /// Calls `change` with each weight that the operation uses.
    pub fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        dispatch!(self, |operation| operation.each_weight(change))
    }

    /// Returns the weights that the operation uses.
    pub fn weights(&self) -> Vec<WeightId> {
        let mut named = Vec::new();
        self.clone().each_weight(&mut |weight| named.push(*weight));
        named
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        dispatch!(self, |operation| operation.fmt(formatter))
    }
}

//! The dtype of activations.

/// The dtype of activations and their gradients. Weights, their gradients and optimizer states are kept in f32 in
/// addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32.
    #[default]
    F32,
    /// bfloat16: the high 16 bits of an f32.
    Bf16,
    /// IEEE half precision: the loss is scaled so that small gradients do not underflow.
    Fp16,
}

impl Precision {
    /// Returns the suffix of its kernels' names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "f16",
        }
    }

    /// Returns the bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }

    /// Returns the smallest number of columns, at least `columns`, whose rows are multiples of 16 bytes.
    pub fn padded(self, columns: usize) -> usize {
        columns.next_multiple_of(self.vector_width())
    }

    /// Returns the number of elements in 16 bytes, the widest load of a thread.
    pub fn vector_width(self) -> usize {
        16 / self.bytes()
    }
}

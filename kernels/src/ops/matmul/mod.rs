//! Matmul of activation rows with packed weight matrices: `out = x · Wᵀ (+ bias) (+ residual)`.
//!
//! Contract, for each output:
//! - Row types: the row is rotated and quantized; all products of a row form one exact integer sum, and the
//!   result is `Σ q·a · (scale · a_scale)`, with the scales multiplied first.
//! - Other integer types: the row is quantized (see [`quantize`](super::quantize)). From zero, sub-block by
//!   sub-block in order of K, `acc = fma(Σ q·a, scale · a_scale, acc)` with an exact integer sum; for types
//!   with a minimum, followed by `acc = fma(min, a_scale · Σ a, acc)`.
//! - Float types: from zero, column by column in order of K, `acc = fma(w, x, acc)`.
//! - Bias and residual are added in this order, one rounding each.
//!
//! One generic body serves every instruction set through the `MatmulSimd` trait; [`reference()`] is the
//! scalar reference.

mod reference;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod formats;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod row_types;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod run;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tile;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod unpacked;

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(target_arch = "x86_64")]
mod broadcast;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dot;
#[cfg(target_arch = "aarch64")]
mod neon_i8mm;
mod scalar;

use core::marker::PhantomData;
use core::ops::Range;

pub use reference::reference;

use super::Kernel;
use super::quantize::QuantizedRowLayout;
use crate::panel::{InputKind, PanelType, ROWS};

/// The activation rows, the left operand of a matmul.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Consecutive quantized rows, for integer panel types.
    Quantized(&'a [i32]),
    /// Consecutive rotated and quantized rows, for row types.
    Rotated(&'a [i32]),
    /// f32 rows, `stride` apart, for float panel types.
    Float {
        /// The rows.
        rows: &'a [f32],
        /// Distance in elements from the start of a row to the start of the next.
        stride: usize,
    },
}

/// The operands of a matmul.
#[derive(Clone, Copy, Debug)]
pub struct MatmulOperands<'a> {
    /// The packed layout of the matrix.
    pub panel: PanelType,
    /// The packed panels.
    pub weights: &'a [u8],
    /// Output rows of the matrix, N.
    pub outputs: usize,
    /// Columns of the matrix, K.
    pub columns: usize,
    /// One bias per output, or empty.
    pub bias: &'a [f32],
    /// The activation rows.
    pub input: Input<'a>,
}

impl Input<'_> {
    fn kind(&self) -> InputKind {
        match self {
            Input::Quantized(_) => InputKind::Quantized,
            Input::Rotated(_) => InputKind::Rotated,
            Input::Float { .. } => InputKind::Float,
        }
    }
}

impl MatmulOperands<'_> {
    /// Returns the number of panels of the matrix.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(ROWS)
    }

    /// Panics if the slices are too short for `rows` and `panels`: the kernels read without bounds checks.
    fn check(&self, rows: &Range<usize>, panels: &Range<usize>) {
        assert!(rows.start <= rows.end && panels.start <= panels.end, "a range that ends before it starts");
        let panel_bytes = self.panel.panel_bytes(self.columns).unwrap_or(usize::MAX);
        let needed = panel_bytes.saturating_mul(panels.end);
        let beyond = "rows beyond the input";
        assert!(panels.end <= self.panels() && needed <= self.weights.len(), "panels beyond the matrix");
        assert!(self.bias.is_empty() || self.bias.len() >= self.outputs, "bias shorter than the outputs");
        // Rows without columns have no words, so not even a scale to read.
        assert!(self.columns > 0 || !self.panel.is_row(), "a product of no columns");
        assert!(self.input.kind() == self.panel.input(), "{} panels take other rows", self.panel.name());
        match self.input {
            Input::Quantized(words) | Input::Rotated(words) => {
                let end = rows.end.checked_mul(QuantizedRowLayout::new(self.columns).words());
                assert!(end.is_some_and(|end| end <= words.len()), "{beyond}");
            }
            Input::Float { rows: input, stride } => {
                let end = match rows.end.checked_sub(1) {
                    None => Some(0),
                    Some(last) => last.checked_mul(stride).and_then(|start| start.checked_add(self.columns)),
                };
                assert!(end.is_some_and(|end| end <= input.len()), "{beyond}");
            }
        }
    }
}

/// The output matrix; several workers fill disjoint parts of it.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    start: *mut f32,
    stride: usize,
    residual: Option<(*const f32, usize)>,
    rows: usize,
    columns: usize,
    lifetime: PhantomData<&'a mut f32>,
}

impl<'a> Output<'a> {
    /// Creates an output of `rows` × `columns` at `start`, with rows `stride` apart.
    ///
    /// # Safety
    /// The matrix must be valid for writes for `'a`, and while a kernel fills some rows and panels of it,
    /// that part must not be accessed otherwise.
    pub unsafe fn new(start: *mut f32, rows: usize, columns: usize, stride: usize) -> Self {
        Self { start, stride, residual: None, rows, columns, lifetime: PhantomData }
    }

    /// Adds the matrix at `residual`, of the same size, to the product.
    ///
    /// # Safety
    /// It must be valid for reads for `'a`, and must not be written meanwhile, unless it is the output
    /// itself.
    #[must_use]
    pub unsafe fn plus(self, residual: *const f32, stride: usize) -> Self {
        Self { residual: Some((residual, stride)), ..self }
    }

    /// Stores one element, after adding the residual.
    fn set(&self, row: usize, column: usize, value: f32) {
        assert!(row < self.rows && column < self.columns, "beyond the table");
        // SAFETY: the element lies inside the matrix, and the residual has the same size.
        unsafe {
            let residual = self.residual.map(|(start, stride)| *start.add(row * stride + column));
            *self.start.add(row * self.stride + column) = residual.map_or(value, |residual| residual + value);
        }
    }
}

/// Computes rows `rows` of the outputs in panels `panels`.
pub type Function = fn(&MatmulOperands<'_>, Range<usize>, Range<usize>, Output<'_>);

pub(crate) static LIST: &[Kernel<Function>] = &[
    #[cfg(target_arch = "x86_64")]
    amx::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx512::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx_vnni::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx2::KERNEL,
    #[cfg(target_arch = "aarch64")]
    neon_i8mm::KERNEL,
    #[cfg(target_arch = "aarch64")]
    neon_dot::KERNEL,
    #[cfg(target_arch = "aarch64")]
    neon::KERNEL,
    scalar::KERNEL,
];

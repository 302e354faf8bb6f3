//! Observation of matmul inputs, to collect activation statistics for calibration.

/// Receives the rows that are multiplied by weight matrices.
pub trait Observer: Send {
    /// Returns whether to observe the inputs of the matrix of this name.
    fn is_observed(&self, matrix: &str) -> bool;

    /// Called with `rows`, `columns` values each, which were multiplied by all of these matrices. If the matmul takes
    /// quantized activations, the values are the dequantized ones.
    fn observe(&mut self, matrices: &[&str], columns: usize, rows: &[f32]);
}

//! A flat vector index: vectors of one kind, contiguous, for brute-force comparison.

/// Independent partial sums of a dot product, so that it can be vectorized.
const LANES: usize = 16;

/// Unit vectors with the same number of columns, and the entry that each belongs to.
#[derive(Debug, Default)]
pub(super) struct EmbeddingIndex {
    columns: usize,
    numbers: Vec<f32>,
    owners: Vec<usize>,
}

impl EmbeddingIndex {
    /// Creates an empty index of vectors of `columns` columns.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns, ..Self::default() }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Appends a vector and returns its row.
    pub(super) fn push(&mut self, vector: &[f32], owner: usize) -> usize {
        self.numbers.extend_from_slice(vector);
        self.owners.push(owner);
        self.owners.len() - 1
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        self.numbers.get(row * self.columns..(row + 1) * self.columns).unwrap_or(&[])
    }

    /// Removes a row; the last row takes its place. Returns the entry of the moved row, if there is one.
    pub(super) fn remove(&mut self, row: usize) -> Option<usize> {
        let last = self.owners.len().checked_sub(1)?;
        self.numbers.copy_within(last * self.columns.., row * self.columns);
        self.numbers.truncate(last * self.columns);
        self.owners.swap_remove(row);
        self.owners.get(row).copied()
    }

    /// Returns the entry of every vector and its cosine similarity to `vector`.
    pub(super) fn similarities(&self, vector: &[f32]) -> impl Iterator<Item = (usize, f32)> {
        let rows = self.numbers.chunks_exact(self.columns.max(1)).map(move |row| dot(row, vector));
        self.owners.iter().copied().zip(rows)
    }
}

/// Returns the dot product, summed in a fixed order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

/// L2-normalizes a vector; `None` if it has no direction (zero or not finite).
pub(super) fn unit(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    (length > 0.0 && length.is_finite())
        .then(|| vector.iter().map(|x| (f64::from(*x) / length) as f32).collect())
}

/// Returns whether a vector from a file has unit length, within rounding.
pub(super) fn is_unit(vector: &[f32]) -> bool {
    let square = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    (square - 1.0).abs() < 1e-3
}

//! Vectors of one kind side by side, to be compared with another.

/// Columns that are added up side by side, so that the processor can take many at once.
const LANES: usize = 16;

/// Unit vectors of as many columns each, and which entry each is of.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    columns: usize,
    numbers: Vec<f32>,
    owners: Vec<usize>,
}

impl Shelf {
    /// An empty shelf for vectors of `columns` columns.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns, ..Self::default() }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Adds a vector and gives its row.
    pub(super) fn push(&mut self, vector: &[f32], owner: usize) -> usize {
        self.numbers.extend_from_slice(vector);
        self.owners.push(owner);
        self.owners.len() - 1
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        self.numbers.get(row * self.columns..(row + 1) * self.columns).unwrap_or(&[])
    }

    /// Takes a row out. The last one takes its place; what comes back is the entry of that one, where there is one.
    pub(super) fn remove(&mut self, row: usize) -> Option<usize> {
        let last = self.owners.len().checked_sub(1)?;
        self.numbers.copy_within(last * self.columns.., row * self.columns);
        self.numbers.truncate(last * self.columns);
        self.owners.swap_remove(row);
        self.owners.get(row).copied()
    }

    /// The entry of every vector and the cosine of its angle to `vector`.
    pub(super) fn likenesses(&self, vector: &[f32]) -> impl Iterator<Item = (usize, f32)> {
        let rows = self.numbers.chunks_exact(self.columns.max(1)).map(move |row| dot(row, vector));
        self.owners.iter().copied().zip(rows)
    }
}

/// The dot product, in a fixed order.
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

/// The vector brought to length one; nothing where it has no direction.
pub(super) fn unit(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    (length > 0.0 && length.is_finite())
        .then(|| vector.iter().map(|x| (f64::from(*x) / length) as f32).collect())
}

/// Whether a vector from a file is of length one, as far as rounding allows.
pub(super) fn is_unit(vector: &[f32]) -> bool {
    let square = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    (square - 1.0).abs() < 1e-3
}

//! Pooling: one vector from the hidden states of a text.

use super::TextOutputs;
use siskin_backend::context::OutputRows;
use siskin_graph::Pooling;

/// Returns the output rows that the method needs.
pub(super) fn output_rows(pooling: Pooling) -> OutputRows<'static> {
    match pooling {
        Pooling::First => OutputRows::First,
        Pooling::Last => OutputRows::Last,
        Pooling::Mean | Pooling::Max | Pooling::Weighted => OutputRows::All,
    }
}

/// Returns the pooled vector; sums run in token order, column by column.
pub(super) fn pool(pooling: Pooling, outputs: TextOutputs<'_>) -> Vec<f32> {
    let mut rows = outputs.rows();
    let mut pooled = rows.next().unwrap_or_default().to_vec();
    for (index, row) in rows.enumerate() {
        for (sum, x) in pooled.iter_mut().zip(row) {
            *sum = match pooling {
                Pooling::Max => sum.max(*x),
                Pooling::Weighted => *sum + (index + 2) as f32 * x,
                Pooling::Mean | Pooling::First | Pooling::Last => *sum + x,
            };
        }
    }
    let count = outputs.count();
    let whole = match pooling {
        Pooling::Mean => count,
        Pooling::Weighted => count * (count + 1) / 2,
        Pooling::First | Pooling::Last | Pooling::Max => 1,
    };
    pooled.iter_mut().for_each(|sum| *sum /= whole as f32);
    pooled
}

//! Predicts how long a forward pass takes, from those before it.

use std::time::Duration;

/// Numbers of rows that share an estimate.
const BUCKETS: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024];
/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// Attended positions whose cost is weighed like that of the rows, so that both are learned from the same passes.
const POSITIONS: f64 = 65536.0;
/// Rows of a prompt that are scheduled beside decoding requests before anything is known.
const UNKNOWN_ROWS: usize = 64;

/// The duration of a pass: an estimate by number of rows, plus one for each key that a row attends to. Both are learned
/// from the passes themselves (normalized least mean squares).
///
/// Predictions decide which rows share a batch, which changes no result.
#[derive(Clone, Debug, Default)]
pub struct CostModel {
    /// Seconds of a pass without attention; zero if unknown.
    passes: [f64; BUCKETS.len()],
    /// Seconds for [`POSITIONS`] attended positions.
    attention: f64,
}

impl CostModel {
    /// Records a pass of `rows` rows, which attended to `positions` keys in all.
    pub fn record(&mut self, rows: usize, positions: usize, elapsed: Duration) {
        let pass = &mut self.passes[bucket(rows)];
        let (elapsed, x) = (elapsed.as_secs_f64(), positions as f64 / POSITIONS);
        if *pass == 0.0 {
            *pass = (elapsed - self.attention * x).max(elapsed / 2.0);
            return;
        }
        let step = WEIGHT * (elapsed - *pass - self.attention * x) / (1.0 + x * x);
        *pass = (*pass + step).max(f64::MIN_POSITIVE);
        self.attention = (self.attention + step * x).max(0.0);
    }

    /// Returns the expected duration of a pass; zero if nothing is known.
    pub fn predict(&self, rows: usize, positions: usize) -> Duration {
        if rows == 0 {
            return Duration::ZERO;
        }
        let seconds = self.pass(rows) + self.attention * positions as f64 / POSITIONS;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the seconds of a pass without attention.
    fn pass(&self, rows: usize) -> f64 {
        let at = bucket(rows);
        let known = |bucket: &usize| self.passes[*bucket] > 0.0;
        // More rows never take less time, so that one slow pass is no estimate for ever.
        let above = (at + 1..BUCKETS.len()).filter(known).map(|larger| self.passes[larger]);
        let limit = above.fold(f64::INFINITY, f64::min);
        let own = match (0..=at).rev().find(known) {
            Some(below) if below == at => self.passes[at],
            // Rows beyond those that were measured: reading the weights is what most passes wait for.
            Some(below) => self.passes[below] * (0.75 + 0.25 * rows as f64 / BUCKETS[below] as f64),
            None => limit,
        };
        let seconds = own.min(limit);
        if seconds.is_finite() { seconds } else { 0.0 }
    }

    /// Returns how many rows, at most `max`, a pass can have that takes no longer than `budget`. `positions` is the number
    /// of keys that each row attends to.
    pub fn rows_within(&self, budget: Duration, positions: usize, max: usize) -> usize {
        if self.passes.iter().all(|pass| *pass == 0.0) {
            return max.min(UNKNOWN_ROWS);
        }
        let fits = |rows: &usize| self.predict(*rows, rows.saturating_mul(positions)) <= budget;
        if fits(&max) {
            return max;
        }
        BUCKETS.iter().copied().filter(|rows| *rows <= max).take_while(fits).last().unwrap_or(0)
    }
}

/// Returns the bucket of the largest number of rows that is not above `rows`.
fn bucket(rows: usize) -> usize {
    BUCKETS.iter().rposition(|start| *start <= rows).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_learned_by_rows_and_positions() {
        let mut cost = CostModel::default();
        let truth = |rows: usize, positions: usize| {
            Duration::from_secs_f64(0.002 + rows as f64 * 1e-4 + positions as f64 * 1e-8)
        };
        for round in 0..400 {
            for rows in [1, 16, 64] {
                let positions = rows * (round % 20) * 200;
                cost.record(rows, positions, truth(rows, positions));
            }
        }
        for (rows, positions) in [(1, 100), (16, 32_000), (64, 200_000)] {
            let (predicted, truth) = (cost.predict(rows, positions), truth(rows, positions));
            let ratio = predicted.as_secs_f64() / truth.as_secs_f64();
            assert!(
                (0.8..1.25).contains(&ratio),
                "{rows} rows, {positions} positions: {predicted:?}, {truth:?}"
            );
        }
    }

    #[test]
    fn budgets_limit_rows() {
        let mut cost = CostModel::default();
        assert_eq!(cost.rows_within(Duration::ZERO, 0, 1000), UNKNOWN_ROWS);
        for rows in [1, 16, 64, 256] {
            cost.record(rows, 0, Duration::from_millis(rows as u64));
        }
        assert_eq!(cost.rows_within(Duration::from_millis(70), 0, 256), 64);
        assert_eq!(cost.rows_within(Duration::from_secs(1), 0, 200), 200);
        assert_eq!(cost.rows_within(Duration::from_micros(1), 0, 200), 0);
    }
}

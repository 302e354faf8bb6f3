//! What was measured.

use std::time::Duration;

use serde_json::{Value, json};

/// A request and what came back.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestRecord {
    pub(super) is_measured: bool,
    /// Why it failed.
    pub(super) error: Option<String>,
    /// The time until the first event with text.
    pub(super) first: Option<Duration>,
    last: Duration,
    /// Since when, after the start of the request, gaps are measured.
    pub(super) gaps_since: Duration,
    /// The times between events with text.
    gaps: Vec<Duration>,
    pub(super) total: Duration,
    /// When it ended, after the start of the run.
    pub(super) ended: Duration,
    prompt_tokens: u64,
    generated_tokens: u64,
}

impl RequestRecord {
    /// Records an event that arrived at `now`, after the start.
    pub(super) fn read_event(&mut self, now: Duration, event: &Value) {
        self.read_usage(event);
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        let has = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty()) || value.is_array();
        let parts = [&delta["content"], &delta["reasoning_content"], &delta["tool_calls"], &choice["text"]];
        if !parts.into_iter().any(has) {
            return;
        }
        match self.first {
            None => self.first = Some(now),
            Some(_) if self.last >= self.gaps_since => self.gaps.push(now.saturating_sub(self.last)),
            Some(_) => {}
        }
        self.last = now;
    }

    /// Records the token counts of a response or of the last event.
    pub(super) fn read_usage(&mut self, value: &Value) {
        let count = |name: &str| value["usage"][name].as_u64();
        self.prompt_tokens = count("prompt_tokens").unwrap_or(self.prompt_tokens);
        self.generated_tokens = count("completion_tokens").unwrap_or(self.generated_tokens);
    }

    /// Returns the mean time per token after the first.
    fn time_per_token(&self) -> Option<Duration> {
        let tokens =
            u32::try_from(self.generated_tokens.checked_sub(1)?).ok().filter(|&tokens| tokens > 0)?;
        Some(self.last.checked_sub(self.first?)? / tokens)
    }

    fn meets(&self, targets: &LatencyTargets) -> bool {
        let first = self.first.unwrap_or(self.total);
        let per_token = self.time_per_token().unwrap_or_default();
        self.error.is_none() && first <= targets.first_token && per_token <= targets.per_token
    }
}

/// What a request must meet to count for the goodput (arXiv:2401.09670).
#[derive(Clone, Copy, Debug)]
pub struct LatencyTargets {
    /// The maximum time to the first token.
    pub first_token: Duration,
    /// The maximum mean time per token after the first.
    pub per_token: Duration,
}

impl Default for LatencyTargets {
    fn default() -> Self {
        Self { first_token: Duration::from_millis(500), per_token: Duration::from_millis(50) }
    }
}

/// Percentiles of durations (nearest rank).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyPercentiles {
    /// How many durations there are.
    pub count: usize,
    /// The median.
    pub p50: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest one.
    pub max: Duration,
}

impl LatencyPercentiles {
    fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let count = durations.len();
        let at = |percent: usize| durations.get((count * percent).div_ceil(100).saturating_sub(1));
        let at = |percent: usize| at(percent).copied().unwrap_or_default();
        Self { count, p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }

    fn to_json(self) -> Value {
        let ms = |duration: Duration| match self.count {
            0 => Value::Null,
            _ => ((duration.as_secs_f64() * 1e6).round() / 1e3).into(),
        };
        json!({"count": self.count, "p50": ms(self.p50), "p95": ms(self.p95), "p99": ms(self.p99), "max": ms(self.max)})
    }
}

/// The measurements of a run. Latencies and rates are those of measured requests that succeeded.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// From the start of the first measured request to the end of the last one.
    pub duration: Duration,
    /// Measured requests that succeeded.
    pub succeeded: usize,
    /// Why others failed.
    pub errors: Vec<String>,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens of their responses.
    pub generated_tokens: u64,
    /// Time to the first token.
    pub first_token: LatencyPercentiles,
    /// Time between tokens, each by itself.
    pub gaps: LatencyPercentiles,
    /// Mean time per token of each request, after the first token.
    pub per_token: LatencyPercentiles,
    /// Time to the end of the response.
    pub total: LatencyPercentiles,
    records: Vec<RequestRecord>,
}

impl LoadReport {
    pub(super) fn new(records: &[RequestRecord]) -> Self {
        let (mut succeeded, failed): (Vec<_>, Vec<_>) =
            records.iter().cloned().partition(|record| record.error.is_none());
        succeeded.retain(|record| record.is_measured);
        let measured = || succeeded.iter();
        let started = measured().map(|record| record.ended.saturating_sub(record.total)).min();
        let ended = measured().map(|record| record.ended).max();
        let duration = ended.unwrap_or_default().saturating_sub(started.unwrap_or_default());
        Self {
            duration,
            succeeded: succeeded.len(),
            errors: failed.iter().filter_map(|record| record.error.clone()).collect(),
            prompt_tokens: succeeded.iter().map(|record| record.prompt_tokens).sum(),
            generated_tokens: succeeded.iter().map(|record| record.generated_tokens).sum(),
            first_token: LatencyPercentiles::of(measured().filter_map(|record| record.first).collect()),
            gaps: LatencyPercentiles::of(measured().flat_map(|record| &record.gaps).copied().collect()),
            per_token: LatencyPercentiles::of(measured().filter_map(RequestRecord::time_per_token).collect()),
            total: LatencyPercentiles::of(measured().map(|record| record.total).collect()),
            records: succeeded,
        }
    }

    /// Returns the number of generated tokens per second.
    pub fn generated_tokens_per_second(&self) -> f64 {
        self.per_second(self.generated_tokens as f64)
    }

    /// Returns the number of requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.per_second(self.succeeded as f64)
    }

    /// Returns the number of requests per second that meet targets.
    pub fn goodput(&self, targets: &LatencyTargets) -> f64 {
        let good = self.records.iter().filter(|record| record.meets(targets)).count();
        self.per_second(good as f64)
    }

    fn per_second(&self, count: f64) -> f64 {
        if self.duration.is_zero() { 0.0 } else { count / self.duration.as_secs_f64() }
    }

    /// Returns the report as JSON, with times in milliseconds.
    pub fn to_json(&self, targets: &LatencyTargets) -> Value {
        json!({
            "duration_s": self.duration.as_secs_f64(),
            "succeeded": self.succeeded,
            "failed": self.errors.len(),
            "errors": self.errors.iter().take(5).collect::<Vec<_>>(),
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "generated_tokens_per_s": self.generated_tokens_per_second(),
            "requests_per_s": self.requests_per_second(),
            "goodput_per_s": self.goodput(targets),
            "first_token_ms": self.first_token.to_json(),
            "gap_ms": self.gaps.to_json(),
            "per_token_ms": self.per_token.to_json(),
            "total_ms": self.total.to_json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let of = LatencyPercentiles::of((1..=200).rev().map(ms).collect());
        assert_eq!((of.count, of.p50, of.p95, of.p99, of.max), (200, ms(100), ms(190), ms(198), ms(200)));
        let one = LatencyPercentiles::of(vec![ms(7)]);
        assert_eq!((one.p50, one.p99, one.max), (ms(7), ms(7), ms(7)));
        assert_eq!(LatencyPercentiles::of(Vec::new()), LatencyPercentiles::default());
    }

    fn record(first: u64, gap: u64, tokens: u64) -> RequestRecord {
        let mut record = RequestRecord { is_measured: true, ..RequestRecord::default() };
        record.read_event(
            ms(first - 1),
            &json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
        );
        for at in 0..tokens {
            let event = json!({"choices": [{"delta": {"content": "a"}}]});
            record.read_event(ms(first + at * gap), &event);
        }
        record.read_usage(&json!({"usage": {"prompt_tokens": 5, "completion_tokens": tokens}}));
        record.total = ms(first + tokens * gap);
        record.ended = ms(2000);
        record
    }

    #[test]
    fn requests_that_miss_a_target_do_not_count_for_the_goodput() {
        let failed = RequestRecord { error: Some("status 500".to_owned()), ..record(1, 1, 2) };
        let records = [record(100, 10, 11), record(501, 10, 11), record(100, 51, 11), failed];
        let report = LoadReport::new(&records);
        assert_eq!((report.succeeded, report.errors.len(), report.generated_tokens), (3, 1, 33));
        assert_eq!(
            (report.first_token.max, report.gaps.max, report.per_token.p50),
            (ms(501), ms(51), ms(10))
        );
        assert_eq!(report.gaps.count, 30);
        // The one that took longest began first.
        assert_eq!(report.duration, ms(100 + 51 * 11));
        let seconds = report.duration.as_secs_f64();
        assert!((report.goodput(&LatencyTargets::default()) - 1.0 / seconds).abs() < 1e-9);
        assert!((report.generated_tokens_per_second() - 33.0 / seconds).abs() < 1e-9);
        assert!(LoadReport::new(&[]).requests_per_second() == 0.0);
    }
}

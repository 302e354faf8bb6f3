//! The counters of a page of metrics.

use std::collections::BTreeMap;

use crate::prometheus::label;

/// What a server has counted, over all models or for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Requests that ended, but those whose clients left.
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) first_token: Histogram,
    pub(super) response: Histogram,
    /// When the process started, as the page has it.
    started: Option<String>,
}

/// A histogram of latencies.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// The numbers of observations up to bounds in seconds, which are those of the page.
    below: BTreeMap<String, u64>,
    pub(super) total: u64,
}

impl Counters {
    /// Reads a page in the text format of Prometheus. `model`: only the series of this model.
    pub(super) fn parse(page: &str, model: Option<&str>) -> Self {
        let model = model.map(|name| format!("model={},", label(name)));
        let mut counters = Self::default();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            if series == "process_start_time_seconds" {
                counters.started = Some(value.to_owned());
            }
            let Some((name, labels)) = series.split_once('{') else { continue };
            // The model is the first label.
            if model.as_ref().is_some_and(|model| !labels.starts_with(model)) {
                continue;
            }
            let Ok(value) = value.parse::<f64>() else { continue };
            counters.add(name, labels, value as u64);
        }
        counters
    }

    fn add(&mut self, name: &str, labels: &str, value: u64) {
        let histogram = match name {
            "siskin_request_success_total" => {
                if !labels.contains("finished_reason=\"abort\"") {
                    self.requests += value;
                }
                if labels.contains("finished_reason=\"error\"") {
                    self.failed += value;
                }
                return;
            }
            // Clients see these as failures.
            "siskin_requests_rejected_total" | "siskin_requests_unavailable_total" => {
                self.requests += value;
                self.failed += value;
                return;
            }
            "siskin_time_to_first_token_seconds_bucket" => &mut self.first_token,
            "siskin_e2e_request_latency_seconds_bucket" => &mut self.response,
            _ => return,
        };
        let bound = labels.split_once("le=\"").and_then(|(_, rest)| rest.split_once('"'));
        match bound {
            Some(("+Inf", _)) => histogram.total += value,
            Some((bound, _)) => *histogram.below.entry(bound.to_owned()).or_default() += value,
            None => {}
        }
    }

    /// Adds what was counted between two readings; since the start of the server if it was started again in between,
    /// which is returned.
    pub(super) fn add_difference(&mut self, now: &Self, before: &Self) -> bool {
        let nothing = Self::default();
        let was_restarted = now.started != before.started
            || now.requests < before.requests
            || now.response.total < before.response.total;
        let before = if was_restarted { &nothing } else { before };
        self.requests += now.requests - before.requests;
        self.failed += now.failed.saturating_sub(before.failed);
        self.first_token.add_difference(&now.first_token, &before.first_token);
        self.response.add_difference(&now.response, &before.response);
        was_restarted
    }
}

impl Histogram {
    fn add_difference(&mut self, now: &Self, before: &Self) {
        self.total += now.total.saturating_sub(before.total);
        for (bound, count) in &now.below {
            let known = before.below.get(bound).copied().unwrap_or_default();
            *self.below.entry(bound.clone()).or_default() += count.saturating_sub(known);
        }
    }

    /// Returns the bounds of the bucket that has a quantile; fewer if it is the first or the last one.
    pub(super) fn bounds_around(&self, quantile: f64) -> Vec<f64> {
        let parsed = |(bound, count): (&String, &u64)| Some((bound.parse::<f64>().ok()?, *count));
        let mut bounds: Vec<(f64, u64)> = self.below.iter().filter_map(parsed).collect();
        bounds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let rank = quantile * self.total as f64;
        let index = bounds.partition_point(|(_, count)| (*count as f64) < rank);
        let around = index.saturating_sub(1)..(index + 1).min(bounds.len());
        bounds[around].iter().map(|(bound, _)| *bound).collect()
    }

    /// Returns how many observations are above a bound.
    pub(super) fn count_above(&self, bound: f64) -> u64 {
        let is_it = |(text, _): &(&String, &u64)| text.parse() == Ok(bound);
        self.total.saturating_sub(self.below.iter().find(is_it).map_or(0, |(_, count)| *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP siskin_request_success_total …
siskin_request_success_total{model=\"a\",version=\"1\",finished_reason=\"stop\"} 90
siskin_request_success_total{model=\"a\",version=\"1\",finished_reason=\"abort\"} 5
siskin_request_success_total{model=\"a\",version=\"1\",finished_reason=\"error\"} 10
siskin_request_success_total{model=\"b\",version=\"1\",finished_reason=\"stop\"} 1000
siskin_time_to_first_token_seconds_bucket{model=\"a\",version=\"1\",le=\"0.001\"} 10
siskin_time_to_first_token_seconds_bucket{model=\"a\",version=\"1\",le=\"0.002\"} 90
siskin_time_to_first_token_seconds_bucket{model=\"a\",version=\"1\",le=\"0.004\"} 99
siskin_time_to_first_token_seconds_bucket{model=\"a\",version=\"1\",le=\"+Inf\"} 100
siskin_up 1
";

    #[test]
    fn pages_are_counted() {
        let one = Counters::parse(PAGE, Some("a"));
        assert_eq!((one.requests, one.failed, one.first_token.total), (100, 10, 100));
        assert_eq!(one.first_token.bounds_around(0.95), [0.002, 0.004]);
        assert_eq!(one.first_token.bounds_around(0.05), [0.001]);
        assert_eq!(one.first_token.bounds_around(0.999), [0.004], "beyond the last bound");
        assert_eq!((one.first_token.count_above(0.002), one.first_token.count_above(0.004)), (10, 1));
        assert_eq!(Counters::parse(PAGE, None).requests, 1100);
        assert_eq!(Counters::parse(PAGE, Some("c")).requests, 0);
        assert!(Counters::default().response.bounds_around(0.95).is_empty());
    }
}

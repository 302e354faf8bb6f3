//! Counters and latency histograms, in the text format of Prometheus.

pub(crate) mod gpu;
mod process;
mod vllm_names;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use siskin::serving::{EngineMemory, PassTimes, PrefixStoreStats, SchedulerStats, StreamTimes};
use siskin::{Error, ErrorKind};

use gpu::GpuMetrics;

use crate::error::ApiError;
use crate::operations::breaker::BreakerState;
use crate::operations::degradation::DegradationLevel;
use crate::operations::health::ModelHealth;
use crate::prometheus::{model_labels, write_head, write_line};

/// A histogram of durations.
#[derive(Default)]
struct Histogram {
    /// With the bounds of the engine's own histograms.
    buckets: [AtomicU64; PassTimes::BUCKETS],
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Histogram {
    fn observe(&self, duration: Duration) {
        let is_within = |bucket: &usize| duration <= PassTimes::bound(*bucket);
        if let Some(bucket) = (0..PassTimes::BUCKETS).find(is_within) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
}

/// Why generations ended, as clients see it.
pub(crate) const FINISH_REASONS: [&str; 4] = ["stop", "length", "abort", "error"];

/// What happened to the requests of a model.
#[derive(Default)]
pub(crate) struct ModelMetrics {
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    request_latency: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    finished: [AtomicU64; FINISH_REASONS.len()],
    rejected: AtomicU64,
    unavailable: AtomicU64,
}

impl ModelMetrics {
    /// Counts the tokens of a prompt, or of texts to embed.
    pub(crate) fn record_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Counts a token that was sampled `gap` after the one before it.
    pub(crate) fn record_token(&self, gap: Option<Duration>) {
        self.generated_tokens.fetch_add(1, Ordering::Relaxed);
        if let Some(gap) = gap {
            self.inter_token_latency.observe(gap);
        }
    }

    /// Counts a choice that ended for one of [`FINISH_REASONS`].
    pub(crate) fn record_end(&self, reason: &str, times: StreamTimes) {
        self.finish(reason);
        self.request_latency.observe(times.end);
        let Some(start) = times.start else { return };
        self.queue_time.observe(start);
        let Some(first) = times.first_token else { return };
        self.time_to_first_token.observe(first);
        self.prefill_time.observe(first.saturating_sub(start));
        self.decode_time.observe(times.end.saturating_sub(first));
    }

    /// Counts a choice whose client has left.
    pub(crate) fn record_abort(&self) {
        self.finish("abort");
    }

    /// Counts generated tokens.
    pub(crate) fn record_generated(&self, tokens: usize) {
        self.generated_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Counts a request for embeddings, classes, translations and the like. Errors of clients do not count.
    pub(crate) fn record_task(&self, error: Option<&ApiError>, elapsed: Duration) {
        if error.is_some_and(|error| !error.is_server_error()) {
            return;
        }
        self.finish(if error.is_none() { "stop" } else { "error" });
        self.request_latency.observe(elapsed);
    }

    /// Counts a request that was not submitted, if the reason is that the queue is full.
    pub(crate) fn record_rejection(&self, error: &Error) {
        if error.kind() == ErrorKind::Overloaded {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that was not submitted, if the reason is that the queue is full.
    pub(crate) fn record_refusal(&self, error: &ApiError) {
        if error.is_overload() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that was rejected because the circuit breaker is open.
    pub(crate) fn record_unavailable(&self) {
        self.unavailable.fetch_add(1, Ordering::Relaxed);
    }

    fn finish(&self, reason: &str) {
        if let Some(counter) = FINISH_REASONS.iter().position(|name| *name == reason) {
            self.finished[counter].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The metrics of a model under its name, and the counters of its scheduler if it has one.
pub(crate) struct NamedMetrics<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) metrics: &'a ModelMetrics,
    pub(crate) scheduler: Option<SchedulerStats>,
    pub(crate) disk_cache: Option<PrefixStoreStats>,
    pub(crate) predicted_wait: Option<Duration>,
    pub(crate) degradation: Option<DegradationLevel>,
    /// `None` for adapters, which share that of their base model.
    pub(crate) health: Option<&'a ModelHealth>,
}

impl NamedMetrics<'_> {
    /// Returns the labels of the model.
    fn labels(&self) -> String {
        model_labels(self.name, self.version)
    }
}

/// Returns all metrics as text, those that vLLM has also in its names if `has_vllm_names` is set.
pub(crate) fn text(
    models: &[NamedMetrics<'_>],
    memory: &EngineMemory,
    gpus: &GpuMetrics,
    has_vllm_names: bool,
) -> String {
    let mut page = Page { text: String::new(), models };
    page.of_models();
    page.of_process(memory);
    gpus.add_to(&mut page);
    if has_vllm_names {
        let renamed = vllm_names::renamed(&page.text);
        page.text.push_str(&renamed);
    }
    page.text
}

struct Page<'a> {
    text: String,
    models: &'a [NamedMetrics<'a>],
}

impl Page<'_> {
    fn of_models(&mut self) {
        self.schedulers();
        self.pass_times();
        self.disk_caches();
        self.health();
        self.counter("siskin_prompt_tokens_total", "Tokens of prompts and embedded texts.", |metrics| {
            &metrics.prompt_tokens
        });
        self.counter("siskin_generation_tokens_total", "Generated tokens.", |metrics| {
            &metrics.generated_tokens
        });
        self.counter(
            "siskin_requests_rejected_total",
            "Requests rejected because too many waited.",
            |metrics| &metrics.rejected,
        );
        self.counter(
            "siskin_requests_unavailable_total",
            "Requests rejected because the circuit breaker is open.",
            |metrics| &metrics.unavailable,
        );
        self.finished();
        type Of = fn(&ModelMetrics) -> &Histogram;
        let histograms: [(&str, &str, Of); 6] = [
            ("siskin_time_to_first_token_seconds", "From the request to its first token.", |metrics| {
                &metrics.time_to_first_token
            }),
            ("siskin_inter_token_latency_seconds", "Between two tokens of a request.", |metrics| {
                &metrics.inter_token_latency
            }),
            ("siskin_e2e_request_latency_seconds", "From the request to its end.", |metrics| {
                &metrics.request_latency
            }),
            ("siskin_request_queue_time_seconds", "From the request to its first forward pass.", |metrics| {
                &metrics.queue_time
            }),
            (
                "siskin_request_prefill_time_seconds",
                "From the first forward pass to the first token.",
                |metrics| &metrics.prefill_time,
            ),
            ("siskin_request_decode_time_seconds", "From the first token to the end.", |metrics| {
                &metrics.decode_time
            }),
        ];
        for (name, help, of) in histograms {
            self.histogram(name, help, of);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        write_head(&mut self.text, name, kind, help);
    }

    fn line(&mut self, line: impl Display) {
        write_line(&mut self.text, line);
    }

    fn schedulers(&mut self) {
        type Of = fn(&SchedulerStats) -> u64;
        let all: [(&str, &str, &str, Of); 14] = [
            ("requests_running", "gauge", "Requests that have started.", |stats| stats.running as u64),
            ("requests_paused", "gauge", "Requests whose clients read too slowly.", |stats| {
                stats.paused as u64
            }),
            ("requests_waiting", "gauge", "Requests that wait.", |stats| stats.waiting as u64),
            ("prefix_cache_prefixes", "gauge", "Sequences in the prefix cache.", |stats| {
                stats.cached_prefixes as u64
            }),
            ("kv_cache_blocks", "gauge", "Blocks of the KV cache.", |stats| stats.kv_blocks as u64),
            ("kv_cache_free_blocks", "gauge", "Free blocks of the KV cache.", |stats| {
                stats.free_kv_blocks as u64
            }),
            (
                "prefix_cache_queries_tokens_total",
                "counter",
                "Tokens of requests when they started.",
                |stats| stats.prefix_queried_tokens,
            ),
            (
                "prefix_cache_hits_tokens_total",
                "counter",
                "Tokens of requests that the prefix cache had.",
                |stats| stats.prefix_hit_tokens,
            ),
            (
                "prefix_cache_restored_tokens_total",
                "counter",
                "Tokens of prefixes that were read from disk.",
                |stats| stats.prefix_restored_tokens,
            ),
            ("preemptions_total", "counter", "Preempted requests.", |stats| stats.preemptions),
            ("forward_passes_total", "counter", "Forward passes.", |stats| stats.steps),
            ("forward_pass_rows_total", "counter", "Rows of forward passes.", |stats| stats.rows),
            ("speculative_draft_tokens_total", "counter", "Draft tokens that passes verified.", |stats| {
                stats.drafted_tokens
            }),
            ("speculative_accepted_tokens_total", "counter", "Draft tokens that were right.", |stats| {
                stats.accepted_tokens
            }),
        ];
        for (name, kind, help, of) in all {
            self.each_model(&format!("siskin_{name}"), kind, help, |model| model.scheduler.as_ref().map(of));
        }
        let usage = |stats: &SchedulerStats| {
            let used = stats.kv_blocks.saturating_sub(stats.free_kv_blocks);
            used as f64 / stats.kv_blocks.max(1) as f64
        };
        self.each_model(
            "siskin_kv_cache_usage_ratio",
            "gauge",
            "The part of the KV cache's blocks that requests and cached prefixes hold.",
            |model| model.scheduler.as_ref().map(usage),
        );
    }

    /// Adds a histogram of the passes of each scheduler.
    fn pass_times(&mut self) {
        let name = "siskin_forward_pass_seconds";
        self.head(name, "histogram", "Duration of forward passes.");
        for model in self.models {
            let Some(SchedulerStats { steps, pass_times, .. }) = &model.scheduler else { continue };
            self.histogram_of(name, model, &pass_times.buckets, *steps, pass_times.microseconds);
        }
    }

    /// Adds the metrics of the process, and of the engine's memory.
    fn of_process(&mut self, memory: &EngineMemory) {
        let mut number = |name: &str, kind: &str, help: &str, value: f64| {
            self.head(name, kind, help);
            self.line(format_args!("{name} {value}"));
        };
        let help = "Memory that KV caches and activations reserve.";
        number("siskin_engine_memory_reserved_bytes", "gauge", help, memory.reserved as f64);
        if let Some(free) = memory.free {
            let help = "What is left of the memory budget.";
            number("siskin_engine_memory_free_bytes", "gauge", help, free as f64);
        }
        for metric in process::process_metrics() {
            number(metric.name, metric.kind, metric.help, metric.value);
        }
    }

    fn disk_caches(&mut self) {
        type Of = fn(&PrefixStoreStats) -> u64;
        let all: [(&str, &str, Of); 5] = [
            ("written", "Prefixes that were written to disk.", |stats| stats.written),
            (
                "dropped",
                "Prefixes that were not written: the disk is slow, or they are too large.",
                |stats| stats.dropped,
            ),
            ("failed", "Prefixes whose writing failed.", |stats| stats.failed),
            ("read", "Prefixes that were read from disk.", |stats| stats.read),
            ("corrupt", "Files that were corrupt, and were removed.", |stats| stats.corrupt),
        ];
        for (what, help, of) in all {
            let name = format!("siskin_prefix_cache_files_{what}_total");
            self.each_model(&name, "counter", help, |model| model.disk_cache.as_ref().map(of));
        }
    }

    fn health(&mut self) {
        self.each_model(
            "siskin_predicted_queue_seconds",
            "gauge",
            "How long a request that arrives now is predicted to wait.",
            |model| model.predicted_wait.map(|wait| wait.as_secs_f64()),
        );
        self.each_model(
            "siskin_degradation_level",
            "gauge",
            "Load-shedding level, from 0 (none) to 5 (requests are rejected).",
            |model| model.degradation.map(DegradationLevel::number),
        );
        let state = |health: &ModelHealth| match health.breaker_state() {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        self.each_model(
            "siskin_circuit_breaker_state",
            "gauge",
            "0: closed; 1: half-open; 2: open.",
            |model| model.health.map(state),
        );
        self.each_model("siskin_integrity_checks_total", "counter", "Self-tests.", |model| {
            model.health.map(|health| health.integrity().0)
        });
        self.each_model("siskin_integrity_failures_total", "counter", "Failed self-tests.", |model| {
            model.health.map(|health| health.integrity().1)
        });
    }

    /// Adds a metric of those models that have a value.
    fn each_model<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&NamedMetrics<'_>) -> Option<V>,
    ) {
        self.head(name, kind, help);
        for model in self.models {
            if let Some(value) = value(model) {
                self.line(format_args!("{name}{{{}}} {value}", model.labels()));
            }
        }
    }

    fn counter(&mut self, name: &str, help: &str, of: fn(&ModelMetrics) -> &AtomicU64) {
        self.each_model(name, "counter", help, |model| Some(of(model.metrics).load(Ordering::Relaxed)));
    }

    fn finished(&mut self) {
        let name = "siskin_request_success_total";
        self.head(name, "counter", "Choices and embedding requests that ended, by reason.");
        for model in self.models {
            for (reason, counter) in FINISH_REASONS.iter().zip(&model.metrics.finished) {
                let (model, value) = (model.labels(), counter.load(Ordering::Relaxed));
                self.line(format_args!("{name}{{{model},finished_reason=\"{reason}\"}} {value}"));
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, of: fn(&ModelMetrics) -> &Histogram) {
        self.head(name, "histogram", help);
        for model in self.models {
            let histogram = of(model.metrics);
            let buckets: Vec<u64> =
                histogram.buckets.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
            let count = histogram.count.load(Ordering::Relaxed);
            let microseconds = histogram.microseconds.load(Ordering::Relaxed);
            self.histogram_of(name, model, &buckets, count, microseconds);
        }
    }

    /// Adds a histogram of a model: the counts of its buckets, the number of all observations and their sum.
    fn histogram_of(
        &mut self,
        name: &str,
        model: &NamedMetrics<'_>,
        buckets: &[u64],
        count: u64,
        microseconds: u64,
    ) {
        let model = model.labels();
        let mut below = 0;
        for (bucket, count) in buckets.iter().enumerate() {
            below += count;
            let bound = PassTimes::bound(bucket).as_secs_f64();
            self.line(format_args!("{name}_bucket{{{model},le=\"{bound}\"}} {below}"));
        }
        // Counters are read one after the other.
        let count = count.max(below);
        let seconds = microseconds as f64 / 1e6;
        self.line(format_args!("{name}_bucket{{{model},le=\"+Inf\"}} {count}"));
        self.line(format_args!("{name}_sum{{{model}}} {seconds}"));
        self.line(format_args!("{name}_count{{{model}}} {count}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative() {
        let metrics = ModelMetrics::default();
        for milliseconds in [0, 1, 3, 100_000] {
            metrics.record_token(Some(Duration::from_millis(milliseconds)));
        }
        metrics.record_token(None);
        let models = [NamedMetrics {
            name: "a\"b",
            version: "v1",
            metrics: &metrics,
            scheduler: None,
            disk_cache: None,
            predicted_wait: None,
            degradation: None,
            health: None,
        }];
        let page = text(&models, &EngineMemory { reserved: 7, free: None }, &GpuMetrics::default(), true);
        let value = |series: &str| {
            let line =
                page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series}"));
            line.rsplit(' ').next().unwrap().to_owned()
        };
        let name = "siskin_inter_token_latency_seconds";
        for (bound, count) in [("0.0005", "1"), ("0.001", "2"), ("0.002", "2"), ("0.004", "3"), ("+Inf", "4")]
        {
            assert_eq!(
                value(&format!("{name}_bucket{{model=\"a\\\"b\",version=\"v1\",le=\"{bound}\"}}")),
                count
            );
        }
        assert_eq!(value(&format!("{name}_count")), "4");
        assert_eq!(value(&format!("{name}_sum")), "100.004");
        assert_eq!(
            value("vllm:inter_token_latency_seconds_count{model_name=\"a\\\"b\",version=\"v1\"}"),
            "4"
        );
        assert_eq!(value("siskin_engine_memory_reserved_bytes"), "7");
    }
}

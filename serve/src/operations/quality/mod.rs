//! The quality of responses while the server runs: a sample of the requests is scored again when nothing else runs.
//!
//! Only means are kept: tokens of a sample are in memory from the end of its request until it is scored, and at most
//! [`MAX_QUEUED`] samples of a model wait.

mod means;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use siskin::serving::{CacheSalt, TokenScore};
use tokio::sync::Notify;

use crate::sync::lock;
pub(crate) use means::write_metrics;
use means::{QualityMeans, SampleScores};

/// The maximum number of samples of a model that wait.
const MAX_QUEUED: usize = 16;
/// The quality of a model's responses.
pub(crate) struct QualityMonitor {
    /// The share of the requests that is scored.
    share: f64,
    requests: AtomicU64,
    queue: Mutex<VecDeque<QualitySample>>,
    /// Wakes the task that scores the samples.
    wake: Notify,
    /// A sample is being scored, or waits for that in the engine.
    is_scoring: AtomicBool,
    means: Mutex<QualityMeans>,
}

/// A request that ended.
pub(crate) struct QualitySample {
    pub(crate) prompt: Vec<u32>,
    pub(crate) answer: Vec<u32>,
    /// It ended at its maximum length, or that of the context.
    pub(crate) is_truncated: bool,
    /// It had to follow a grammar.
    pub(crate) is_structured: bool,
    pub(crate) salt: CacheSalt,
}

impl QualityMonitor {
    /// `share`: from 0 to 1.
    pub(crate) fn new(share: f64) -> Self {
        Self {
            share: if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) },
            requests: AtomicU64::new(0),
            queue: Mutex::default(),
            wake: Notify::new(),
            is_scoring: AtomicBool::new(false),
            means: Mutex::default(),
        }
    }

    /// Counts a request whose grammar or schema was rejected.
    pub(crate) fn record_rejected_output(&self) {
        self.means().rejected_outputs += 1;
    }

    /// Returns whether the next request is a sample: every hundredth for a share of 0.01.
    pub(crate) fn selects_next(&self) -> bool {
        let before = self.requests.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.share).floor() > (before * self.share).floor()
    }

    /// Adds a sample, unless too many wait.
    pub(crate) fn push(&self, sample: QualitySample) {
        let mut queue = lock(&self.queue);
        if queue.len() < MAX_QUEUED {
            queue.push_back(sample);
            self.wake.notify_one();
        } else {
            drop(queue);
            self.means().dropped += 1;
        }
    }

    /// Waits for a sample, and takes the one that waits the longest.
    pub(crate) async fn next(&self) -> QualitySample {
        loop {
            if let Some(sample) = self.pop() {
                return sample;
            }
            self.wake.notified().await;
        }
    }

    fn pop(&self) -> Option<QualitySample> {
        lock(&self.queue).pop_front()
    }

    pub(crate) fn set_scoring(&self, is_scoring: bool) {
        self.is_scoring.store(is_scoring, Ordering::Relaxed);
    }

    /// Returns whether one of the engine's requests is a sample.
    pub(crate) fn is_scoring(&self) -> bool {
        self.is_scoring.load(Ordering::Relaxed)
    }

    /// Records a sample and the scores of its tokens from the second on, prompt and answer; `None` if they could not be
    /// computed.
    ///
    /// Returns the mean log-probability of the prompt.
    pub(crate) fn record(&self, sample: &QualitySample, scored: Option<&[TokenScore]>) -> Option<f64> {
        // The first token has no score.
        let parts = scored.and_then(|scored| scored.split_at_checked(sample.prompt.len().saturating_sub(1)));
        let Some((prompt, answer)) = parts else {
            self.means().dropped += 1;
            return None;
        };
        let prompt = means::score_part(prompt);
        self.means().add(&SampleScores {
            prompt,
            answer: means::score_part(answer),
            repetition: means::repetition(&sample.answer),
            is_truncated: sample.is_truncated,
            is_structured: sample.is_structured,
        });
        prompt.map(|prompt| prompt.log_probability)
    }

    fn means(&self) -> MutexGuard<'_, QualityMeans> {
        lock(&self.means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_evenly_spaced() {
        let monitor = QualityMonitor::new(0.25);
        let selected: Vec<bool> = (0..12).map(|_| monitor.selects_next()).collect();
        assert_eq!(selected.iter().filter(|selected| **selected).count(), 3);
        assert!(selected[3] && selected[7] && selected[11]);
        let counts = [0.0, 1.0, f64::NAN, 0.01].map(|share| {
            let monitor = QualityMonitor::new(share);
            (0..1000).filter(|_| monitor.selects_next()).count()
        });
        assert_eq!(counts, [0, 1000, 0, 10]);
    }

    #[test]
    fn few_samples_wait() {
        let monitor = QualityMonitor::new(1.0);
        for index in 0..MAX_QUEUED as u32 + 5 {
            monitor.push(QualitySample {
                prompt: vec![index],
                answer: Vec::new(),
                is_truncated: false,
                is_structured: false,
                salt: CacheSalt::default(),
            });
        }
        assert_eq!(monitor.means().dropped, 5);
        assert_eq!(monitor.pop().unwrap().prompt, [0], "the oldest first");
        assert_eq!(std::iter::from_fn(|| monitor.pop()).count(), MAX_QUEUED - 1);
    }
}

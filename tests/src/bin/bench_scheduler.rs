//! Measures how long the scheduler takes to plan a pass: `bench_scheduler`, in microseconds per pass, for some numbers of
//! requests that decode and that wait.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::time::{Duration, Instant};

use siskin_scheduler::policy::{Admission, KvSpace, Scheduler, StepLimits, StepPlan};
use siskin_scheduler::request::{RequestId, RequestLimits, RequestSpec};

/// Passes per number of requests.
const PASSES: usize = 2000;

/// Memory for everything.
struct EndlessSpace;

impl KvSpace for EndlessSpace {
    fn admit(&mut self, _: RequestId, _: &[u32], _: usize) -> Option<usize> {
        Some(0)
    }

    fn reserve(&mut self, _: RequestId, _: usize) -> bool {
        true
    }

    fn max_drafts(&self, _: RequestId, _: &[u32]) -> usize {
        usize::MAX
    }

    fn release(&mut self, _: RequestId, _: &[u32]) {}
}

fn main() {
    for (decoding, waiting) in [(1, 0), (16, 0), (16, 16), (16, 256), (256, 0), (256, 256)] {
        let (median, p99) = measure(decoding, waiting);
        println!("{decoding} decode, {waiting} wait: median {median:.2} µs, p99 {p99:.2} µs");
    }
}

/// Returns the median and the 99th percentile of the microseconds that planning and committing a pass take.
fn measure(decoding: usize, waiting: usize) -> (f64, f64) {
    let mut scheduler = Scheduler::new(StepLimits {
        max_rows: 2 * decoding.max(256),
        max_output_rows: 2 * decoding,
        max_running: decoding,
        request: RequestLimits { context_length: 1 << 20, vocabulary: 1 << 17, adapters: 0 },
        decode_budget: Duration::from_millis(15),
        admission: Admission::Overcommit,
    });
    let (mut now, mut plan, mut times) = (Duration::ZERO, StepPlan::default(), Vec::new());
    for index in 0..decoding + waiting {
        let tokens = vec![1; 4 + index % 32];
        scheduler.submit(now, RequestSpec { tokens, max_tokens: 1 << 19, ..RequestSpec::default() }, 0);
    }
    for pass in 0..decoding * 20 + PASSES {
        let start = Instant::now();
        scheduler.plan(now, &mut EndlessSpace, &mut plan);
        scheduler.speculate(&mut EndlessSpace, &mut plan, &mut |_, _, _, drafts| drafts.extend([1, 2]));
        scheduler.commit(&plan, Duration::from_micros(5000 + 50 * plan.rows as u64));
        let elapsed = start.elapsed();
        now += Duration::from_millis(5);
        for entry in plan.entries.iter().filter(|entry| entry.outputs > 0) {
            scheduler.append(entry.request, 1);
        }
        // After the prompts.
        if pass >= decoding * 20 {
            assert_eq!((plan.prefill_rows, plan.entries.len()), (0, decoding), "not all requests decode");
            times.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    times.sort_by(f64::total_cmp);
    (times[PASSES / 2], times[PASSES * 99 / 100])
}

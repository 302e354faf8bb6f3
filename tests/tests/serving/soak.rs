//! The soak test for some seconds; `cargo xtask soak` runs it for as long as wanted.

use siskin::{CpuFeatures, DeviceKind, Model, ModelOptions};
use siskin_tests::random_adapters::adapters;
use siskin_tests::soak::{answers, soak};
use siskin_tests::{env, golden};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn clients_that_misbehave_leave_nothing_behind() {
    let llama = golden::load("llama").file;
    let options = ModelOptions { threads: 2, ..ModelOptions::default() };
    let models = [
        Model::with_adapters(llama.clone(), &adapters(&llama), &options).unwrap(),
        golden::model(&golden::load("qwen3-next").file, DeviceKind::Cpu, 2, CpuFeatures::NONE),
    ];
    let seconds = if env::test_all() { 30 } else { 4 };
    let report = soak(&models, &answers(&models), 32, Duration::from_secs(seconds));
    let counts =
        [&report.counts.answers, &report.counts.sessions, &report.counts.canceled, &report.counts.slow];
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{report:?}");
    assert!(report.prefix_hit_tokens > 0, "{report:?}");
}

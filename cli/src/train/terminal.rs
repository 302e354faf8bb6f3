//! Shows the progress of a run, and records the data of its report.

use crate::options::OpenArgs;
use crate::output;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use siskin::Result;
use siskin::file::{AtomicFile, append_no_follow};
use siskin_trainer::events::Events;
use siskin_trainer::profile::{self, Event, ProfileRow};
use siskin_trainer::report;
use siskin_trainer::run::{self, RunCallbacks, Sample, StepReport, Validation};
use siskin_trainer::statistics::StepStatistics;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Minimum interval between progress lines if there is no progress bar.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Weight of a new step in the moving average of the speed.
const NEW_STEP_WEIGHT: f64 = 0.1;

/// The speed of a run, averaged over its last steps.
#[derive(Default)]
struct Speed {
    tokens: f64,
    flops: f64,
    /// Steps of this process, and the start of the first one.
    steps: u64,
    started: Option<Instant>,
}

impl Speed {
    fn add(&mut self, progress: &StepReport) {
        let per_second = |count: f64| count / progress.seconds.max(1e-9);
        let new = if self.steps == 0 { 1.0 } else { NEW_STEP_WEIGHT };
        self.tokens += new * (per_second(progress.tokens as f64) - self.tokens);
        self.flops += new * (per_second(progress.flops) - self.flops);
        self.steps += 1;
        let took = Duration::try_from_secs_f64(progress.seconds).unwrap_or_default();
        self.started.get_or_insert_with(|| Instant::now().checked_sub(took).unwrap_or_else(Instant::now));
    }

    /// Returns the estimated time of `left` more steps, including validation and checkpoints.
    fn left(&self, left: u64) -> Duration {
        let passed = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        let seconds = passed / self.steps.max(1) as f64 * left as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// Shows the progress of a run: a progress bar on a terminal, otherwise a line at intervals.
pub(super) struct Terminal<'a> {
    open: &'a OpenArgs,
    folder: PathBuf,
    pub(super) bar: ProgressBar,
    log: File,
    events: Events,
    speed: Speed,
    /// Peak throughput in multiply-adds per second, for MFU; 0 if unknown.
    peak_flops: f64,
    prints_lines: bool,
    last_line: Option<Instant>,
    /// The last step; `None` if the run was already complete.
    pub(super) last: Option<StepReport>,
    pub(super) validation: Option<Validation>,
}

impl<'a> Terminal<'a> {
    /// Writes the log and events to `folder`; MFU is relative to `peak_flops`, if known.
    pub(super) fn new(open: &'a OpenArgs, folder: &Path, peak_flops: f64) -> Result<Self> {
        run::prepare_folder(folder)?;
        let log = append_no_follow(folder.join(report::LOG))?;
        let events = Events::create(folder)?;
        let terminal = std::io::stderr().is_terminal();
        let bar = if open.quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Ok(Self {
            open,
            folder: folder.to_owned(),
            bar,
            log,
            events,
            speed: Speed::default(),
            peak_flops,
            prints_lines: !terminal && !open.quiet,
            last_line: None,
            last: None,
            validation: None,
        })
    }

    fn write(&mut self, value: &Value, step: u64, numbers: &[(&str, f64)]) {
        // A failure to write the log does not end the run.
        let _ = writeln!(self.log, "{value}");
        let _ = self.events.add(step, numbers);
    }

    fn line(&self, progress: &StepReport) -> String {
        let left = HumanDuration(self.speed.left(progress.steps.saturating_sub(progress.step)));
        let skipped = match progress.skipped_steps {
            0 => String::new(),
            skipped => format!("{skipped} skipped, "),
        };
        let used = match self.peak_flops {
            0.0 => String::new(),
            peak_flops => format!("{:.1} % MFU, ", 100.0 * self.speed.flops / peak_flops),
        };
        let (loss, rate, tokens) = (progress.loss, progress.learning_rate, self.speed.tokens);
        format!(
            "loss {loss:.4}, learning rate {rate:.1e}, {skipped}{tokens:.0} tokens/s, {used}{left:#} left"
        )
    }

    /// Rewrites the report of the run.
    pub(super) fn report(&self) {
        if let Err(error) = report::make(&self.folder) {
            self.bar.suspend(|| output::warn(format!("cannot write the report: {error}")));
        }
    }
}

/// Writes `text` to a file of the run's folder.
fn replace(path: &Path, text: &str) -> Result<()> {
    AtomicFile::create_own(path, |_| true)?.commit_bytes(text.as_bytes())
}

impl RunCallbacks for Terminal<'_> {
    fn step(&mut self, progress: &StepReport) {
        self.speed.add(progress);
        let line = self.line(progress);
        self.bar.set_length(progress.steps);
        self.bar.set_position(progress.step);
        let due = self.last_line.is_none_or(|last| last.elapsed() >= BETWEEN_LINES);
        if self.prints_lines && (due || progress.step == progress.steps) {
            output::note(self.open.quiet, format!("step {}/{}: {line}", progress.step, progress.steps));
            self.last_line = Some(Instant::now());
        }
        self.bar.set_message(line);
        let per_second = progress.tokens as f64 / progress.seconds.max(1e-9);
        let mut numbers = vec![
            ("train/loss", progress.loss),
            ("train/learning_rate", progress.learning_rate),
            ("train/grad_norm", progress.grad_norm),
            ("train/accuracy", progress.accuracy),
            ("train/loss_scale", progress.loss_scale),
            ("train/skipped_steps", progress.skipped_steps as f64),
            ("train/tokens_per_second", per_second),
        ];
        if self.peak_flops > 0.0 {
            numbers.push(("train/mfu", progress.flops / progress.seconds.max(1e-9) / self.peak_flops));
        }
        self.write(&progress.json(), progress.step, &numbers);
        self.last = Some(*progress);
    }

    fn validation(&mut self, validation: &Validation) {
        let best = if validation.best { ", the best so far" } else { "" };
        let line = format!("step {}: validation loss {:.4}{best}", validation.step, validation.loss);
        self.bar.suspend(|| output::note(self.open.quiet, line));
        self.write(
            &validation.json(),
            validation.step,
            &[("validation/loss", validation.loss), ("validation/accuracy", validation.accuracy)],
        );
        self.validation = Some(*validation);
        self.report();
    }

    fn samples(&mut self, step: u64, samples: &[Sample]) {
        let line = json!({"step": step, "samples": samples});
        let file = append_no_follow(self.folder.join(report::SAMPLES));
        if file.is_ok_and(|mut file| writeln!(file, "{line}").is_ok()) {
            self.report();
        }
    }

    fn statistics(&mut self, statistics: &StepStatistics) {
        let file = append_no_follow(self.folder.join(report::STATISTICS));
        let _ = file.map(|mut file| writeln!(file, "{}", statistics.json()));
        let _ = self.events.add_statistics(statistics);
    }

    fn profile(&mut self, events: &[Event]) {
        let table = profile::text(&ProfileRow::of(events));
        let trace = self.folder.join("trace.json");
        let written = replace(&trace, &profile::trace(events).to_string())
            .and_then(|()| replace(&self.folder.join("profile.txt"), &table));
        self.bar.suspend(|| match written {
            Ok(()) => output::note(self.open.quiet, format!("{table}{}", trace.display())),
            Err(error) => output::warn(error),
        });
    }

    fn warning(&mut self, text: &str) {
        self.bar.suspend(|| output::warn(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_moving_average() {
        let step = |seconds: f64| StepReport { tokens: 100, flops: 1e9, seconds, ..StepReport::default() };
        let mut speed = Speed::default();
        assert_eq!(speed.left(10), Duration::ZERO);
        speed.add(&step(0.5));
        assert!((speed.tokens - 200.0).abs() < 1e-9 && (speed.flops - 2e9).abs() < 1.0);
        speed.add(&step(1.0));
        assert!((speed.tokens - 190.0).abs() < 1e-9, "{}", speed.tokens);
        // The first step took half a second and the second no time: a quarter each.
        let left = speed.left(10).as_secs_f64();
        assert!((2.5..60.0).contains(&left), "{left}");
        assert_eq!(speed.left(0), Duration::ZERO);
    }
}

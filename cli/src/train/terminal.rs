//! Shows the progress of a run, and records the data of its report.

use crate::options::OpenArgs;
use crate::output;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use siskin::Result;
use siskin::file::{AtomicFile, append_own};
use siskin_trainer::events::Events;
use siskin_trainer::profile::{self, Event, ProfileRow};
use siskin_trainer::report;
use siskin_trainer::run::{self, Sample, StepReport, Validation, Watcher};
use siskin_trainer::statistics::StepStatistics;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Minimum interval between progress lines if there is no progress bar.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Weight of a new step in the moving average of the rate.
const NEW: f64 = 0.1;

/// The speed of a run, averaged over its last steps.
#[derive(Default)]
struct Speed {
    tokens: f64,
    work: f64,
    /// Steps of this process, and the start of the first one.
    steps: u64,
    begun: Option<Instant>,
}

impl Speed {
    fn add(&mut self, progress: &StepReport) {
        let per_second = |count: f64| count / progress.seconds.max(1e-9);
        let new = if self.steps == 0 { 1.0 } else { NEW };
        self.tokens += new * (per_second(progress.rows as f64) - self.tokens);
        self.work += new * (per_second(progress.work) - self.work);
        self.steps += 1;
        let took = Duration::try_from_secs_f64(progress.seconds).unwrap_or_default();
        self.begun.get_or_insert_with(|| Instant::now().checked_sub(took).unwrap_or_else(Instant::now));
    }

    /// Returns the estimated time of `left` more steps, including validation and checkpoints.
    fn left(&self, left: u64) -> Duration {
        let passed = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let seconds = passed / self.steps.max(1) as f64 * left as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// Shows the progress of a run: a progress bar on a terminal, otherwise a line now and then.
pub(super) struct Terminal<'a> {
    open: &'a OpenArgs,
    folder: PathBuf,
    pub(super) bar: ProgressBar,
    log: File,
    events: Events,
    speed: Speed,
    /// Peak throughput in multiply-adds per second, for MFU; 0 if unknown.
    ceiling: f64,
    lines: bool,
    last_line: Option<Instant>,
    /// The last step; `None` if the run was already complete.
    pub(super) last: Option<StepReport>,
    pub(super) seen: Option<Validation>,
}

impl<'a> Terminal<'a> {
    /// Writes the log and events to `folder`; MFU is relative to `ceiling`, if known.
    pub(super) fn new(open: &'a OpenArgs, folder: &Path, ceiling: f64) -> Result<Self> {
        run::prepare_folder(folder)?;
        let log = append_own(folder.join(report::LOG))?;
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
            ceiling,
            lines: !terminal && !open.quiet,
            last_line: None,
            last: None,
            seen: None,
        })
    }

    fn write(&mut self, value: &Value, step: u64, numbers: &[(&str, f64)]) {
        // A failure to write the log does not end the run.
        let _ = writeln!(self.log, "{value}");
        let _ = self.events.add(step, numbers);
    }

    fn line(&self, progress: &StepReport) -> String {
        let left = HumanDuration(self.speed.left(progress.steps.saturating_sub(progress.step)));
        let skipped = match progress.skipped {
            0 => String::new(),
            skipped => format!("{skipped} skipped, "),
        };
        let used = match self.ceiling {
            0.0 => String::new(),
            ceiling => format!("{:.1} % MFU, ", 100.0 * self.speed.work / ceiling),
        };
        let (loss, rate, tokens) = (progress.loss, progress.rate, self.speed.tokens);
        format!("loss {loss:.4}, rate {rate:.1e}, {skipped}{tokens:.0} tokens/s, {used}{left:#} left")
    }

    /// Rewrites the report.
    pub(super) fn report(&self) {
        if let Err(error) = report::make(&self.folder) {
            self.bar.suspend(|| output::warn(format!("no report: {error}")));
        }
    }
}

/// Writes `text` to a file of the run's folder.
fn replace(path: &Path, text: &str) -> Result<()> {
    AtomicFile::create_own(path, |_| true)?.commit_bytes(text.as_bytes())
}

impl Watcher for Terminal<'_> {
    fn step(&mut self, progress: &StepReport) {
        self.speed.add(progress);
        let line = self.line(progress);
        self.bar.set_length(progress.steps);
        self.bar.set_position(progress.step);
        let due = self.last_line.is_none_or(|last| last.elapsed() >= BETWEEN_LINES);
        if self.lines && (due || progress.step == progress.steps) {
            output::note(self.open, format!("step {}/{}: {line}", progress.step, progress.steps));
            self.last_line = Some(Instant::now());
        }
        self.bar.set_message(line);
        let per_second = progress.rows as f64 / progress.seconds.max(1e-9);
        let mut numbers = vec![
            ("loss", progress.loss),
            ("rate", progress.rate),
            ("gradient", progress.norm),
            ("right", progress.right),
            ("scale", progress.scale),
            ("skipped", progress.skipped as f64),
            ("tokens_per_second", per_second),
        ];
        if self.ceiling > 0.0 {
            numbers.push(("mfu", progress.work / progress.seconds.max(1e-9) / self.ceiling));
        }
        self.write(&progress.json(), progress.step, &numbers);
        self.last = Some(*progress);
    }

    fn look(&mut self, seen: &Validation) {
        let best = if seen.best { ", the best so far" } else { "" };
        let line = format!("step {}: validation loss {:.4}{best}", seen.step, seen.loss);
        self.bar.suspend(|| output::note(self.open, line));
        let line = json!({"step": seen.step, "validation_loss": seen.loss, "right": seen.right});
        self.write(&line, seen.step, &[("validation_loss", seen.loss), ("validation_right", seen.right)]);
        self.seen = Some(*seen);
        self.report();
    }

    fn samples(&mut self, step: u64, samples: &[Sample]) {
        let line = json!({"step": step, "samples": samples});
        let file = append_own(self.folder.join(report::SAMPLES));
        if file.is_ok_and(|mut file| writeln!(file, "{line}").is_ok()) {
            self.report();
        }
    }

    fn statistics(&mut self, statistics: &StepStatistics) {
        let file = append_own(self.folder.join(report::STATISTICS));
        let _ = file.map(|mut file| writeln!(file, "{}", statistics.json()));
        let _ = self.events.add_statistics(statistics);
    }

    fn profile(&mut self, events: &[Event]) {
        let table = profile::text(&ProfileRow::of(events));
        let trace = self.folder.join("trace.json");
        let written = replace(&trace, &profile::trace(events).to_string())
            .and_then(|()| replace(&self.folder.join("profile.txt"), &table));
        self.bar.suspend(|| match written {
            Ok(()) => output::note(self.open, format!("{table}{}", trace.display())),
            Err(error) => output::warn(error),
        });
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| output::warn(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_that_of_the_last_steps() {
        let step = |seconds: f64| StepReport { rows: 100, work: 1e9, seconds, ..StepReport::default() };
        let mut speed = Speed::default();
        assert_eq!(speed.left(10), Duration::ZERO);
        speed.add(&step(0.5));
        assert!((speed.tokens - 200.0).abs() < 1e-9 && (speed.work - 2e9).abs() < 1.0);
        speed.add(&step(1.0));
        assert!((speed.tokens - 190.0).abs() < 1e-9, "{}", speed.tokens);
        // The first step took half a second and the second no time: a quarter each.
        let left = speed.left(10).as_secs_f64();
        assert!((2.5..60.0).contains(&left), "{left}");
        assert_eq!(speed.left(0), Duration::ZERO);
    }
}

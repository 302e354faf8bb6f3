//! The report of a run: one file without scripts, made of what the run wrote into its folder.
//!
//! A run writes lines of JSON: `log.jsonl` has its steps and looks, `statistics.jsonl` what numbers are like, and
//! `samples.jsonl` what the model wrote; `run.json` has its config and its memory. A line that cannot be read, such as
//! the last one of a run that was killed, is left out. Where a run went on from a checkpoint, what it had done after
//! that is no part of it any more.

mod curve;
mod page;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use siskin::{Error, ErrorKind, Result};

use crate::files::write;
use crate::program::Parts;
use crate::run::Sample;

/// The file of steps and looks.
pub const LOG: &str = "log.jsonl";
/// The file of what numbers are like.
pub const STATISTICS: &str = "statistics.jsonl";
/// The file of what the model wrote.
pub const SAMPLES: &str = "samples.jsonl";
/// The file of what a run is.
pub const RUN: &str = "run.json";
/// The report.
pub const REPORT: &str = "report.html";

/// Longer lines are left out.
const LONGEST: u64 = 1 << 26;

/// Points of a curve: a step, and a number.
pub type Points = Vec<(f64, f64)>;

/// What is known of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The config as it was written.
    pub config: String,
    /// Bytes by part.
    pub memory: Vec<(String, u64)>,
    /// Operations that the processor does in a second at most; 0 where it is not known.
    pub ceiling: f64,
    /// Steps of the whole run.
    pub steps: u64,
    /// The loss of each step.
    pub training: Points,
    /// The loss of each look.
    pub validation: Points,
    /// The rate of each step.
    pub rate: Points,
    /// The length of each step's gradient.
    pub norm: Points,
    /// Tokens a second of each step.
    pub speed: Points,
    /// The share of what the processor can do, of each step.
    pub share: Points,
    /// The step of the last statistics, and each name with its numbers.
    pub statistics: Option<(u64, Vec<(String, Value)>)>,
    /// The step of each look, and what the model wrote.
    pub samples: Vec<(u64, Vec<Sample>)>,
}

/// Writes what a run is into its folder: what a report shows beside curves. `ceiling` is what the run could compute in a
/// second at most; 0 where that is not known.
pub fn describe(folder: &Path, config: &str, memory: &Parts, ceiling: f64, steps: u64) -> Result<()> {
    let memory: Vec<Value> = memory.list().into_iter().map(|(name, bytes)| json!([name, bytes])).collect();
    let value = json!({"config": config, "memory": memory, "ceiling": ceiling, "steps": steps});
    write(&folder.join(RUN), value.to_string().as_bytes())
}

/// Makes the report of a run's folder; where it is.
pub fn make(folder: &Path) -> Result<PathBuf> {
    let report = Report::read(folder)?;
    crate::run::folder::check(folder)?;
    let path = folder.join(REPORT);
    let title = folder.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    write(&path, report.html(&title).as_bytes())?;
    Ok(path)
}

impl Report {
    /// Reads what a run wrote into its folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut report = Self::default();
        if let Ok(bytes) = std::fs::read(folder.join(RUN))
            && let Ok(run) = serde_json::from_slice::<Value>(&bytes)
        {
            report.describe(&run);
        }
        let Some(log) = lines(&folder.join(LOG))? else {
            let message = "is missing; name the folder of a run, such as mini-gpt.run";
            return Err(Error::new(ErrorKind::Missing, folder.join(LOG).display().to_string(), message));
        };
        log.for_each(|line| report.add(&line));
        for line in lines(&folder.join(STATISTICS))?.into_iter().flatten() {
            report.add_statistics(&line);
        }
        for line in lines(&folder.join(SAMPLES))?.into_iter().flatten() {
            report.add_samples(&line);
        }
        Ok(report)
    }

    fn describe(&mut self, run: &Value) {
        self.config = run["config"].as_str().unwrap_or_default().to_owned();
        self.ceiling = run["ceiling"].as_f64().unwrap_or(0.0);
        self.steps = run["steps"].as_u64().unwrap_or(0);
        let part = |part: &Value| Some((part[0].as_str()?.to_owned(), part[1].as_u64()?));
        self.memory = run["memory"].as_array().into_iter().flatten().filter_map(part).collect();
    }

    /// Adds a line of the log.
    fn add(&mut self, line: &Value) {
        let Some(step) = line["step"].as_f64() else { return };
        let number = |name: &str| line[name].as_f64().filter(|number| number.is_finite());
        if let Some(loss) = number("validation_loss") {
            put(&mut self.validation, step, Some(loss));
            return;
        }
        if self.training.last().is_some_and(|(last, _)| step <= *last) {
            // The run went on from a checkpoint: a look belongs to the step before it.
            self.validation.retain(|(looked, _)| *looked < step);
        }
        put(&mut self.training, step, number("loss"));
        put(&mut self.rate, step, number("rate"));
        put(&mut self.norm, step, number("norm"));
        let per_second = |name| Some(number(name)? / number("seconds").filter(|seconds| *seconds > 0.0)?);
        put(&mut self.speed, step, per_second("rows"));
        if self.ceiling > 0.0 {
            put(&mut self.share, step, per_second("work").map(|rate| 100.0 * rate / self.ceiling));
        }
    }

    fn add_statistics(&mut self, line: &Value) {
        let Some(step) = line["step"].as_u64() else { return };
        let list = |kind: &str| -> Vec<(String, Value)> {
            let all = line[format!("{kind}s")].as_object();
            all.into_iter().flatten().map(|(name, own)| (format!("{kind} {name}"), own.clone())).collect()
        };
        self.statistics = Some((step, [list("output"), list("gradient")].concat()));
    }

    fn add_samples(&mut self, line: &Value) {
        let Some(step) = line["step"].as_u64() else { return };
        let samples = line["samples"].as_array().into_iter().flatten();
        let samples = samples.filter_map(|sample| serde_json::from_value(sample.clone()).ok()).collect();
        self.samples.retain(|(known, _)| *known < step);
        self.samples.push((step, samples));
    }
}

/// Adds a point, and takes off those that it comes before.
fn put(points: &mut Points, step: f64, number: Option<f64>) {
    while points.last().is_some_and(|(last, _)| *last >= step) {
        points.pop();
    }
    points.extend(number.map(|number| (step, number)));
}

/// The lines of a file that are JSON; none where there is no such file.
fn lines(path: &Path) -> Result<Option<impl Iterator<Item = Value> + use<>>> {
    let place = path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&place, &error)),
    };
    let parse = |line: Vec<u8>| (line.len() as u64 <= LONGEST).then(|| serde_json::from_slice(&line).ok())?;
    Ok(Some(BufReader::new(file).split(b'\n').map_while(std::io::Result::ok).filter_map(parse)))
}

#[cfg(test)]
mod tests;

//! The report of a run: one HTML file without scripts, built from the files in the run's folder.
//!
//! A run writes JSON lines: `log.jsonl` has its steps and validations, `statistics.jsonl` tensor statistics, and
//! `samples.jsonl` sample generations; `run.json` has its config and its memory. An unreadable line, such as the last
//! one of a killed run, is skipped. After a resume, entries of the steps after the checkpoint are dropped.

mod curve;
mod html;
mod page;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use siskin_format::{Error, ErrorKind, Result};

use crate::files::write;
use crate::program::MemoryByPart;
use crate::run_folder::RUN;

/// A sample generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The prompt.
    pub prompt: String,
    /// The generated text.
    pub text: String,
}

/// The log of steps and validations.
pub const LOG: &str = "log.jsonl";
/// The log of tensor statistics.
pub const STATISTICS: &str = "statistics.jsonl";
/// The log of sample generations.
pub const SAMPLES: &str = "samples.jsonl";
/// The report.
pub const REPORT: &str = "report.html";

/// The maximum length of a line; longer ones are skipped.
const MAX_LOG_BYTES: u64 = 1 << 26;

/// Points of a curve: step and value.
pub type Points = Vec<(f64, f64)>;

/// The data of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// The text of the config.
    pub config: String,
    /// Memory in bytes, by part.
    pub memory: Vec<(String, u64)>,
    /// The peak FLOP/s of the training device; 0 if unknown.
    pub peak_flops: f64,
    /// The total number of steps.
    pub steps: u64,
    /// The loss of each step.
    pub training: Points,
    /// The loss of each validation.
    pub validation: Points,
    /// The learning rate of each step.
    pub learning_rate: Points,
    /// The gradient norm of each step.
    pub grad_norm: Points,
    /// Tokens per second of each step.
    pub tokens_per_second: Points,
    /// The MFU of each step, in percent.
    pub mfu: Points,
    /// The step of the last statistics, and the values of each name.
    pub statistics: Option<(u64, Vec<(String, Value)>)>,
    /// The step of each validation, and its sample generations.
    pub samples: Vec<(u64, Vec<Sample>)>,
}

/// Writes the description of a run into its folder: what a report shows besides curves. `peak_flops` is the peak FLOP/s
/// of the training device; 0 if unknown.
pub fn describe(
    folder: &Path,
    config: &str,
    memory: &MemoryByPart,
    peak_flops: f64,
    steps: u64,
) -> Result<()> {
    let memory: Vec<Value> = memory.list().into_iter().map(|(name, bytes)| json!([name, bytes])).collect();
    let value = json!({"config": config, "memory": memory, "peak_flops": peak_flops, "steps": steps});
    write(&folder.join(RUN), value.to_string().as_bytes())
}

/// Creates the report of a run's folder, and returns its path.
pub fn make(folder: &Path) -> Result<PathBuf> {
    let report = RunReport::read(folder)?;
    crate::run_folder::check(folder)?;
    let path = folder.join(REPORT);
    let title = folder.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    write(&path, report.html(&title).as_bytes())?;
    Ok(path)
}

impl RunReport {
    /// Reads the files of a run's folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut report = Self::default();
        if let Ok(bytes) = std::fs::read(folder.join(RUN))
            && let Ok(run) = serde_json::from_slice::<Value>(&bytes)
        {
            report.describe(&run);
        }
        let Some(log) = lines(&folder.join(LOG))? else {
            let message = "missing; name the folder of a run, such as mini-gpt.run";
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
        self.peak_flops = run["peak_flops"].as_f64().unwrap_or(0.0);
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
            // The run was resumed from a checkpoint: validations from this step on are repeated.
            self.validation.retain(|(validated, _)| *validated < step);
        }
        put(&mut self.training, step, number("loss"));
        put(&mut self.learning_rate, step, number("learning_rate"));
        put(&mut self.grad_norm, step, number("grad_norm"));
        let per_second = |name| Some(number(name)? / number("seconds").filter(|seconds| *seconds > 0.0)?);
        put(&mut self.tokens_per_second, step, per_second("tokens"));
        if self.peak_flops > 0.0 {
            put(&mut self.mfu, step, per_second("flops").map(|rate| 100.0 * rate / self.peak_flops));
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

/// Adds a point, and removes later points.
fn put(points: &mut Points, step: f64, number: Option<f64>) {
    while points.last().is_some_and(|(last, _)| *last >= step) {
        points.pop();
    }
    points.extend(number.map(|number| (step, number)));
}

/// Returns the valid JSON lines of a file; `None` if it does not exist.
fn lines(path: &Path) -> Result<Option<impl Iterator<Item = Value> + use<>>> {
    let place = path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&place, &error)),
    };
    let parse =
        |line: Vec<u8>| (line.len() as u64 <= MAX_LOG_BYTES).then(|| serde_json::from_slice(&line).ok())?;
    Ok(Some(BufReader::new(file).split(b'\n').map_while(std::io::Result::ok).filter_map(parse)))
}

#[cfg(test)]
mod tests;

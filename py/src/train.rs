//! Training from a TOML config.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use siskin::file::{AtomicFile, File};
use siskin::{Error, ErrorKind, Result};
use siskin_convert::OpenOptions;
use siskin_trainer::checkpoint::CheckpointFolder;
use siskin_trainer::run::{self, OpenedBase, Run, RunCallbacks, RunConfig, RunSetup, StepReport, Validation};

use crate::errors::exception;
use crate::json::from_json;

/// Calls Python functions with reports, and checks for signals.
struct PyCallbacks<'a> {
    functions: Vec<Py<PyAny>>,
    /// Ends the run after the step.
    stop: &'a AtomicBool,
    /// What a function or a signal handler raised.
    raised: Option<PyErr>,
    last: Option<StepReport>,
    validation: Option<Validation>,
}

impl PyCallbacks<'_> {
    fn report(&mut self, kind: &str, json: &str) {
        let functions = &self.functions;
        let outcome = Python::attach(|py| {
            py.check_signals()?;
            let report = from_json(py, json)?.cast_into::<PyDict>()?;
            report.set_item("kind", kind)?;
            let stop = py.import("siskin._train")?.getattr("STOP")?;
            let mut stops = false;
            for function in functions {
                stops |= function.call1(py, (&report,))?.bind(py).is(&stop);
            }
            Ok(stops)
        });
        match outcome {
            Ok(false) => {}
            Ok(true) => self.stop.store(true, Ordering::Relaxed),
            Err(raised) => {
                self.stop.store(true, Ordering::Relaxed);
                self.raised.get_or_insert(raised);
            }
        }
    }
}

impl RunCallbacks for PyCallbacks<'_> {
    fn step(&mut self, report: &StepReport) {
        self.last = Some(*report);
        self.report("step", &report.json().to_string());
    }

    fn validation(&mut self, report: &Validation) {
        self.validation = Some(*report);
        self.report("validation", &report.json().to_string());
    }
}

/// Returns the file of a base or teacher model.
fn open(path: &str) -> Result<File> {
    siskin_convert::open_any(path, &OpenOptions::default())
}

fn setup(config: &RunConfig, folder: &Path, resumes: bool) -> Result<RunSetup> {
    let base = match (&config.model.from, &config.model.tokenizer, &config.model.family) {
        (Some(path), ..) => OpenedBase::File(Box::new(open(path)?)),
        (None, Some(tokenizer), Some(_)) => OpenedBase::New {
            tokenizer: siskin_convert::tokenizer_section(tokenizer)?.to_vec(),
            template: None,
        },
        (None, None, Some(_)) => {
            let json = run::trained_tokenizer(config, folder, resumes)?;
            OpenedBase::New { tokenizer: siskin_convert::tokenizer_of_json(&json)?, template: None }
        }
        (None, _, None) => {
            let message = "set `from` (a model to fine-tune) or `family` (a new model with random weights)";
            return Err(Error::argument("model", message));
        }
    };
    let setup = RunSetup::new(config, base)?;
    match &config.teacher {
        Some(teacher) => setup.with_teacher(&open(&teacher.from)?),
        None => Ok(setup),
    }
}

/// What a run is to do.
struct TrainArguments {
    config: PathBuf,
    output: PathBuf,
    folder: PathBuf,
    resume: bool,
}

impl TrainArguments {
    /// Trains, writes the result, and returns its report as JSON.
    fn run(&self, callbacks: &mut PyCallbacks<'_>) -> Result<String> {
        let (config, _) = RunConfig::open(&self.config)?;
        let location = self.config.display().to_string();
        let within = |error: Error| error.within(&location);
        let mut inputs = run::inputs(&config).map_err(within)?;
        inputs.extend([self.config.clone(), self.folder.clone()]);
        // Fails before training, not after it.
        drop(AtomicFile::create_from(&self.output, &inputs)?);
        let has_checkpoints = CheckpointFolder::is_used(&self.folder)?;
        if has_checkpoints && !self.resume {
            let message = "the folder holds the checkpoints of a run; pass resume=True, or remove it";
            return Err(Error::argument(self.folder.display().to_string(), message));
        }
        let setup = setup(&config, &self.folder, has_checkpoints).map_err(within)?;
        let mut trained = Run::new(config, setup, Some(&self.folder)).map_err(within)?;
        if self.resume && !trained.resume(callbacks)? {
            let message = "no checkpoint; train without resume=True first";
            return Err(Error::new(ErrorKind::Missing, self.folder.display().to_string(), message));
        }
        let ended = trained.train(callbacks.stop, callbacks)?;
        if callbacks.raised.is_some() {
            return Err(Error::canceled("train"));
        }
        let (steps, exported) = (trained.steps(), trained.load_export_weights()?);
        trained.write(AtomicFile::create_from(&self.output, &inputs)?)?;
        let loss = |loss: Option<f64>| loss.map_or("null".to_owned(), |loss| loss.to_string());
        Ok(format!(
            r#"{{"steps":{steps},"exported_step":{exported},"loss":{},"validation_loss":{},"end_reason":"{}"}}"#,
            loss(callbacks.last.map(|report| report.loss)),
            loss(callbacks.validation.map(|report| report.loss)),
            ended.name()
        ))
    }
}

/// Trains a model from a TOML config on the CPU, and writes it to `output`. Each callback is called with the report of a step
/// or of a validation, whose `kind` says which; one that returns `siskin.STOP` ends the run, whose weights are then written.
#[pyfunction]
#[pyo3(signature = (config, output, *, folder, resume = false, callbacks = Vec::new()))]
pub(crate) fn train<'py>(
    py: Python<'py>,
    config: PathBuf,
    output: PathBuf,
    folder: PathBuf,
    resume: bool,
    callbacks: Vec<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = TrainArguments { config, output, folder, resume };
    let stop = AtomicBool::new(false);
    let (outcome, raised) = py.detach(|| {
        let (last, validation) = (None, None);
        let mut callbacks = PyCallbacks { functions: callbacks, stop: &stop, raised: None, last, validation };
        (arguments.run(&mut callbacks), callbacks.raised)
    });
    match (raised, outcome) {
        (Some(raised), _) => Err(raised),
        (None, Ok(report)) => from_json(py, &report),
        (None, Err(error)) => Err(exception(py, &error)),
    }
}

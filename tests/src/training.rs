//! Helpers of training tests: a small text, and a small model that learns it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siskin_trainer::run::{OpenedBase, Run, RunCallbacks, RunConfig, RunSetup, StepReport, Validation};
use siskin_trainer::statistics::StepStatistics;
use siskin_trainer::tokenizer;

/// A test's own folder with the training text; removed on drop.
pub struct TrainingFolder(pub PathBuf);

impl TrainingFolder {
    /// Creates a folder; the name distinguishes it from those of other tests.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-training-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("text.txt"), text()).unwrap();
        Self(path)
    }

    /// Returns a config of twelve steps of a small GPT-2 over the text, with the settings in `more`.
    pub fn config(&self, more: &str) -> RunConfig {
        let text = self.0.join("text.txt").display().to_string();
        let base = format!(
            "steps = 12\n{more}\n[model]\nfamily = \"gpt2\"\nconfig = {{ vocab_size = {VOCABULARY}, n_embd = 32, \
             n_layer = 2, n_head = 4, n_positions = 64 }}\n[data]\ntask = \"causal_lm\"\ntrain = [{text:?}]\n\
             validation_split = 0.2\nsettings = {{ max_length = 32 }}\n[validation]\nevery_n_steps = 6\n"
        );
        RunConfig::parse(&base).unwrap()
    }
}

impl Drop for TrainingFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const VOCABULARY: usize = 280;

/// Returns sentences with learnable structure.
fn text() -> String {
    let animals = ["siskin", "wren", "heron", "otter", "badger", "newt"];
    let verbs = ["sings to", "waits for", "follows", "hides from"];
    let sentence = |i: usize| {
        let (one, verb, other) = (animals[i % 6], verbs[i / 2 % 4], animals[i * 5 / 3 % 6]);
        format!("The {one} {verb} the {other}, and the {other} follows the {one}.\n\n")
    };
    (0..160).map(sentence).collect()
}

/// Returns a new model, with a tokenizer trained on the text.
pub fn base() -> OpenedBase {
    let learned = tokenizer::train([&*text()].into_iter(), VOCABULARY, &["<|endoftext|>"]).unwrap();
    let tokenizer = siskin_convert::tokenizer_of_json(learned.to_string().as_bytes()).unwrap();
    OpenedBase::New { tokenizer, template: None }
}

/// Returns the inputs of a run of the new model.
pub fn setup(config: &RunConfig) -> RunSetup {
    RunSetup::new(config, base()).unwrap()
}

/// Creates a run of the new model, which writes its files to the folder.
pub fn run(config: RunConfig, folder: Option<&Path>) -> Run {
    let setup = setup(&config);
    Run::new(config, setup, folder).unwrap()
}

/// Records progress reports, and stops the run after a step.
#[derive(Default)]
pub struct Notes {
    /// The losses of all steps.
    pub losses: Vec<f64>,
    /// The validation results.
    pub validations: Vec<Validation>,
    /// The statistics of steps.
    pub statistics: Vec<StepStatistics>,
    /// The step after which it stops the run.
    pub stop_after: Option<u64>,
    /// The stop flag of the run.
    pub stop: Arc<AtomicBool>,
}

impl RunCallbacks for Notes {
    fn step(&mut self, progress: &StepReport) {
        self.losses.push(progress.loss);
        if self.stop_after == Some(progress.step) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn validation(&mut self, validation: &Validation) {
        self.validations.push(*validation);
    }

    fn statistics(&mut self, statistics: &StepStatistics) {
        self.statistics.push(statistics.clone());
    }
}

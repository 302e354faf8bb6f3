//! What a run is told, as a TOML file says it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use siskin::{Error, Result};

use super::samples::ReportOptions;
use crate::adapters::AdapterOptions;
use crate::data::LoaderOptions;
use crate::data::task;
use crate::optimiser::OptimiserOptions;
use crate::profile::ProfileOptions;
use crate::program::Recompute;
use crate::quantise::QuantiseOptions;
use crate::runner::RouterOptions;
use crate::schedule::ScheduleOptions;
use crate::settings::{Settings, read, unknown, within};

/// Where a model comes from: a file, or a family and its hyper-parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// A model in any format that can be opened.
    pub from: Option<String>,
    /// The family of a model that begins with random numbers.
    pub family: Option<String>,
    /// The head of such an encoder.
    pub head: Option<String>,
    /// The hyper-parameters of such a model, in the words of Hugging Face.
    pub config: Map<String, Value>,
    /// The tokenizer of such a model: a model that has it, or a `tokenizer.json`.
    pub tokenizer: Option<String>,
    /// Learns a tokenizer of so many ids from the training texts instead.
    pub vocabulary: Option<usize>,
    /// The tensors that are trained: names in which `*` stands for any letters. Empty: all.
    pub train: Vec<String>,
    /// The name of the model that comes out.
    pub name: Option<String>,
}

/// What is learnt from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// Which task.
    pub task: String,
    /// Files and folders.
    pub training: Vec<String>,
    /// Files and folders that are not trained on.
    pub validation: Vec<String>,
    /// The share of the training documents that is kept for validation instead.
    pub share: f64,
    /// Where plain text is cut into documents: `blank_lines`, `files`, or a separator.
    pub cut: Option<String>,
    /// The fields of lines of JSON that hold the texts, in the place of the task's own. Empty: those.
    pub fields: Vec<String>,
    /// The field that holds the class, in the place of the task's own.
    pub label: Option<String>,
    /// The names of the classes, by their numbers; where it is empty, classes are given by number.
    pub classes: Vec<String>,
    /// The task's own settings.
    pub settings: task::Settings,
}

/// Another model, whose scores are learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeacherOptions {
    /// A model in any format that can be opened.
    pub from: String,
}

/// How examples become steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchOptions {
    /// The most rows of a batch.
    pub rows: usize,
    /// The most examples of a batch; 0: no limit.
    pub examples: usize,
    /// Batches whose gradients make a step.
    pub accumulate: usize,
    /// Examples that are put in order of length before they are cut into batches.
    pub pool: usize,
    /// Whether they are put in that order.
    pub by_length: bool,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        let LoaderOptions { rows, examples, pool, by_length, shuffle, .. } = LoaderOptions::default();
        Self { rows, examples, accumulate: 1, pool, by_length, shuffle }
    }
}

/// When the run looks at what it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateOptions {
    /// Steps from look to look; 0: only at the end.
    pub every: u64,
    /// Batches of a look; 0: all.
    pub batches: usize,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        Self { every: 250, batches: 50 }
    }
}

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointOptions {
    /// Steps from one to the next; 0: only at the end.
    pub every: u64,
    /// How many of the newest stay, beside the best.
    pub keep: usize,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { every: 500, keep: 3 }
    }
}

/// When a run looks at its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatisticsOptions {
    /// Steps from one to the next; 0: never.
    pub every: u64,
}

/// What comes out of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportOptions {
    /// Which weights: `last`, or `best`, those of the best look. Where it is not said, the best of a run with patience, else
    /// the last.
    pub weights: Option<String>,
    /// Whether adapters become a file of their own, not a part of the model.
    pub adapter: bool,
}

/// All that a run is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Another seed is another beginning and another order.
    pub seed: u64,
    /// How many steps.
    pub steps: u64,
    /// Gradients longer than this are made shorter; 0 in a file: they stay as long as they are.
    pub clip: Option<f64>,
    /// What is computed again: `nothing`, `attention`, `cheap`, `cost:N`, or `layers` or `layers:N`.
    pub recompute: String,
    /// Whether a batch is looked at before the first step.
    pub check: bool,
    /// What trains: `cpu` or `cuda`.
    pub device: String,
    /// What values and their gradients are kept in: `f32`, and on CUDA `bf16` or `fp16`.
    pub precision: String,
    /// Whether products of feed-forward layers and the last one have numbers of eight bits.
    pub fp8: bool,
    /// The model.
    pub model: ModelOptions,
    /// A model whose scores it learns.
    pub teacher: Option<TeacherOptions>,
    /// What it learns from.
    pub data: DataOptions,
    /// How examples become steps.
    pub batch: BatchOptions,
    /// How gradients change parameters.
    pub optimiser: OptimiserOptions,
    /// How far.
    pub schedule: ScheduleOptions,
    /// How far off outputs are: its `name` and settings.
    pub loss: Settings,
    /// What routers are told beside the loss.
    pub routers: RouterOptions,
    /// What the loss is multiplied by in fp16.
    pub scaler: Option<Settings>,
    /// Small matrices that are trained beside large ones.
    pub adapters: Option<AdapterOptions>,
    /// Rounds weights in each step as the file will hold them.
    pub quantise: Option<QuantiseOptions>,
    /// A moving average of the parameters.
    pub average: Option<Settings>,
    /// When to stop because nothing gets better.
    pub patience: Option<Settings>,
    /// When to look.
    pub evaluate: EvaluateOptions,
    /// What is kept.
    pub checkpoint: CheckpointOptions,
    /// When numbers are looked at.
    pub statistics: StatisticsOptions,
    /// Which steps are profiled.
    pub profile: ProfileOptions,
    /// What the report shows.
    pub report: ReportOptions,
    /// What comes out.
    pub export: ExportOptions,
}

/// What a run is told outside the sections.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Whole {
    seed: u64,
    steps: u64,
    clip: Option<f64>,
    recompute: String,
    check: bool,
    device: String,
    precision: String,
    fp8: bool,
}

impl Default for Whole {
    fn default() -> Self {
        let [recompute, device, precision] = ["nothing", "cpu", "f32"].map(str::to_owned);
        Self { seed: 1, steps: 1000, clip: Some(1.0), recompute, check: true, device, precision, fp8: false }
    }
}

const SECTIONS: &[&str] = &[
    "model",
    "teacher",
    "data",
    "batch",
    "optimiser",
    "schedule",
    "loss",
    "routers",
    "scaler",
    "adapters",
    "quantise",
    "average",
    "patience",
    "evaluate",
    "checkpoint",
    "statistics",
    "profile",
    "report",
    "export",
];

impl Config {
    /// Of the text of a TOML file. Unknown names give an error that says the nearest known one.
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = toml::from_str(text)
            .map_err(|error| Error::argument("config", error.to_string().trim_end().to_owned()))?;
        let Value::Object(mut all) = value else {
            return Err(Error::argument("config", "is no table"));
        };
        let mut sections = Map::new();
        for name in SECTIONS {
            match all.remove(*name) {
                Some(Value::Object(section)) => sections.insert((*name).to_owned(), Value::Object(section)),
                Some(_) => {
                    return Err(Error::argument(*name, format!("is no section; write it as [{name}]")));
                }
                None => None,
            };
        }
        let known = ["seed", "steps", "clip", "recompute", "check", "device", "precision", "fp8"];
        if let Some(name) = all.keys().find(|name| !known.contains(&name.as_str())) {
            let all: Vec<&str> = known.into_iter().chain(SECTIONS.iter().copied()).collect();
            return Err(unknown(name, "setting", name, &all));
        }
        let whole: Whole = read("config", &all)?;
        let clip = whole.clip.filter(|clip| *clip != 0.0);
        if let Some(clip) = clip {
            within("clip", clip, f64::MIN_POSITIVE..=f64::MAX)?;
        }
        let mut section = |name: &str| match sections.remove(name) {
            Some(Value::Object(section)) => Some(section),
            _ => None,
        };
        let optimiser = section("optimiser").unwrap_or_else(|| named("adamw"));
        let mut schedule = section("schedule").unwrap_or_default();
        if !schedule.contains_key("rate") {
            let message = "is missing; say the largest rate, such as 3e-4";
            return Err(Error::argument("schedule.rate", message));
        }
        schedule.entry("name").or_insert_with(|| "cosine".into());
        let typed = |place: &str, error: serde_json::Error| Error::argument(place, error.to_string());
        Ok(Self {
            seed: whole.seed,
            steps: whole.steps,
            clip,
            recompute: whole.recompute,
            check: whole.check,
            device: whole.device,
            precision: whole.precision,
            fp8: whole.fp8,
            model: read("model", &section("model").unwrap_or_default())?,
            teacher: section("teacher").map(|section| read("teacher", &section)).transpose()?,
            data: read("data", &section("data").unwrap_or_default())?,
            batch: read("batch", &section("batch").unwrap_or_default())?,
            optimiser: serde_json::from_value(optimiser.into()).map_err(|error| typed("optimiser", error))?,
            schedule: serde_json::from_value(schedule.into()).map_err(|error| typed("schedule", error))?,
            loss: section("loss").unwrap_or_else(|| named("cross_entropy")),
            routers: read("routers", &section("routers").unwrap_or_default())?,
            scaler: section("scaler"),
            adapters: section("adapters").map(|section| read("adapters", &section)).transpose()?,
            quantise: section("quantise").map(|section| read("quantise", &section)).transpose()?,
            average: section("average"),
            patience: section("patience"),
            evaluate: read("evaluate", &section("evaluate").unwrap_or_default())?,
            checkpoint: read("checkpoint", &section("checkpoint").unwrap_or_default())?,
            statistics: read("statistics", &section("statistics").unwrap_or_default())?,
            profile: read("profile", &section("profile").unwrap_or_default())?,
            report: read("report", &section("report").unwrap_or_default())?,
            export: read("export", &section("export").unwrap_or_default())?,
        })
    }

    /// Whether the weights of the best look are those that come out.
    pub fn exports_best(&self) -> Result<bool> {
        match self.export.weights.as_deref() {
            None => Ok(self.patience.is_some()),
            Some("best") => Ok(true),
            Some("last") => Ok(false),
            Some(other) => Err(unknown("export.weights", "choice", other, &["last", "best"])),
        }
    }

    /// Has the CPU do, in floats, what a device was to do.
    pub fn use_cpu(&mut self) {
        (self.device, self.precision) = ("cpu".to_owned(), "f32".to_owned());
        (self.fp8, self.scaler) = (false, None);
    }

    /// What is computed again.
    pub fn recompute(&self) -> Result<Recompute> {
        let number = |prefix: &str| self.recompute.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
        match self.recompute.as_str() {
            "nothing" => Ok(Recompute::Nothing),
            "attention" => Ok(Recompute::Attention),
            "cheap" => Ok(Recompute::Cost(0)),
            "layers" => Ok(Recompute::Layers(1)),
            other => match (number("layers:").filter(|count| *count > 0), number("cost:")) {
                (Some(count), _) => Ok(Recompute::Layers(count)),
                (_, Some(most)) => Ok(Recompute::Cost(most)),
                _ => {
                    let known = ["nothing", "attention", "cheap", "cost:1024", "layers", "layers:2"];
                    Err(unknown("recompute", "way", other, &known))
                }
            },
        }
    }
}

fn named(name: &str) -> Settings {
    [("name".to_owned(), name.into())].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "steps = 10\n[schedule]\nrate = 1e-3\n[data]\ntask = \"causal\"\n";

    #[test]
    fn what_is_not_said_is_as_usual() {
        let config = Config::parse(SMALL).unwrap();
        assert_eq!((config.steps, config.seed, config.clip), (10, 1, Some(1.0)));
        assert_eq!((config.schedule.name.as_str(), config.optimiser.name.as_str()), ("cosine", "adamw"));
        assert_eq!(config.recompute().unwrap(), Recompute::Nothing);
        assert!(!config.exports_best().unwrap());
        let recompute = |word: &str| {
            let config = Config::parse(&format!("recompute = {word:?}\n{SMALL}")).unwrap();
            config.recompute().ok()
        };
        assert_eq!(recompute("layers:3"), Some(Recompute::Layers(3)));
        assert_eq!(
            [recompute("cheap"), recompute("cost:768")],
            [0, 768].map(|most| Some(Recompute::Cost(most)))
        );
        assert_eq!([recompute("layers:0"), recompute("cost:")], [None; 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let clip = |value: &str| Config::parse(&format!("clip = {value}\n{SMALL}")).map(|config| config.clip);
        assert_eq!((clip("0").unwrap(), clip("0.5").unwrap()), (None, Some(0.5)));
        for bad in ["-1", "-1e-9"] {
            assert_eq!(clip(bad).unwrap_err().place(), "clip", "{bad}");
        }
        let config = Config::parse(&format!("{SMALL}[export]\nweights = \"bets\"\n")).unwrap();
        assert!(config.exports_best().unwrap_err().message().contains("did you mean `best`"));
    }

    #[test]
    fn errors_name_the_key_and_the_nearest() {
        let cases = [
            ("stepz = 3", "stepz", "steps"),
            ("[shedule]\nrate = 1", "shedule", "schedule"),
            ("[data]\ntaks = \"causal\"", "data.taks", "task"),
            ("[batch]\nrow = 3", "batch.row", "rows"),
            ("recompute = \"layer\"", "recompute", "layers"),
        ];
        for (line, place, nearest) in cases {
            let text = if line.starts_with('[') {
                format!("{SMALL}{line}").replacen("[data]\ntask = \"causal\"\n[data]", "[data]", 1)
            } else {
                format!("{line}\n{SMALL}")
            };
            let error = Config::parse(&text).and_then(|config| config.recompute().map(|_| ())).unwrap_err();
            assert!(error.place().contains(place), "{error}");
            assert!(error.message().contains(&format!("did you mean `{nearest}`")), "{error}");
        }
        assert!(Config::parse("steps = ").unwrap_err().message().contains("line 1"));
        assert!(Config::parse("steps = 1").unwrap_err().place().contains("schedule.rate"));
    }
}

//! The config of a training run, as a TOML file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use siskin_format::{Error, Result};

use super::report_options::ReportOptions;
use crate::adapters::AdapterOptions;
use crate::data::LoaderOptions;
use crate::data::task;
use crate::optimizer::OptimizerOptions;
use crate::profile::ProfileOptions;
use crate::program::Recompute;
use crate::qat::QatOptions;
use crate::runner::RouterOptions;
use crate::schedule::ScheduleOptions;
use crate::settings::{Settings, parse, read, unknown, within};

/// Where a model comes from: a file, or a family and its hyperparameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOrigin {
    /// A model file in any supported format.
    pub from: Option<String>,
    /// The family of a model with random initialization.
    pub family: Option<String>,
    /// The head of a randomly initialized encoder.
    pub head: Option<String>,
    /// The hyperparameters of a randomly initialized model, with the names of Hugging Face's `config.json`.
    pub config: Map<String, Value>,
    /// The tokenizer of a randomly initialized model: a model file that has it, or a `tokenizer.json`.
    pub tokenizer: Option<String>,
    /// Trains a tokenizer with this vocabulary size on the training text instead.
    pub tokenizer_vocab_size: Option<usize>,
    /// The tensors to train: names in which `*` matches any characters. Empty: all.
    pub trainable: Vec<String>,
    /// The name of the exported model.
    pub name: Option<String>,
}

/// The data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// The name of the task.
    pub task: String,
    /// Training files and folders.
    pub train: Vec<String>,
    /// Validation files and folders.
    pub validation: Vec<String>,
    /// The fraction of the training documents that is held out for validation instead.
    pub validation_split: f64,
    /// How plain text is split into documents: `blank_lines`, `files`, or a separator.
    pub document_separator: Option<String>,
    /// The fields of JSON lines that hold the text, in place of the task's own. Empty: the task's own.
    pub text_fields: Vec<String>,
    /// The field that holds the class, in place of the task's own.
    pub label_field: Option<String>,
    /// The class names, by index; if empty, classes are given by index.
    pub class_names: Vec<String>,
    /// The task's own settings.
    pub settings: task::TaskSettings,
}

/// The teacher model of knowledge distillation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeacherOptions {
    /// A model file in any supported format.
    pub from: String,
}

/// How examples become batches and steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchOptions {
    /// The maximum number of tokens of a batch, of encoder and decoder together.
    pub max_tokens: usize,
    /// The maximum number of examples of a batch; 0: no limit.
    pub max_examples: usize,
    /// Micro-batches per step (gradient accumulation).
    pub gradient_accumulation_steps: usize,
    /// The number of examples in a pool, which are sorted by length before they are cut into batches.
    pub pool_size: usize,
    /// Whether the examples of a pool are sorted by length.
    pub group_by_length: bool,
    /// Whether each epoch is shuffled.
    pub shuffle: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        let loader = LoaderOptions::default();
        Self {
            max_tokens: loader.max_tokens,
            max_examples: loader.max_examples,
            gradient_accumulation_steps: 1,
            pool_size: loader.pool_size,
            group_by_length: loader.group_by_length,
            shuffle: loader.shuffle,
        }
    }
}

/// When the run is validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidationOptions {
    /// Steps between two validations; 0: only at the end.
    pub every_n_steps: u64,
    /// Batches per validation; 0: all.
    pub batches: usize,
}

impl Default for ValidationOptions {
    fn default() -> Self {
        Self { every_n_steps: 250, batches: 50 }
    }
}

/// Which checkpoints are written and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointOptions {
    /// Steps between two checkpoints; 0: only at the end.
    pub every_n_steps: u64,
    /// How many of the newest checkpoints are kept, in addition to the best.
    pub keep_last: usize,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { every_n_steps: 500, keep_last: 3 }
    }
}

/// When statistics of tensors are computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatisticsOptions {
    /// Steps between two computations of statistics; 0: never.
    pub every_n_steps: u64,
}

/// What a run exports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunExports {
    /// Which weights: `last`, or `best`, those of the best validation. The default is `best` for a run with early
    /// stopping, else `last`.
    pub weights: Option<String>,
    /// Whether adapters are exported as a file of their own instead of being merged into the model.
    pub adapter: bool,
}

/// The complete config of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// The seed of initialization and shuffling.
    pub seed: u64,
    /// The number of steps.
    pub steps: u64,
    /// The maximum gradient norm (gradient clipping); 0 in a file: no clipping.
    pub max_grad_norm: Option<f64>,
    /// What is recomputed: `none`, `attention`, `cheap`, `cost:N`, or `layers` or `layers:N`.
    pub recompute: String,
    /// Whether a batch is checked before the first step.
    pub check: bool,
    /// The training device: `cpu` or `cuda`.
    pub device: String,
    /// The dtype of activations and their gradients: `f32`, and on CUDA `bf16` or `fp16`.
    pub precision: String,
    /// Whether the matmuls of feed-forward layers and the last one use fp8.
    pub fp8: bool,
    /// The model.
    pub model: ModelOrigin,
    /// The teacher model of knowledge distillation.
    pub teacher: Option<TeacherOptions>,
    /// The data set.
    pub data: DataOptions,
    /// How examples become batches and steps.
    pub batch: BatchOptions,
    /// The optimizer.
    pub optimizer: OptimizerOptions,
    /// The learning-rate schedule.
    pub schedule: ScheduleOptions,
    /// The loss: its `name` and settings.
    pub loss: Settings,
    /// The auxiliary losses of MoE routers.
    pub router: RouterOptions,
    /// Loss scaling in fp16.
    pub grad_scaler: Option<Settings>,
    /// LoRA or DoRA adapters.
    pub adapters: Option<AdapterOptions>,
    /// Quantization-aware training: rounds weights in each step as the exported file will hold them.
    pub qat: Option<QatOptions>,
    /// Weight averaging: a moving average of the parameters.
    pub ema: Option<Settings>,
    /// Early stopping.
    pub early_stopping: Option<Settings>,
    /// Validation.
    pub validation: ValidationOptions,
    /// Checkpoints.
    pub checkpoint: CheckpointOptions,
    /// Statistics of tensors.
    pub statistics: StatisticsOptions,
    /// The profiled steps.
    pub profile: ProfileOptions,
    /// What the report contains.
    pub report: ReportOptions,
    /// The export.
    pub export: RunExports,
}

/// The top-level keys and the sections of a config file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
struct TopLevel {
    seed: u64,
    steps: u64,
    max_grad_norm: Option<f64>,
    recompute: String,
    check: bool,
    device: String,
    precision: String,
    fp8: bool,
}

impl Default for TopLevel {
    fn default() -> Self {
        let [recompute, device, precision] = ["none", "cpu", "f32"].map(str::to_owned);
        Self {
            seed: 1,
            steps: 1000,
            max_grad_norm: Some(1.0),
            recompute,
            check: true,
            device,
            precision,
            fp8: false,
        }
    }
}

const SECTIONS: &[&str] = &[
    "model",
    "teacher",
    "data",
    "batch",
    "optimizer",
    "schedule",
    "loss",
    "router",
    "grad_scaler",
    "adapters",
    "qat",
    "ema",
    "early_stopping",
    "validation",
    "checkpoint",
    "statistics",
    "profile",
    "report",
    "export",
];

impl RunConfig {
    /// Parses the text of a TOML file. An unknown name gives an error that names the nearest known one.
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = toml::from_str(text)
            .map_err(|error| Error::argument("config", error.to_string().trim_end().to_owned()))?;
        let Value::Object(mut all) = value else {
            return Err(Error::argument("config", "not a table"));
        };
        let mut sections = Map::new();
        for name in SECTIONS {
            match all.remove(*name) {
                Some(Value::Object(section)) => sections.insert((*name).to_owned(), Value::Object(section)),
                Some(_) => {
                    return Err(Error::argument(*name, format!("not a section; write it as [{name}]")));
                }
                None => None,
            };
        }
        let known = ["seed", "steps", "max_grad_norm", "recompute", "check", "device", "precision", "fp8"];
        if let Some(name) = all.keys().find(|name| !known.contains(&name.as_str())) {
            let all: Vec<&str> = known.into_iter().chain(SECTIONS.iter().copied()).collect();
            return Err(unknown(name, "setting", name, &all));
        }
        let whole: TopLevel = read("", &all)?;
        let max_grad_norm = whole.max_grad_norm.filter(|norm| *norm != 0.0);
        if let Some(norm) = max_grad_norm {
            within("max_grad_norm", norm, f64::MIN_POSITIVE..=f64::MAX)?;
        }
        let mut section = |name: &str| match sections.remove(name) {
            Some(Value::Object(section)) => Some(section),
            _ => None,
        };
        let optimizer = section("optimizer").unwrap_or_else(|| named("adamw"));
        let mut schedule = section("schedule").unwrap_or_default();
        if !schedule.contains_key("learning_rate") {
            let message = "missing; set the peak learning rate, such as 3e-4";
            return Err(Error::argument("schedule.learning_rate", message));
        }
        schedule.entry("name").or_insert_with(|| "cosine".into());
        Ok(Self {
            seed: whole.seed,
            steps: whole.steps,
            max_grad_norm,
            recompute: whole.recompute,
            check: whole.check,
            device: whole.device,
            precision: whole.precision,
            fp8: whole.fp8,
            model: read("model", &section("model").unwrap_or_default())?,
            teacher: section("teacher").map(|section| read("teacher", &section)).transpose()?,
            data: read("data", &section("data").unwrap_or_default())?,
            batch: read("batch", &section("batch").unwrap_or_default())?,
            optimizer: parse("optimizer", &optimizer)?,
            schedule: parse("schedule", &schedule)?,
            loss: section("loss").unwrap_or_else(|| named("cross_entropy")),
            router: read("router", &section("router").unwrap_or_default())?,
            grad_scaler: section("grad_scaler"),
            adapters: section("adapters").map(|section| read("adapters", &section)).transpose()?,
            qat: section("qat").map(|section| read("qat", &section)).transpose()?,
            ema: section("ema"),
            early_stopping: section("early_stopping"),
            validation: read("validation", &section("validation").unwrap_or_default())?,
            checkpoint: read("checkpoint", &section("checkpoint").unwrap_or_default())?,
            statistics: read("statistics", &section("statistics").unwrap_or_default())?,
            profile: read("profile", &section("profile").unwrap_or_default())?,
            report: read("report", &section("report").unwrap_or_default())?,
            export: read("export", &section("export").unwrap_or_default())?,
        })
    }

    /// Returns true if the weights of the best validation are exported.
    pub fn exports_best(&self) -> Result<bool> {
        match self.export.weights.as_deref() {
            None => Ok(self.early_stopping.is_some()),
            Some("best") => Ok(true),
            Some("last") => Ok(false),
            Some(other) => Err(unknown("export.weights", "choice", other, &["last", "best"])),
        }
    }

    /// Moves the run to the CPU and f32.
    pub fn use_cpu(&mut self) {
        (self.device, self.precision) = ("cpu".to_owned(), "f32".to_owned());
        (self.fp8, self.grad_scaler) = (false, None);
    }

    /// Returns what is recomputed.
    pub fn recompute(&self) -> Result<Recompute> {
        let number = |prefix: &str| self.recompute.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
        match self.recompute.as_str() {
            "none" => Ok(Recompute::None),
            "attention" => Ok(Recompute::Attention),
            "cheap" => Ok(Recompute::Cost(0)),
            "layers" => Ok(Recompute::Layers(1)),
            other => match (number("layers:").filter(|count| *count > 0), number("cost:")) {
                (Some(count), _) => Ok(Recompute::Layers(count)),
                (_, Some(max_cost)) => Ok(Recompute::Cost(max_cost)),
                _ => {
                    let known = ["none", "attention", "cheap", "cost:1024", "layers", "layers:2"];
                    Err(unknown("recompute", "choice", other, &known))
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

    const SMALL: &str = "steps = 10\n[schedule]\nlearning_rate = 1e-3\n[data]\ntask = \"causal_lm\"\n";

    #[test]
    fn absent_settings_have_defaults() {
        let config = RunConfig::parse(SMALL).unwrap();
        assert_eq!((config.steps, config.seed, config.max_grad_norm), (10, 1, Some(1.0)));
        assert_eq!((config.schedule.name.as_str(), config.optimizer.name.as_str()), ("cosine", "adamw"));
        assert_eq!(config.recompute().unwrap(), Recompute::None);
        assert!(!config.exports_best().unwrap());
        let recompute = |word: &str| {
            let config = RunConfig::parse(&format!("recompute = {word:?}\n{SMALL}")).unwrap();
            config.recompute().ok()
        };
        assert_eq!(recompute("layers:3"), Some(Recompute::Layers(3)));
        assert_eq!(
            [recompute("cheap"), recompute("cost:768")],
            [0, 768].map(|max_cost| Some(Recompute::Cost(max_cost)))
        );
        assert_eq!([recompute("layers:0"), recompute("cost:")], [None; 2]);
    }

    #[test]
    fn invalid_values_are_rejected() {
        let parse = |value: &str| {
            RunConfig::parse(&format!("max_grad_norm = {value}\n{SMALL}")).map(|config| config.max_grad_norm)
        };
        assert_eq!((parse("0").unwrap(), parse("0.5").unwrap()), (None, Some(0.5)));
        for bad in ["-1", "-1e-9"] {
            assert_eq!(parse(bad).unwrap_err().location(), "max_grad_norm", "{bad}");
        }
        let config = RunConfig::parse(&format!("{SMALL}[export]\nweights = \"bets\"\n")).unwrap();
        assert!(config.exports_best().unwrap_err().message().contains("did you mean `best`"));
    }

    #[test]
    fn errors_name_the_setting_of_the_wrong_type() {
        for (text, place, message) in [
            ("steps = \"many\"", "steps", "expected a non-negative integer, got \"many\""),
            ("check = 1", "check", "expected true or false, got 1"),
            ("[batch]\nmax_tokens = -4", "batch.max_tokens", "expected a non-negative integer, got -4"),
            ("[optimizer]\nname = 7", "optimizer.name", "expected a string, got 7"),
            (
                "[validation]\nbatches = [3]",
                "validation.batches",
                "expected a non-negative integer, got a list",
            ),
            ("[model]\nconfig = 3", "model.config", "expected a table, got 3"),
        ] {
            let small = SMALL.trim_start_matches("steps = 10\n");
            let text =
                if text.starts_with('[') { format!("{small}{text}") } else { format!("{text}\n{small}") };
            let error = RunConfig::parse(&text).unwrap_err();
            assert_eq!((error.location(), error.message()), (place, message), "{text}");
        }
        let nested = format!("{SMALL}settings = {{ max_length = \"x\" }}\n");
        assert_eq!(RunConfig::parse(&nested).unwrap_err().location(), "data.settings.max_length");
    }

    #[test]
    fn errors_for_unknown_settings_suggest_the_nearest() {
        let cases = [
            ("stepz = 3", "stepz", "steps"),
            ("[shedule]\nlearning_rate = 1", "shedule", "schedule"),
            ("[data]\ntaks = \"causal_lm\"", "data.taks", "task"),
            ("[batch]\nmax_token = 3", "batch.max_token", "max_tokens"),
            ("recompute = \"layer\"", "recompute", "layers"),
        ];
        for (line, place, nearest) in cases {
            let text = if line.starts_with('[') {
                format!("{SMALL}{line}").replacen("[data]\ntask = \"causal_lm\"\n[data]", "[data]", 1)
            } else {
                format!("{line}\n{SMALL}")
            };
            let error =
                RunConfig::parse(&text).and_then(|config| config.recompute().map(|_| ())).unwrap_err();
            assert!(error.location().contains(place), "{error}");
            assert!(error.message().contains(&format!("did you mean `{nearest}`")), "{error}");
        }
        assert!(RunConfig::parse("steps = ").unwrap_err().message().contains("line 1"));
        assert!(RunConfig::parse("steps = 1").unwrap_err().location().contains("schedule.learning_rate"));
    }
}

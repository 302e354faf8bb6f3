//! Training runs: compared to the CPU, resumed, and rejected.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use siskin::{Error, ErrorKind};
use siskin_device::{CommandList, Device, DeviceCapabilities, DevicePtr};
use siskin_tests::cuda::TestDevice;
use siskin_tests::env;
use siskin_tests::extent::cases;
use siskin_tests::training::Notes;
use siskin_trainer::cuda::DeviceRunner;
use siskin_trainer::profile::Event;
use siskin_trainer::run::{
    Depth, DeviceArguments, OpenedBase, Outcome, Run, RunCallbacks, RunConfig, RunEnd, RunSetup, StepReport,
    evaluate_with_device,
};
use siskin_trainer::statistics::{StepStatistics, ValueStatistics};
use siskin_trainer::{Parameters, tokenizer};

use super::common::{device, error};

/// A temporary folder with texts, and a tokenizer trained on them.
struct Small {
    place: PathBuf,
    tokenizer: String,
}

impl Small {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("siskin-cuda-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let text: String = (0..40).map(|i| format!("The siskin sings {i} songs.\n\n")).collect();
        std::fs::write(place.join("text.txt"), &text).unwrap();
        let pair = |i: usize| {
            let (anchor, positive) = (format!("{i} songs"), format!("the siskin sings {i}"));
            serde_json::json!({ "anchor": anchor, "positive": positive })
        };
        let pairs: String = (0..40).map(|i| format!("{}\n", pair(i))).collect();
        std::fs::write(place.join("pairs.jsonl"), pairs).unwrap();
        let learned = tokenizer::train([&*text].into_iter(), 270, &["<|endoftext|>"]).unwrap();
        Self { place, tokenizer: learned.to_string() }
    }

    /// Returns a config with these top-level settings and `sections`.
    fn config(&self, settings: &str, sections: &str) -> RunConfig {
        let path = |name: &str| self.place.join(name).display().to_string();
        let causal = format!(
            "[model]\nfamily = \"gpt2\"\nconfig = {{ vocab_size = 270, n_embd = 16, n_layer = 1, n_head = 2, \
             n_positions = 32 }}\n[data]\ntask = \"causal_lm\"\ntrain = [{:?}]\nvalidation_split = 0.2\n\
             settings = {{ max_length = 24 }}\n",
            path("text.txt")
        );
        let contrast = format!(
            "[model]\nfamily = \"bert\"\nhead = \"none\"\nconfig = {{ vocab_size = 270, hidden_size = 16, \
             num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32, \
             max_position_embeddings = 32, type_vocab_size = 2 }}\n[data]\ntask = \"contrastive\"\n\
             train = [{:?}]\nvalidation_split = 0.2\nsettings = {{ max_length = 24 }}\n",
            path("pairs.jsonl")
        );
        let task = if sections.contains("contrastive") { contrast } else { causal };
        let text = format!(
            "steps = 6\n{settings}\n{task}[validation]\nbatches = 1\n[schedule]\nlearning_rate = 1e-2\n[batch]\n\
             max_tokens = 96\ngradient_accumulation_steps = 2\n{sections}"
        );
        RunConfig::parse(&text).unwrap()
    }

    fn setup(&self, config: &RunConfig) -> RunSetup {
        let tokenizer = siskin_convert::tokenizer_of_json(self.tokenizer.as_bytes()).unwrap();
        RunSetup::new(config, OpenedBase::New { tokenizer, template: None }).unwrap()
    }

    /// Creates a run on the device that its config names, or returns `None` if there is none.
    fn run(&self, config: &RunConfig, folder: &Path) -> Option<Run> {
        let open = |start: &DeviceArguments<'_>| -> siskin::Result<Option<DeviceRunner>> {
            match device().filter(|_| start.config.device == "cuda") {
                Some(device) => start.on(Box::new(device)).map(Some),
                None => Ok(None),
            }
        };
        if config.device == "cuda" && device().is_none() {
            return None;
        }
        Some(Run::with_device(config.clone(), self.setup(config), Some(folder), &open).unwrap())
    }
}

/// A device that fails after a number of command lists.
struct Fragile {
    device: TestDevice,
    left: usize,
}

impl Fragile {
    fn touch(&mut self) -> siskin::Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::unsupported("device", "the device is lost")),
        }
    }
}

impl Device for Fragile {
    fn allocate(&mut self, bytes: usize) -> siskin::Result<DevicePtr> {
        self.device.allocate(bytes)
    }

    fn free(&mut self, place: DevicePtr) -> siskin::Result<()> {
        self.device.free(place)
    }

    fn write(&mut self, place: DevicePtr, bytes: &[u8]) -> siskin::Result<()> {
        self.touch()?;
        self.device.write(place, bytes)
    }

    fn read(&mut self, place: DevicePtr, bytes: &mut [u8]) -> siskin::Result<()> {
        self.touch()?;
        self.device.read(place, bytes)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { timed: false, ..DeviceCapabilities::default() }
    }

    fn run(&mut self, commands: &CommandList) -> siskin::Result<()> {
        self.touch()?;
        self.device.run(commands)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// The results of a run.
#[derive(Debug, PartialEq)]
struct Trained {
    losses: Vec<f64>,
    validation_losses: Vec<f64>,
    parameters: Parameters<f32>,
    statistics: Vec<StepStatistics>,
}

/// Trains a small run with these sections on the first device. If there is a second one, the run is stopped after three
/// steps and resumed there.
fn train(devices: &[&str], precision: &str, sections: &str) -> Option<Trained> {
    let small = Small::new();
    let folder = small.place.join("run");
    let mut notes = Notes::default();
    let stop = notes.stop.clone();
    for (number, name) in devices.iter().enumerate() {
        let kind = if *name == "cuda" { precision } else { "f32" };
        let fp8 = if *name == "cuda" && sections == FP8 { "\nfp8 = true" } else { "" };
        let config = small.config(&format!("device = {name:?}\nprecision = {kind:?}{fp8}"), sections);
        let mut run = small.run(&config, &folder)?;
        assert_eq!(run.resume(&mut notes).unwrap(), number > 0);
        notes.stop_after = (number + 1 < devices.len()).then_some(3);
        stop.store(false, Ordering::Relaxed);
        let ended = run.train(&stop, &mut notes).unwrap();
        if notes.stop_after.is_some() {
            assert_eq!(ended, RunEnd::Interrupted);
            continue;
        }
        assert_eq!(ended, RunEnd::Completed);
        let parameters = run.parameters().unwrap();
        let validation_losses = notes.validations.iter().map(|seen| seen.loss).collect();
        return Some(Trained {
            losses: notes.losses,
            validation_losses,
            parameters,
            statistics: notes.statistics,
        });
    }
    None
}

/// Marks sections for fp8 matmuls.
const FP8: &str = "# fp8\n";

/// The name of a run, its sections, and its precisions.
type Sections = (&'static str, &'static str, &'static [&'static str]);

const RUNS: &[Sections] = &[
    ("plain", "", &["f32", "bf16", "fp16"]),
    ("ema", "[ema]\ndecay = 0.8\nwarmup = true\n", &["f32"]),
    ("adapters", "[adapters]\nrank = 2\nmethod = \"dora\"\n[ema]\ndecay = 0.5\n", &["f32", "bf16"]),
    ("muon", "[optimizer]\nname = \"muon\"\n", &["f32"]),
    ("qat", "[qat]\nweight_type = \"W8r\"\n", &["f32", "bf16"]),
    ("qat with ema", "[qat]\nweight_type = \"W8r\"\n[ema]\ndecay = 0.5\n", &["f32"]),
    (
        "contrastive",
        "[loss]\nname = \"contrastive\"\nmatryoshka_dims = [8, 16]\n[optimizer]\nname = \"adafactor\"\n",
        &["f32", "fp16"],
    ),
];

/// Returns the differences of losses and, in f32, of parameters.
fn apart(own: &Trained, want: &Trained, limit: f64, numbers: bool) -> String {
    let mut report = String::new();
    let losses = own
        .losses
        .iter()
        .chain(&own.validation_losses)
        .zip(want.losses.iter().chain(&want.validation_losses));
    for (step, (own, want)) in losses.enumerate() {
        if (own - want).abs() >= limit * want {
            report += &format!("loss {step}: {own}, not {want}\n");
        }
    }
    for (index, parameter) in want.parameters.list.iter().enumerate().filter(|_| numbers) {
        // The trained weights, and those used for computing.
        let trained = error(&own.parameters.list[index].numbers, &parameter.numbers, 1e-2);
        let seen = error(own.parameters.numbers(index), want.parameters.numbers(index), 1e-2);
        if trained.max(seen) >= 2e-2 {
            report += &format!("{}: {trained:.1e}, seen {seen:.1e}\n", parameter.name);
        }
    }
    assert_eq!(
        [own.losses.len(), own.validation_losses.len()],
        [want.losses.len(), want.validation_losses.len()]
    );
    report
}

#[test]
fn runs_match_the_cpu() {
    let mut report = String::new();
    // Each in its last precision, without settings that another case covers.
    let stand = ["plain", "contrastive"];
    let all = RUNS.iter().flat_map(|run| run.2.iter().map(move |precision| (run, precision)));
    let last = |run: &Sections, precision: &str| run.2.last() == Some(&precision);
    let chosen = cases("runs", all, |(run, precision)| stand.contains(&run.0) && last(run, precision));
    for run in RUNS {
        let (name, sections, _) = run;
        let precisions: Vec<&str> =
            chosen.iter().filter(|(own, _)| own.0 == run.0).map(|(_, precision)| **precision).collect();
        if precisions.is_empty() {
            continue;
        }
        let want = train(&["cpu"], "f32", sections).unwrap();
        for precision in &precisions {
            let limit = match *precision {
                "bf16" => 0.03,
                "fp16" => 0.01,
                _ => 1e-4,
            };
            let Some(own) = train(&["cuda"], precision, sections) else { return };
            let lines = apart(&own, &want, limit, *precision == "f32");
            report += &lines.lines().map(|line| format!("{name}, {precision}: {line}\n")).collect::<String>();
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn device_runs_resume_bit_identically() {
    for (name, sections, precisions) in cases("runs", RUNS, |run| run.0 == "contrastive") {
        let precision = precisions[precisions.len() - 1];
        let Some(want) = train(&["cuda"], precision, sections) else { return };
        assert!(train(&["cuda", "cuda"], precision, sections).unwrap() == want, "{name}, {precision}");
    }
}

#[test]
fn checkpoints_resume_on_the_other_device() {
    let mut report = String::new();
    for (name, sections, _) in cases("runs", RUNS, |run| run.0 == "plain") {
        let want = train(&["cpu"], "f32", sections).unwrap();
        for devices in [["cpu", "cuda"], ["cuda", "cpu"]] {
            let Some(own) = train(&devices, "f32", sections) else { return };
            let lines = apart(&own, &want, 1e-4, true);
            report += &lines.lines().map(|line| format!("{name}, {devices:?}: {line}\n")).collect::<String>();
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// fp8 scaling state is part of checkpoints; the CPU resumes without it.
#[test]
fn fp8_runs_resume_bit_identically() {
    let section = FP8;
    let Some(want) = train(&["cuda"], "bf16", section) else { return };
    assert!(train(&["cuda", "cuda"], "bf16", section).unwrap() == want, "to the bit");
    let floats = train(&["cpu"], "f32", "").unwrap();
    assert_eq!(apart(&want, &floats, 0.05, false), "");
    for devices in cases("orders", [["cpu", "cuda"], ["cuda", "cpu"]], |devices| devices[0] == "cuda") {
        let own = train(&devices, "bf16", section).unwrap();
        assert_eq!(apart(&own, &floats, 0.05, false), "", "{devices:?}");
    }
}

#[test]
fn statistics_match_the_cpu_and_change_no_bit() {
    let section = "[statistics]\nevery_n_steps = 3\n";
    let all = [("f32", 1e-3), ("bf16", 0.1), ("fp16", 0.02)];
    for (precision, limit) in cases("precisions", all, |case| case.0 == "fp16") {
        let Some(own) = train(&["cuda"], precision, section) else { return };
        let unseen = train(&["cuda"], precision, "").unwrap();
        assert!(own.losses == unseen.losses && own.parameters == unseen.parameters, "{precision}");
        let want = train(&["cpu"], "f32", section).unwrap();
        assert_eq!(own.statistics.iter().map(|step| step.step).collect::<Vec<_>>(), [3, 6]);
        for (own, want) in own.statistics.iter().zip(&want.statistics) {
            let names = |of: &StepStatistics| of.all().map(|(name, _)| name).collect::<Vec<_>>();
            assert_eq!(names(own), names(want), "{precision}");
            for ((name, own), (_, want)) in own.all().zip(want.all()) {
                let counts = |of: &ValueStatistics| [of.count, of.non_finite];
                assert_eq!(counts(own), counts(want), "{precision}: {name}");
                let apart = (own.rms() - want.rms()).abs() / want.rms();
                assert!(apart < limit, "{precision}: {name} has {}, not {}", own.rms(), want.rms());
            }
        }
    }
}

#[test]
fn runs_resume_from_the_last_checkpoint_after_device_loss() {
    let section = "[checkpoint]\nevery_n_steps = 2\n";
    let Some(want) = train(&["cuda"], "f32", section) else { return };
    let small = Small::new();
    let folder = small.place.join("run");
    let config = small.config("device = \"cuda\"", section);
    let stop = AtomicBool::new(false);
    let (mut losses, mut ended, mut lost) = (Vec::new(), None, 0);
    // The numbers of command lists are small enough that the device fails in the middle of the run.
    for left in [150, 200, usize::MAX] {
        let open = |start: &DeviceArguments<'_>| {
            device().map(|device| start.on(Box::new(Fragile { device, left }))).transpose()
        };
        let Ok(mut run) = Run::with_device(config.clone(), small.setup(&config), Some(&folder), &open) else {
            panic!("{left} lists are too few to begin")
        };
        let mut notes = Notes::default();
        run.resume(&mut notes).unwrap();
        losses.truncate(run.steps() as usize);
        assert!(run.steps() % 2 == 0, "{} of {left}", run.steps());
        match run.train(&stop, &mut notes) {
            Ok(end) => ended = Some((end, run.parameters().unwrap())),
            Err(error) => {
                assert_eq!(error.message(), "the device is lost");
                lost += 1;
            }
        }
        losses.extend(notes.losses);
    }
    let (end, parameters) = ended.unwrap();
    assert!(end == RunEnd::Completed && lost > 0, "{lost} times");
    assert!(losses == want.losses && parameters == want.parameters, "to the bit");
}

#[test]
fn non_finite_values_on_a_device_are_reported() {
    for precision in cases("precisions", ["f32", "bf16", "fp16"], |precision| *precision == "fp16") {
        let small = Small::new();
        let settings = format!("device = \"cuda\"\nprecision = {precision:?}");
        let mut config = small.config(&settings, "");
        config.schedule.learning_rate = 1e30;
        config.schedule.name = "constant".to_owned();
        let Some(mut run) = small.run(&config, &small.place.join("run")) else { return };
        let mut notes = Notes::default();
        let error = run.train(&AtomicBool::new(false), &mut notes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Numeric, "{precision}: {error}");
        assert!(error.location().contains("step 2") && error.message().contains("operation "), "{error}");
    }
    // fp16 values that no loss scale makes finite: every step is skipped, and the run ends with an error.
    let small = Small::new();
    let settings = "device = \"cuda\"\nprecision = \"fp16\"";
    let config = small.config(settings, "[grad_scaler]\ninit_scale = 1e30\nmin_scale = 1e29\n");
    let Some(mut run) = small.run(&config, &small.place.join("run")) else { return };
    let mut notes = Notes::default();
    let error = run.train(&AtomicBool::new(false), &mut notes).unwrap_err();
    assert!(error.kind() == ErrorKind::Numeric && error.location().contains("gradient of "), "{error}");
    assert!(!notes.losses.is_empty(), "steps are skipped before that");
}

#[test]
fn the_device_check_compares_with_the_cpu() {
    let all = [("f32", ""), ("bf16", ""), ("fp16", ""), ("bf16", FP8)];
    for (precision, sections) in cases("precisions", all, |case| case.1 == FP8) {
        let small = Small::new();
        let fp8 = if sections == FP8 { "\nfp8 = true" } else { "" };
        let config = small.config(&format!("device = \"cuda\"\nprecision = {precision:?}{fp8}"), sections);
        let Some(mut run) = small.run(&config, &small.place.join("run")) else { return };
        let checks = run.check(Depth::Brief).unwrap();
        let own = checks.iter().find(|check| check.name == "device").unwrap();
        assert_eq!(own.outcome, Outcome::Pass, "{precision}{fp8}: {own:?}");
        let mut notes = Notes::default();
        run.train(&AtomicBool::new(false), &mut notes).unwrap();
        let mut other = small.run(&config, &small.place.join("unchecked")).unwrap();
        let mut unchecked = Notes::default();
        other.train(&AtomicBool::new(false), &mut unchecked).unwrap();
        assert_eq!(notes.losses, unchecked.losses, "{precision}{fp8}: the check changes no loss");
        assert!(run.checkpoint() == other.checkpoint(), "{precision}{fp8}: the check changes no state");
        let parts = run.memory().unwrap();
        let trained: usize = run.parameters().unwrap().list.iter().map(|own| own.numbers.len()).sum();
        let each = if precision == "f32" { 4 } else { 6 };
        assert!(parts.parameters >= each * trained && parts.gradients >= 4 * trained, "{parts:?}");
        let (rows, found) = run.find_batch_size(Some(parts.total() + (1 << 20))).unwrap();
        assert!(rows > 96 && found.total() <= parts.total() + (1 << 20), "{rows} rows, {found:?}");
        assert!(run.find_batch_size(Some(parts.parameters)).is_err());
    }
}

/// Records the reports of profiled steps.
#[derive(Default)]
struct Profile {
    losses: Vec<f64>,
    events: Vec<Event>,
}

impl RunCallbacks for Profile {
    fn step(&mut self, progress: &StepReport) {
        self.losses.push(progress.loss);
    }

    fn profile(&mut self, events: &[Event]) {
        self.events = events.to_vec();
    }
}

#[test]
fn profiles_contain_every_operation_of_a_device() {
    let small = Small::new();
    let config = small.config("device = \"cuda\"\nrecompute = \"layers\"", "");
    let Some(mut run) = small.run(&config, &small.place.join("run")) else { return };
    run.profile(2, 1);
    let mut profile = Profile::default();
    run.train(&AtomicBool::new(false), &mut profile).unwrap();
    let phases = |phase: &str| -> Vec<&Event> {
        let of = |event: &&Event| event.node.as_ref().is_some_and(|node| node.phase == phase);
        profile.events.iter().filter(of).collect()
    };
    let products = |events: &[&Event]| -> f64 {
        events.iter().flat_map(|event| &event.node).map(|node| node.flops).sum()
    };
    let [forward, recompute, backward] = ["forward", "recompute", "backward"].map(phases);
    // A step has two micro-batches.
    assert!(forward.len() > 2 * 8 && recompute.len() > 2 * 4 && backward.len() > 2 * 8, "{}", forward.len());
    assert!(products(&forward) > 0.0 && products(&backward) >= 1.5 * products(&forward));
    let heads = phases("forward and backward");
    assert!(heads.len() == 2 && products(&heads) > 0.0, "{heads:?}");
    assert!(profile.events.iter().any(|event| event.name == "optimizer"));
    let seen = run.evaluate().unwrap().unwrap();
    let path = small.place.join("trained.siskin");
    let out = siskin::file::AtomicFile::create(&path).unwrap();
    let result = run.result().unwrap();
    siskin_trainer::export::write(&run.setup().file_contents, &result, out).unwrap().commit().unwrap();
    let file = siskin::file::File::open(&path).unwrap();
    let setup = RunSetup::for_evaluation(&config, OpenedBase::File(Box::new(file))).unwrap();
    let open = |start: &DeviceArguments<'_>| device().map(|device| start.on(Box::new(device))).transpose();
    let measured = evaluate_with_device(&config, &setup, None, &open).unwrap().unwrap();
    assert_eq!(measured, seen, "evaluation uses the device of the config");
    let unseen = train(&["cuda"], "f32", "").unwrap();
    assert_eq!(profile.losses, unseen.losses, "neither profiling nor recomputation changes the losses");
}

#[test]
fn unsupported_device_settings_are_rejected() {
    let small = Small::new();
    let cases = [
        ("device = \"cuda\"", "device"),
        ("device = \"cudda\"", "device"),
        ("precision = \"bf16\"", "precision"),
        ("device = \"cuda\"\nprecision = \"bf17\"", "precision"),
        ("fp8 = true", "fp8"),
        ("device = \"cuda\"\nprecision = \"fp16\"\nfp8 = true", "fp8"),
    ];
    // With a GPU, its device is supported.
    let supported =
        |line: &str| env::test_device().is_some_and(|name| name == "cuda") && line == "device = \"cuda\"";
    for (line, place) in cases.into_iter().filter(|(line, _)| !supported(line)) {
        let config = small.config(line, "");
        let setup = small.setup(&config);
        match Run::new(config, setup, None) {
            Ok(_) => panic!("{line} is taken"),
            Err(error) => assert_eq!(error.location(), place, "{line}: {error}"),
        }
    }
}

//! The CUDA executor, its kernels carried out without a graphics processor, against the rules of the CPU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use siskin::graph::{
    ActivationKind, Attention, Bias, Head, Limits, NormKind, Op, Role, Rope, Rows, Sight, Weight,
};
use siskin_tests::cuda::{Emulated, decode, encode, program};
use siskin_tests::gradients::load;
use siskin_tests::{golden, texts};
use siskin_trainer::batch::Batch;
use siskin_trainer::clip::Norm;
use siskin_trainer::cuda::{Argument, Command, Engine, Precision, Runner as Device};
use siskin_trainer::loss::{CrossEntropy, Sum, Targets};
use siskin_trainer::program::{Node, Side, Value};
use siskin_trainer::run::{Base, Config, Ended, Material, Progress, Run, Watcher};
use siskin_trainer::{
    Goal, Gradients, Optimiser, OptimiserOptions, Parameters, Program, Recompute, Runner, StepArguments,
    tokenizer,
};

/// A device; `None`, with a word about it, where there is no compiler of C++.
fn device() -> Option<Emulated> {
    let program = program(Path::new(env!("CARGO_TARGET_TMPDIR")));
    if program.is_none() {
        eprintln!("skipped: no C++ compiler for 64-bit Linux");
    }
    program.map(Emulated::new)
}

fn targets(rows: usize, columns: usize) -> Targets {
    Targets {
        ids: (0..rows).map(|row| ((row * 7 + 3) % columns) as u32).collect(),
        weights: (0..rows).map(|row| if row % 5 == 4 { 0.0 } else { 1.0 }).collect(),
        numbers: Vec::new(),
    }
}

/// How far numbers are from others, beside the largest of them.
fn error(got: &[f32], want: &[f32], least: f32) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(least, |most, x| most.max(x.abs())).max(f32::MIN_POSITIVE);
    let apart = got.iter().zip(want).map(|(a, b)| (a - b).abs());
    // What is no number is as far away as can be.
    apart.map(|x| if x.is_nan() { f32::INFINITY } else { x }).fold(0.0, f32::max) / largest
}

/// Loss and gradients of a golden model on both; `None` where there are no kernels for it.
fn both(name: &str, precision: Precision, recompute: Recompute) -> Option<[(Sum, Vec<Vec<f32>>); 2]> {
    let case = load(name);
    let parameters = Parameters::<f32>::read(&case.program.weights, &case.file).unwrap();
    let output = case.program.values[case.program.output];
    let targets = targets(output.row_count(&case.batch), output.columns);
    let loss = CrossEntropy { smoothing: 0.1 };
    let scale = 0.25;
    let mut own = Gradients::zeros(&parameters, |_| true);
    let runner = Device::new(device()?, precision, case.program.clone(), recompute, &parameters, |_| true);
    let mut runner = match runner {
        Ok(runner) => runner,
        Err(error) => {
            assert_eq!(error.place(), "device", "{name}: {error}");
            return None;
        }
    };
    runner.run(&case.batch, loss, &targets, scale).unwrap_or_else(|error| panic!("{name}: {error}"));
    let sum = runner.take_sum().unwrap();
    runner.gradients(&mut own).unwrap();
    let mut cpu = Runner::new(case.program.clone(), Recompute::Nothing, |_| true).unwrap();
    let mut want = Gradients::zeros(&parameters, |_| true);
    let goal = Goal { loss: &loss, targets: &targets, scale };
    let cpu_sum = cpu.run(&parameters, &case.batch, goal, &mut want).unwrap();
    let list = |gradients: Gradients<f32>| gradients.list.into_iter().flatten().collect();
    Some([(sum, list(own)), (cpu_sum, list(want))])
}

fn compare(name: &str, precision: Precision, limit: f32) -> Option<String> {
    let [(sum, own), (cpu_sum, want)] = both(name, precision, Recompute::Nothing)?;
    let mut report = String::new();
    let apart = (sum.mean() - cpu_sum.mean()).abs() / cpu_sum.mean().max(1e-9);
    if apart.is_nan() || apart > f64::from(limit) || sum.weight != cpu_sum.weight {
        report += &format!("{name} {precision:?}: {sum:?}, not {cpu_sum:?}\n");
    }
    let whole = want.iter().flatten().fold(0.0_f32, |most, x| most.max(x.abs()));
    let case = load(name);
    for ((weight, own), want) in case.program.weights.iter().zip(&own).zip(&want) {
        let error = error(own, want, whole * 1e-3);
        if error.is_nan() || error > limit {
            report += &format!("{name} {precision:?}: {} {error:.1e}\n", weight.name);
        }
    }
    Some(report)
}

#[test]
fn gradients_are_those_of_the_cpu() {
    let names = golden::NAMES.iter().chain(texts::NAMES).copied();
    let all: Vec<(&str, Option<String>)> =
        names.map(|name| (name, compare(name, Precision::F32, 1e-4))).collect();
    let report: String = all.iter().filter_map(|(_, report)| report.clone()).collect();
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
    let without: Vec<&str> =
        all.iter().filter(|(_, report)| report.is_none()).map(|(name, _)| *name).collect();
    if program(Path::new(env!("CARGO_TARGET_TMPDIR"))).is_some() {
        assert_eq!(without, WITHOUT, "models that there are no kernels for");
    }
}

/// Models whose operations have no kernels: experts, recurrences, neighbours, and sights of few models.
const WITHOUT: &[&str] = &[
    "mixtral",
    "qwen3-moe",
    "granite-moe",
    "olmoe",
    "gpt-oss",
    "qwen2-moe",
    "granite-moe-shared",
    "qwen3-next",
    "qwen3-5",
    "llama-linear",
    "bigbird-blocks",
    "bert-linear",
    "bert-mixed",
    "mobilebert",
    "longformer",
    "switch",
    "whisper",
];

/// What is rounded to 16 bits is near what is not.
#[test]
fn halves_are_near_floats() {
    let report: String = ["gpt2", "llama", "gemma2", "bert", "bart"]
        .into_iter()
        .flat_map(|name| [(name, Precision::Bf16, 0.12), (name, Precision::Fp16, 0.02)])
        .filter_map(|(name, precision, limit)| compare(name, precision, limit))
        .collect();
    assert!(report.is_empty(), "{report}");
}

#[test]
fn what_is_computed_again_changes_no_bit() {
    for name in ["llama", "t5"] {
        let Some([want, _]) = both(name, Precision::F32, Recompute::Nothing) else { return };
        for recompute in [Recompute::Layers(1), Recompute::Attention, Recompute::Cheap] {
            assert!(
                both(name, Precision::F32, recompute).unwrap()[0].1 == want.1,
                "{name} with {recompute:?}"
            );
        }
    }
}

/// A program of one operation over rows of tables, so that its inputs can be any numbers and their gradients are those of
/// the tables; a matrix makes scores of what comes out.
struct One {
    program: Program,
    batch: Batch,
    parameters: Parameters<f32>,
}

/// Some numbers between -1 and 1.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| (((i + 31 * seed) * 2_654_435_761 % 1_000_003) as f32 / 500_001.5) - 1.0;
    (0..count).map(number).collect()
}

impl One {
    /// `inputs` are the columns of the operation's inputs; `make` gives it, and has the numbers of its weights, which
    /// are as long as `weights` says.
    fn new(lengths: &[usize], inputs: &[usize], columns: usize, weights: &[usize], op: Op) -> Self {
        let mut batch = Batch::default();
        let rows: usize = lengths.iter().sum();
        let mut first = 0;
        for &length in lengths {
            // Every other row has a token of its own; the others share some.
            let tokens: Vec<u32> =
                (first..first + length as u32).map(|row| if row % 2 == 0 { row } else { row % 7 }).collect();
            batch.writer.push(&tokens, &[]);
            first += length as u32;
        }
        let value = |columns| Value { rows: Rows::Batch, columns, side: Side::Writer };
        let weight = |name: &str, rows, columns, role| Weight { name: name.to_owned(), rows, columns, role };
        let mut all: Vec<Weight> =
            weights.iter().map(|&count| weight("own", 1, count, Role::Vector)).collect();
        let (mut nodes, mut values) = (Vec::new(), Vec::new());
        for (index, &columns) in inputs.iter().enumerate() {
            all.push(weight("table", rows, columns, Role::Matrix));
            nodes.push(Node { op: Op::Embed { table: all.len() - 1 }, inputs: Vec::new(), output: index });
            values.push(value(columns));
        }
        nodes.push(Node { op, inputs: (0..inputs.len()).collect(), output: inputs.len() });
        values.push(value(columns));
        all.push(weight("scores", SCORES, columns, Role::Matrix));
        let parts = vec![(all.len() - 1, None)];
        nodes.push(Node { op: Op::Linear { parts }, inputs: vec![inputs.len()], output: inputs.len() + 1 });
        values.push(value(SCORES));
        let (tail, hidden, output) = (nodes.len() - 1, inputs.len(), inputs.len() + 1);
        let mut seed = 0;
        let parameters = Parameters::new(&all, |weight| {
            seed += 1;
            numbers(weight.rows * weight.columns, seed)
        });
        let program =
            Program { nodes, values, weights: all, ropes: ropes(), output, head: Head::Token, tail, hidden };
        Self { program, batch, parameters }
    }

    /// How far the gradients of the device are from those of the CPU.
    fn error(&self, device: Emulated, precision: Precision) -> f32 {
        let round = |x: &f32| decode(precision, &encode(precision, &[*x]))[0];
        let mut parameters = self.parameters.clone();
        for parameter in parameters.list.iter_mut().filter(|parameter| parameter.role == Role::Matrix) {
            parameter.numbers = parameter.numbers.iter().map(round).collect();
        }
        let (own, sum) = self.run(device, precision, &parameters);
        let mut cpu = Runner::new(self.program.clone(), Recompute::Nothing, |_| true).unwrap();
        let mut want = Gradients::zeros(&parameters, |_| true);
        let targets = targets(self.batch.writer.rows.len(), SCORES);
        let goal = Goal { loss: &CrossEntropy::default(), targets: &targets, scale: 1.0 };
        let cpu_sum = cpu.run(&parameters, &self.batch, goal, &mut want).unwrap();
        let mut worst = ((sum.mean() - cpu_sum.mean()) / cpu_sum.mean()).abs() as f32;
        for (own, want) in own.list.iter().zip(&want.list) {
            worst = worst.max(error(own.as_ref().unwrap(), want.as_ref().unwrap(), 1e-3));
        }
        worst
    }

    fn run(
        &self,
        device: Emulated,
        precision: Precision,
        parameters: &Parameters<f32>,
    ) -> (Gradients<f32>, Sum) {
        let targets = targets(self.batch.writer.rows.len(), SCORES);
        let mut own = Gradients::zeros(parameters, |_| true);
        let mut runner =
            Device::new(device, precision, self.program.clone(), Recompute::Nothing, parameters, |_| true)
                .unwrap();
        runner.run(&self.batch, CrossEntropy::default(), &targets, 1.0).unwrap();
        runner.gradients(&mut own).unwrap();
        (own, runner.take_sum().unwrap())
    }
}

/// Columns of scores; odd, so that rows do not begin at multiples of 16 bytes.
const SCORES: usize = 37;

fn ropes() -> Vec<Rope> {
    vec![Rope { frequencies: vec![1.0, 0.3, 0.05], magnitude: 1.1, stretch: None }]
}

/// Runs cases in every precision.
fn check(name: &str, cases: impl IntoIterator<Item = One>) {
    let mut report = String::new();
    for (index, case) in cases.into_iter().enumerate() {
        for (precision, limit) in [(Precision::F32, 2e-5), (Precision::Bf16, 0.03), (Precision::Fp16, 0.004)]
        {
            let Some(device) = device() else { return };
            let error = case.error(device, precision);
            if error.is_nan() || error > limit {
                report += &format!("{name} {index} {precision:?}: {error:.1e}\n");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

fn attention(heads: usize, kv_heads: usize, head_size: usize, sight: Sight) -> Attention {
    let scale = 1.0 / (head_size as f32).sqrt();
    Attention {
        layer: 0,
        heads,
        kv_heads,
        head_size,
        scale,
        sight,
        softcap: None,
        alibi: Vec::new(),
        bias: None,
        sinks: None,
        projection: None,
    }
}

fn attend(lengths: &[usize], description: Attention, weights: &[usize]) -> One {
    let [wide, narrow] = [description.heads, description.kv_heads].map(|heads| heads * description.head_size);
    One::new(lengths, &[wide, narrow, narrow], wide, weights, Op::Attention(description))
}

#[test]
fn attention_of_every_length_and_sight() {
    check(
        "attention",
        [
            attend(&[1, 17, 65], attention(2, 1, 16, Sight::Before(None)), &[]),
            attend(&[130], attention(1, 1, 64, Sight::Before(Some(70))), &[]),
            attend(&[70, 3], attention(2, 2, 9, Sight::Around(20)), &[]),
            attend(&[150], attention(1, 1, 8, Sight::Recent { window: 40, first: 3 }), &[]),
            attend(&[66], attention(3, 1, 72, Sight::Whole), &[]),
            attend(&[40], attention(1, 1, 136, Sight::Before(None)), &[]),
        ],
    );
}

#[test]
fn attention_with_what_is_added_to_scores() {
    let whole = || attention(2, 1, 8, Sight::Before(None));
    let bias = Bias { table: 0, buckets: 8, farthest: 20, both_ways: true };
    check(
        "attention",
        [
            attend(&[70], Attention { alibi: vec![0.5, 0.01], ..whole() }, &[]),
            attend(&[70], Attention { softcap: Some(0.7), ..whole() }, &[]),
            attend(&[70, 5], Attention { sinks: Some(0), ..whole() }, &[2]),
            attend(&[100, 9], Attention { bias: Some(bias), sight: Sight::Whole, ..whole() }, &[16]),
        ],
    );
}

#[test]
fn norms_and_units() {
    let norm = |kind, bias, group| Op::Norm { kind, weight: 0, bias, epsilon: 1e-5, group };
    check(
        "norm",
        [
            One::new(&[5, 150], &[72], 72, &[72, 72], norm(NormKind::Layer, Some(1), 72)),
            One::new(&[3], &[33], 33, &[33], norm(NormKind::Rms, None, 33)),
            One::new(&[9], &[48], 48, &[16], norm(NormKind::Rms, None, 16)),
            One::new(&[9], &[48], 48, &[48, 48], norm(NormKind::Layer, Some(1), 16)),
            One::new(&[9], &[48], 48, &[], Op::Unit { group: 16, epsilon: 1e-6, factor: 1.3 }),
        ],
    );
}

#[test]
fn functions_of_numbers() {
    let kinds = [
        ActivationKind::Silu,
        ActivationKind::Gelu,
        ActivationKind::GeluTanh,
        ActivationKind::Relu,
        ActivationKind::Sigmoid,
        ActivationKind::EluPlusOne,
    ];
    check("activate", kinds.map(|kind| One::new(&[3, 4], &[21], 21, &[], Op::Activate(kind))));
    check("gate", kinds.map(|kind| One::new(&[3, 4], &[24, 24], 24, &[], Op::Gate(kind))));
    let limits = Limits { limit: 0.6, slope: 1.7 };
    check(
        "map",
        [
            One::new(&[5], &[24, 24], 24, &[], Op::GateLimited(limits)),
            One::new(&[5], &[9], 9, &[], Op::Scale(0.3)),
            One::new(&[5], &[9], 9, &[], Op::Softcap(0.8)),
            One::new(&[5], &[9], 9, &[], Op::Clamp(0.5)),
            One::new(&[5], &[16, 16], 16, &[], Op::Add),
            One::new(&[140], &[16], 16, &[16, 16], Op::Affine { weight: 0, bias: 1 }),
        ],
    );
}

#[test]
fn columns_and_angles() {
    check(
        "place",
        [
            One::new(&[5], &[40], 16, &[], Op::Columns { start: 8 }),
            One::new(&[5], &[9], 4, &[], Op::Columns { start: 3 }),
            One::new(&[5], &[9], 27, &[], Op::Repeat(3)),
            One::new(&[5, 70], &[16], 16, &[], Op::Rope { rope: 0, head_size: 8 }),
        ],
    );
}

/// What waits where it should gives the same bits whichever thread comes first.
#[test]
fn the_order_of_threads_changes_no_bit() {
    let bias = Bias { table: 0, buckets: 8, farthest: 20, both_ways: true };
    let description = Attention { bias: Some(bias), ..attention(2, 1, 24, Sight::Before(None)) };
    let case = attend(&[150, 7], description, &[16]);
    for precision in [Precision::F32, Precision::Bf16] {
        let results = [false, true].map(|backwards| {
            let mut device = device()?;
            device.run_backwards(backwards).unwrap();
            Some(case.run(device, precision, &case.parameters))
        });
        assert!(results[0] == results[1], "{precision:?}");
    }
}

/// What was recorded for one is replayed for the other.
#[test]
fn batches_of_like_shape_give_the_same_tape() {
    let description = || attention(2, 1, 8, Sight::Before(None));
    let (one, other) = (attend(&[60, 70], description(), &[]), attend(&[70, 60], description(), &[]));
    let Some(device) = device() else { return };
    let (precision, program) = (Precision::Bf16, one.program.clone());
    let runner =
        Device::new(device, precision, program, Recompute::Nothing, &one.parameters, |_| true).unwrap();
    let targets = targets(130, SCORES);
    let tapes = [&one, &other].map(|case| runner.plan(&case.batch, &targets).unwrap());
    assert!(tapes[0] == tapes[1]);
    let longer = attend(&[60, 71], description(), &[]);
    let targets = self::targets(131, SCORES);
    assert!(runner.plan(&longer.batch, &targets).unwrap().0 != tapes[0].0);
}

/// Sums and the norms after them are one kernel.
#[test]
fn sums_and_norms_are_one_kernel() {
    let case = load("gpt2");
    let parameters = Parameters::<f32>::read(&case.program.weights, &case.file).unwrap();
    let Some(device) = device() else { return };
    let rows = case.program.values[case.program.output].row_count(&case.batch);
    let targets = targets(rows, case.program.values[case.program.output].columns);
    let program = case.program;
    let runner =
        Device::new(device, Precision::F32, program, Recompute::Nothing, &parameters, |_| true).unwrap();
    let (tape, bytes) = runner.plan(&case.batch, &targets).unwrap();
    let of_sums = tape.commands.iter().filter(|command| match command {
        Command::Launch(launch) => launch.kernel == "norm_f32" && launch.arguments[2] != Argument::Place(0),
        _ => false,
    });
    // One for the embeddings, and two for each layer but for the last, whose rows are picked first.
    assert!(of_sums.count() == 4 && bytes > 0);
}

#[test]
fn adamw_steps_as_on_the_cpu() {
    let case = load("gpt2");
    let mut parameters = Parameters::<f32>::read(&case.program.weights, &case.file).unwrap();
    let output = case.program.values[case.program.output];
    let targets = targets(output.row_count(&case.batch), output.columns);
    let Some(device) = device() else { return };
    let settings = serde_json::json!({ "name": "adamw", "weight_decay": 0.1, "groups": [
        { "tensors": "blk.0.*", "rate": 0.5, "decay": 2.0 }] });
    let options: OptimiserOptions = serde_json::from_value(settings).unwrap();
    let mut gradients = Gradients::zeros(&parameters, |_| true);
    let mut optimiser = Optimiser::new(&options, &parameters, &gradients).unwrap();
    let mut runner =
        Device::new(device, Precision::F32, case.program.clone(), Recompute::Nothing, &parameters, |_| true)
            .unwrap();
    runner.optimise(&options, &optimiser).unwrap();
    let mut own = parameters.clone();
    for step in 0..3 {
        let (rate, scale) = (1e-2, [8.0, f64::INFINITY, 2.0][step]);
        runner.run(&case.batch, CrossEntropy::default(), &targets, scale).unwrap();
        if scale.is_finite() {
            // From the gradients of the device, so that only the steps are compared.
            runner.gradients(&mut gradients).unwrap();
            let norm = Norm::of(&gradients);
            let factor = norm.factor(scale, Some(0.5));
            optimiser.step(&mut parameters, &gradients, StepArguments { rate, factor }).unwrap();
            let judged = runner.step(rate, scale, Some(0.5)).unwrap();
            assert!(judged.finite && (judged.length * scale / norm.length - 1.0).abs() < 1e-9, "{judged:?}");
        } else {
            let judged = runner.step(rate, 2.0, Some(0.5)).unwrap();
            assert!(!judged.finite, "{judged:?}");
            let before = own.clone();
            runner.read(&mut own).unwrap();
            assert!(own == before, "what is not finite changes nothing");
        }
        runner.read(&mut own).unwrap();
        for (own, want) in own.list.iter().zip(&parameters.list) {
            assert!(error(&own.numbers, &want.numbers, 1e-3) < 1e-5, "step {step}: {}", own.name);
        }
        runner.gradients(&mut gradients).unwrap();
        assert!(gradients.list.iter().flatten().flatten().all(|x| *x == 0.0), "the next step begins at zero");
    }
}

/// A folder of its own with a text, and a tokenizer learnt from it.
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
        let learnt = tokenizer::learn([&*text].into_iter(), 270, &["<|endoftext|>"]).unwrap();
        Self { place, tokenizer: learnt.to_string() }
    }

    /// A run as the settings outside of all sections say.
    fn config(&self, settings: &str) -> Config {
        let path = self.place.join("text.txt").display().to_string();
        let text = format!(
            "steps = 6\n{settings}\n[model]\nfamily = \"gpt2\"\nconfig = {{ vocab_size = 270, n_embd = 16, \
             n_layer = 1, n_head = 2, n_positions = 32 }}\n[data]\ntask = \"causal\"\ntraining = [{path:?}]\n\
             share = 0.2\nsettings = {{ length = 24 }}\n[evaluate]\nbatches = 1\n[schedule]\nrate = 1e-2\n\
             [batch]\nrows = 96\naccumulate = 2\n"
        );
        Config::parse(&text).unwrap()
    }

    fn material(&self, config: &Config) -> Material {
        let tokenizer = siskin_convert::tokenizer_of_json(self.tokenizer.as_bytes()).unwrap();
        Material::new(config, Base::New { tokenizer, template: None }).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// A small run; the losses of its steps, and what it ends with.
fn train(name: &str, precision: &str, stops: bool) -> Option<(Vec<f64>, Parameters<f32>)> {
    let small = Small::new();
    let config = small.config(&format!("device = {name:?}\nprecision = {precision:?}"));
    let engine = |config: &Config,
                  program: &Program,
                  parameters: &Parameters<f32>,
                  gradients: &Gradients<f32>,
                  optimiser: &Optimiser|
     -> siskin::Result<Option<Box<dyn Engine>>> {
        let precision = match config.precision.as_str() {
            "bf16" => Precision::Bf16,
            "fp16" => Precision::Fp16,
            _ => Precision::F32,
        };
        let (true, Some(device)) = (config.device == "cuda", device()) else { return Ok(None) };
        let trains = |weight| gradients.has(weight);
        let recompute = Recompute::Nothing;
        let mut runner = Device::new(device, precision, program.clone(), recompute, parameters, trains)?;
        runner.optimise(&config.optimiser, optimiser)?;
        Ok(Some(Box::new(runner)))
    };
    if name == "cuda" && device().is_none() {
        return None;
    }
    let run = || {
        let folder = small.place.join("run");
        Run::with_engine(config.clone(), small.material(&config), Some(&folder), &engine).unwrap()
    };
    let mut losses = Losses::default();
    let mut own = run();
    losses.stop_after = stops.then_some(3);
    let stop = losses.stop.clone();
    let mut ended = own.train(&stop, &mut losses).unwrap();
    if stops {
        assert_eq!(ended, Ended::Stopped);
        stop.store(false, Ordering::Relaxed);
        losses.stop_after = None;
        own = run();
        assert!(own.resume(&mut losses).unwrap());
        ended = own.train(&stop, &mut losses).unwrap();
    }
    assert_eq!(ended, Ended::Done);
    let parameters = own.parameters().unwrap();
    Some((losses.list, parameters))
}

#[derive(Default)]
struct Losses {
    list: Vec<f64>,
    stop_after: Option<u64>,
    stop: Arc<AtomicBool>,
}

impl Watcher for Losses {
    fn step(&mut self, progress: &Progress) {
        self.list.push(progress.loss);
        if self.stop_after == Some(progress.step) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_run_goes_as_on_the_cpu() {
    let (want, parameters) = train("cpu", "f32", false).unwrap();
    for (precision, limit) in [("f32", 1e-4), ("bf16", 0.02), ("fp16", 0.005)] {
        let Some((losses, own)) = train("cuda", precision, false) else { return };
        for (step, (own, want)) in losses.iter().zip(&want).enumerate() {
            assert!((own - want).abs() < limit * want, "{precision}, step {step}: {own}, not {want}");
        }
        if precision == "f32" {
            for (own, want) in own.list.iter().zip(&parameters.list) {
                assert!(error(&own.numbers, &want.numbers, 1e-2) < 2e-2, "{}", own.name);
            }
        }
    }
}

#[test]
fn a_run_on_a_device_goes_on_where_it_was_stopped_to_the_bit() {
    for precision in ["f32", "fp16"] {
        let Some(want) = train("cuda", precision, false) else { return };
        assert!(train("cuda", precision, true).unwrap() == want, "{precision}");
    }
}

#[test]
fn what_a_device_does_not_do_is_refused() {
    let small = Small::new();
    let cases = [
        ("device = \"cuda\"", "device"),
        ("device = \"cudda\"", "device"),
        ("precision = \"bf16\"", "precision"),
        ("device = \"cuda\"\nprecision = \"bf17\"", "precision"),
    ];
    for (line, place) in cases {
        let config = small.config(line);
        let material = small.material(&config);
        match Run::new(config, material, None) {
            Ok(_) => panic!("{line} is taken"),
            Err(error) => assert_eq!(error.place(), place, "{line}: {error}"),
        }
    }
}

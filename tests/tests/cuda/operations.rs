//! Single operations, in every precision.

use siskin_device::Precision;
use siskin_emulator::cuda::ExecutionMode;
use siskin_graph::{
    ActivationFunction, Attention, AttentionMask, GateLimits, Graph, LinearAttention, Node, NormKind, Op,
    OutputHead, RelativePositionBias, RopeTable, RowKind, StateUpdate, ValueShape, Weight, WeightRole, op,
};
use siskin_tests::cuda::{TestDevice, decode, encode};
use siskin_tests::extent::cases;
use siskin_trainer::batch::TrainingBatch;
use siskin_trainer::cuda::{Objective, RunnerBuilder};
use siskin_trainer::loss::{CrossEntropy, LossSum};
use siskin_trainer::program::Side;
use siskin_trainer::{Gradients, Parameters, Program, Recompute, Runner, TrainingObjective};

use super::common::{device, error, numbers, targets};

/// A program of one operation over rows of tables: its inputs can be any numbers, and their gradients are those of the
/// tables. A matrix turns the output into scores.
struct One {
    program: Program,
    batch: TrainingBatch,
    parameters: Parameters<f32>,
}

impl One {
    /// Builds the program. `inputs` are the columns of the operation's inputs; `weights` are the lengths of its weight
    /// vectors.
    fn new(
        lengths: &[usize],
        inputs: &[usize],
        columns: usize,
        weights: &[usize],
        op: impl Into<Op>,
    ) -> Self {
        let mut batch = TrainingBatch::default();
        let rows: usize = lengths.iter().sum();
        let mut first = 0;
        for &length in lengths {
            // Every other row has its own token; the others share some.
            let tokens: Vec<u32> =
                (first..first + length as u32).map(|row| if row % 2 == 0 { row } else { row % 7 }).collect();
            batch.decoder.push(&tokens, &[]);
            first += length as u32;
        }
        let value = |columns| ValueShape { rows: RowKind::Tokens, columns };
        let weight = |name: &str, rows, columns, role| Weight { name: name.to_owned(), rows, columns, role };
        let mut all: Vec<Weight> =
            weights.iter().map(|&count| weight("own", 1, count, WeightRole::Vector)).collect();
        let (mut nodes, mut values) = (Vec::new(), Vec::new());
        for (index, &columns) in inputs.iter().enumerate() {
            all.push(weight("table", rows, columns, WeightRole::Matrix));
            nodes.push(Node {
                op: op::Embed { table: all.len() - 1 }.into(),
                inputs: Vec::new(),
                output: index,
            });
            values.push(value(columns));
        }
        nodes.push(Node { op: op.into(), inputs: (0..inputs.len()).collect(), output: inputs.len() });
        values.push(value(columns));
        all.push(weight("scores", SCORES, columns, WeightRole::Matrix));
        let parts = vec![(all.len() - 1, None)];
        nodes.push(Node {
            op: op::Linear { parts }.into(),
            inputs: vec![inputs.len()],
            output: inputs.len() + 1,
        });
        values.push(value(SCORES));
        let (tail, hidden, output) = (nodes.len() - 1, inputs.len(), inputs.len() + 1);
        let mut seed = 0;
        let parameters = Parameters::new(&all, |weight| {
            seed += 1;
            numbers(weight.rows * weight.columns, seed)
        });
        let sides = vec![Side::Decoder; values.len()];
        let graph = Graph {
            nodes,
            values,
            weights: all,
            ropes: ropes(),
            output,
            head: OutputHead::Token,
            hidden,
            exits: Vec::new(),
        };
        let program = Program { graph, sides, head_start: tail };
        Self { program, batch, parameters }
    }

    /// Returns the difference of the device's gradients from those of the CPU.
    fn error(&self, device: TestDevice, precision: Precision) -> f32 {
        let round = |x: &f32| decode(precision, &encode(precision, &[*x]))[0];
        let mut parameters = self.parameters.clone();
        for parameter in parameters.list.iter_mut().filter(|parameter| parameter.role == WeightRole::Matrix) {
            parameter.numbers = parameter.numbers.iter().map(round).collect();
        }
        let (own, sum) = self.run(device, precision, &parameters);
        let mut cpu = Runner::new(self.program.clone(), Recompute::None, |_| true).unwrap();
        let mut want = Gradients::zeros(&parameters, |_| true);
        let targets = targets(self.batch.decoder.rows.len(), SCORES);
        let goal = TrainingObjective { loss: &CrossEntropy::default(), targets: &targets, scale: 1.0 };
        let cpu_sum = cpu.run(&parameters, &self.batch, goal, &mut want).unwrap();
        let mut worst = ((sum.mean() - cpu_sum.mean()) / cpu_sum.mean()).abs() as f32;
        for (own, want) in own.list.iter().zip(&want.list) {
            worst = worst.max(error(own.as_ref().unwrap(), want.as_ref().unwrap(), 1e-3));
        }
        worst
    }

    fn run(
        &self,
        device: TestDevice,
        precision: Precision,
        parameters: &Parameters<f32>,
    ) -> (Gradients<f32>, LossSum) {
        let targets = targets(self.batch.decoder.rows.len(), SCORES);
        let mut own = Gradients::zeros(parameters, |_| true);
        let mut runner = RunnerBuilder { precision, ..RunnerBuilder::new(self.program.clone(), parameters) }
            .build(Box::new(device))
            .unwrap();
        runner.run(&self.batch, &Objective::default(), &targets, 1.0).unwrap();
        runner.gradients(&mut own).unwrap();
        (own, runner.take_sum().unwrap())
    }
}

/// Columns of scores; odd, so that rows are not aligned to 16 bytes.
const SCORES: usize = 37;

fn ropes() -> Vec<RopeTable> {
    vec![RopeTable { frequencies: vec![1.0, 0.3, 0.05], magnitude: 1.1, scaling: None }]
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

fn attention(heads: usize, kv_heads: usize, head_size: usize, attention_mask: AttentionMask) -> Attention {
    Attention { kv_heads, attention_mask, ..Attention::causal(heads, head_size) }
}

fn attend(lengths: &[usize], description: Attention, weights: &[usize]) -> One {
    let [wide, narrow] = [description.heads, description.kv_heads].map(|heads| heads * description.head_size);
    One::new(lengths, &[wide, narrow, narrow], wide, weights, description)
}

#[test]
fn attention_matches_for_all_lengths_and_masks() {
    check(
        "attention",
        [
            attend(&[1, 17, 65], attention(2, 1, 16, AttentionMask::Causal(None)), &[]),
            attend(&[130], attention(1, 1, 64, AttentionMask::Causal(Some(70))), &[]),
            attend(&[70, 3], attention(2, 2, 9, AttentionMask::LocalWindow(20)), &[]),
            attend(&[150], attention(1, 1, 8, AttentionMask::StreamingLlm { window: 40, sinks: 3 }), &[]),
            attend(&[66], attention(3, 1, 72, AttentionMask::Full), &[]),
            attend(&[40], attention(1, 1, 136, AttentionMask::Causal(None)), &[]),
            attend(&[200, 3, 64], attention(4, 2, 64, AttentionMask::Causal(None)), &[]),
            attend(&[150, 33], attention(2, 1, 128, AttentionMask::Causal(Some(40))), &[]),
            attend(&[190], attention(2, 2, 24, AttentionMask::LocalWindow(9)), &[]),
        ],
    );
}

#[test]
fn attention_with_score_bias_matches() {
    let whole = || attention(2, 1, 8, AttentionMask::Causal(None));
    let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
    check(
        "attention",
        [
            attend(&[70], Attention { alibi: vec![0.5, 0.01], ..whole() }, &[]),
            attend(&[70], Attention { softcap: Some(0.7), ..whole() }, &[]),
            attend(&[70, 5], Attention { sinks: Some(0), ..whole() }, &[2]),
            attend(
                &[100, 9],
                Attention { bias: Some(bias), attention_mask: AttentionMask::Full, ..whole() },
                &[16],
            ),
        ],
    );
}

#[test]
fn norms_match() {
    let norm = |kind, bias, group| op::Norm { kind, weight: 0, bias, epsilon: 1e-5, group };
    check(
        "norm",
        [
            One::new(&[5, 150], &[72], 72, &[72, 72], norm(NormKind::Layer, Some(1), 72)),
            One::new(&[3], &[33], 33, &[33], norm(NormKind::Rms, None, 33)),
            One::new(&[9], &[48], 48, &[16], norm(NormKind::Rms, None, 16)),
            One::new(&[9], &[48], 48, &[48, 48], norm(NormKind::Layer, Some(1), 16)),
            One::new(&[9], &[48], 48, &[], op::L2Normalize { group: 16, epsilon: 1e-6, factor: 1.3 }),
        ],
    );
}

#[test]
fn elementwise_functions_match() {
    let kinds = [
        ActivationFunction::Silu,
        ActivationFunction::Gelu,
        ActivationFunction::GeluTanh,
        ActivationFunction::Relu,
        ActivationFunction::Sigmoid,
        ActivationFunction::EluPlusOne,
    ];
    check("activate", kinds.map(|kind| One::new(&[3, 4], &[21], 21, &[], op::Activate { function: kind })));
    check("gate", kinds.map(|kind| One::new(&[3, 4], &[24, 24], 24, &[], op::Gate { function: kind })));
    let limits = GateLimits { limit: 0.6, slope: 1.7 };
    check(
        "map",
        [
            One::new(&[5], &[24, 24], 24, &[], op::ClampedGate { limits }),
            One::new(&[5], &[9], 9, &[], op::Scale { factor: 0.3 }),
            One::new(&[5], &[9], 9, &[], op::Softcap { cap: 0.8 }),
            One::new(&[5], &[9], 9, &[], op::Clamp { limit: 0.5 }),
            One::new(&[5], &[16, 16], 16, &[], op::Add),
            One::new(&[140], &[16], 16, &[16, 16], op::Affine { weight: 0, bias: 1 }),
        ],
    );
}

#[test]
fn slices_and_rotary_embeddings_match() {
    check(
        "place",
        [
            One::new(&[5], &[40], 16, &[], op::SliceColumns { start: 8, columns: 16 }),
            One::new(&[5], &[9], 4, &[], op::SliceColumns { start: 3, columns: 4 }),
            One::new(&[5], &[9], 27, &[], op::RepeatColumns { times: 3 }),
            One::new(&[5, 70], &[16], 16, &[], op::Rope { rope: 0, head_size: 8 }),
        ],
    );
}

/// A recurrent state of four heads that share queries, keys and values; sequences span several of the chunks that the
/// backward pass stores.
fn recur(rule: StateUpdate, [key_size, value_size]: [usize; 2]) -> One {
    let (heads, query_heads, key_heads, value_heads) = (4, 2, 1, 4);
    let mut inputs = vec![query_heads * key_size, key_heads * key_size, value_heads * value_size];
    if rule == StateUpdate::GatedDelta {
        inputs.extend([heads, heads]);
    }
    let state =
        LinearAttention { state: 0, heads, query_heads, key_heads, value_heads, key_size, value_size, rule };
    let columns = heads * value_size;
    let mut case = One::new(&[1, 70, 33], &inputs, columns, &[], state);
    // Sums of keys, which are divisors, must not be near zero; the other inputs must not let the state grow without
    // bound.
    for parameter in case.parameters.list.iter_mut().take(if rule == StateUpdate::GatedDelta { 0 } else { 2 })
    {
        parameter.numbers.iter_mut().for_each(|x| *x = x.abs() + 0.1);
    }
    case
}

#[test]
fn recurrent_states_match() {
    check(
        "state",
        [
            recur(StateUpdate::Additive, [5, 40]),
            recur(StateUpdate::Additive, [40, 31]),
            recur(StateUpdate::BidirectionalAdditive, [7, 3]),
            recur(StateUpdate::GatedDelta, [6, 37]),
            One::new(&[40, 2, 100], &[9], 9, &[36], op::CausalConv1d { state: 0, taps: 4, weight: 0 }),
            One::new(&[3, 150], &[9], 9, &[9, 9], op::DecayGate { log: 0, bias: 1 }),
            One::new(&[3, 1, 9], &[16], 48, &[], op::Im2col { offsets: vec![1, 0, -2], stride: 1 }),
        ],
    );
}

/// Correctly synchronized kernels give the same bits in any order of threads, whenever asynchronous copies land.
#[test]
fn execution_mode_changes_no_bit() {
    let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
    let description = Attention { bias: Some(bias), ..attention(2, 1, 24, AttentionMask::Causal(None)) };
    let plain = attention(2, 1, 24, AttentionMask::Causal(None));
    let with_bias = || attend(&[150, 7], description.clone(), &[16]);
    let without = || attend(&[150, 7], plain.clone(), &[]);
    let states = || recur(StateUpdate::GatedDelta, [6, 37]);
    let all = [
        (with_bias(), Precision::F32),
        (without(), Precision::Bf16),
        (states(), Precision::F32),
        (with_bias(), Precision::Bf16),
        (without(), Precision::F32),
        (states(), Precision::Bf16),
    ];
    // Each operation, in one precision.
    let mut count = 0;
    let first = |_: &_| {
        count += 1;
        count <= 3
    };
    for (case, precision) in cases("operations and precisions", all, first) {
        let results = ExecutionMode::ALL.map(|mode| {
            let mut device = device()?;
            device.set_mode(mode).unwrap();
            Some(case.run(device, precision, &case.parameters))
        });
        assert!(results.iter().all(|result| *result == results[0]), "{precision:?}");
    }
}

/// A command list that was recorded for one batch can be replayed for the other.
#[test]
fn batches_of_equal_shape_reuse_the_commands() {
    let description = || attention(2, 1, 8, AttentionMask::Causal(None));
    let (one, other) = (attend(&[60, 70], description(), &[]), attend(&[70, 60], description(), &[]));
    let Some(device) = device() else { return };
    let (precision, program) = (Precision::Bf16, one.program.clone());
    let runner = RunnerBuilder { precision, ..RunnerBuilder::new(program, &one.parameters) }
        .build(Box::new(device))
        .unwrap();
    let (targets, loss) = (targets(130, SCORES), Objective::default());
    let lists = [&one, &other].map(|case| runner.plan(&case.batch, &loss, &targets).unwrap());
    assert!(lists[0] == lists[1]);
    let longer = attend(&[60, 71], description(), &[]);
    let targets = super::common::targets(131, SCORES);
    assert!(runner.plan(&longer.batch, &loss, &targets).unwrap().0 != lists[0].0);
}

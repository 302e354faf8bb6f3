//! Low-rank adapters of frozen matrices: LoRA, `W x + (alpha / rank) · B A x` (arXiv:2106.09685), and DoRA, with
//! trained row norms, `m · (W + (alpha / rank) · B A) x / ‖W + (alpha / rank) · B A‖` (arXiv:2402.09353).
//!
//! An adapter is a few additional nodes, so that training and recomputation need no rules for it. The row norms of
//! DoRA are constants of the backward pass, and are recomputed after each step. At the end of a run, adapters are
//! merged into their matrices, or exported as a file of their own.

mod merge;

pub use merge::merge;
use merge::merged_rows;

use serde::{Deserialize, Serialize};
use siskin_format::file::File;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::adapter::LoraMatrix;
use siskin_graph::op::{Add, Affine, Linear, Scale};
use siskin_graph::{Node, ValueShape, Weight, WeightRole};

use crate::parameters::{Parameter, Parameters};
use crate::program::Program;
use crate::random::Random;
use crate::real::Real;
use crate::settings::{fits, within};

/// The name of the random stream of initial adapters.
const INITIAL_ADAPTERS: u64 = 0x6164_6170_7465_7200;

/// The infix between the name of a matrix and that of an adapter tensor.
const MARK: &str = ".adapter_";

/// The kind of adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterKind {
    /// LoRA: adds a product of two low-rank matrices.
    #[default]
    Lora,
    /// DoRA: the same, and normalizes each row to a trained norm.
    Dora,
}

/// Which matrices have adapters, and of which rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterOptions {
    /// The kind of adapter.
    pub method: AdapterKind,
    /// The rank.
    pub rank: usize,
    /// The adapter's output is scaled by alpha / rank.
    pub alpha: f64,
    /// The matrices: names in which `*` matches any characters.
    pub tensors: Vec<String>,
}

impl Default for AdapterOptions {
    fn default() -> Self {
        let tensors = ["*attn_q.weight", "*attn_v.weight", "*attn_qkv.weight"];
        let tensors = tensors.map(str::to_owned).to_vec();
        Self { method: AdapterKind::default(), rank: 8, alpha: 16.0, tensors }
    }
}

impl AdapterOptions {
    /// Returns the factor on the adapter's output.
    pub fn factor(&self) -> f64 {
        self.alpha / self.rank as f64
    }
}

/// The matrix that an adapter belongs to, and the adapter's tensors, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainedAdapter {
    /// The frozen matrix.
    pub base: usize,
    /// A: from the input columns to the rank.
    pub a: usize,
    /// B: from the rank to the outputs.
    pub b: usize,
    /// The row norms, with [`AdapterKind::Dora`].
    pub dora: Option<DoraVectors>,
}

/// Vectors with one element per row of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoraVectors {
    /// The trained row norms.
    pub magnitude: usize,
    /// The inverse of the current row norms: a constant of the backward pass, updated by [`update_norms`] before each
    /// step.
    pub inverse_norm: usize,
    /// Zeros.
    pub zeros: usize,
}

/// Returns true if a tensor of this name belongs to an adapter and is trained.
pub fn is_trained(name: &str) -> bool {
    name.rsplit_once(MARK).is_some_and(|(_, part)| ["a", "b", "magnitude"].contains(&part))
}

/// Adds adapters to the linear layers of a program; their tensors are appended to the program's.
pub fn insert_adapters(program: &mut Program, options: &AdapterOptions) -> Result<Vec<TrainedAdapter>> {
    within("adapters.rank", options.rank as f64, 1.0..=4096.0)?;
    let mut adapters: Vec<TrainedAdapter> = Vec::new();
    let nodes = std::mem::take(&mut program.graph.nodes);
    let (tail, has_head) = (program.head_start, program.head_start < nodes.len());
    for (index, node) in nodes.into_iter().enumerate() {
        if index == tail {
            program.head_start = program.graph.nodes.len();
        }
        let linear =
            node.op.downcast_ref::<Linear>().filter(|linear| index < tail && linear.parts.len() == 1);
        let beside = linear.map(|linear| linear.parts[0]);
        let chosen = |(weight, _): &(usize, Option<usize>)| {
            options.tensors.iter().any(|pattern| fits(pattern, &program.graph.weights[*weight].name))
        };
        match beside.filter(chosen) {
            Some((weight, bias)) => {
                let adapter = adapter(program, options, &mut adapters, weight);
                insert(program, node, adapter, bias, options);
            }
            None => program.graph.nodes.push(node),
        }
    }
    // A program with an empty head ends with its last node.
    program.head_start = if has_head { program.head_start } else { program.graph.nodes.len() };
    if adapters.is_empty() {
        let message = "match no matrix; `siskin inspect` lists the names";
        return Err(Error::argument("adapters.tensors", message));
    }
    Ok(adapters)
}

/// Returns the adapter of a matrix; layers that share the matrix share its adapter.
fn adapter(
    program: &mut Program,
    options: &AdapterOptions,
    adapters: &mut Vec<TrainedAdapter>,
    beside: usize,
) -> TrainedAdapter {
    if let Some(known) = adapters.iter().find(|adapter| adapter.base == beside) {
        return *known;
    }
    let Weight { name, rows, columns, .. } = program.graph.weights[beside].clone();
    let mut add = |part: &str, role: WeightRole, rows: usize, columns: usize| {
        let name = format!("{name}{MARK}{part}");
        program.graph.weights.push(Weight { name, rows, columns, role });
        program.graph.weights.len() - 1
    };
    let (first, second) = (
        add("a", WeightRole::Matrix, options.rank, columns),
        add("b", WeightRole::Matrix, rows, options.rank),
    );
    let lengths = (options.method == AdapterKind::Dora).then(|| DoraVectors {
        magnitude: add("magnitude", WeightRole::Vector, 1, rows),
        inverse_norm: add("inverse_norm", WeightRole::Vector, 1, rows),
        zeros: add("zeros", WeightRole::Vector, 1, rows),
    });
    let adapter = TrainedAdapter { base: beside, a: first, b: second, dora: lengths };
    adapters.push(adapter);
    adapter
}

fn insert(
    program: &mut Program,
    mut node: Node,
    adapter: TrainedAdapter,
    bias: Option<usize>,
    options: &AdapterOptions,
) {
    let (input, output) = (node.inputs[0], node.output);
    let (shape, side) = (program.graph.values[output], program.sides[output]);
    let mut value = |columns: usize| {
        program.graph.values.push(ValueShape { columns, ..shape });
        program.sides.push(side);
        program.graph.values.len() - 1
    };
    let (plain, small, wide, scaled) =
        (value(shape.columns), value(options.rank), value(shape.columns), value(shape.columns));
    let sum = if adapter.dora.is_some() { value(shape.columns) } else { output };
    node.output = plain;
    if adapter.dora.is_some() {
        // The bias is not part of the normalized product.
        node.op = Linear { parts: vec![(adapter.base, None)] }.into();
    }
    let linear = |weight: usize| Linear { parts: vec![(weight, None)] }.into();
    let scale = Scale { factor: options.factor() as f32 };
    program.graph.nodes.extend([
        node,
        Node { op: linear(adapter.a), inputs: vec![input], output: small },
        Node { op: linear(adapter.b), inputs: vec![small], output: wide },
        Node { op: scale.into(), inputs: vec![wide], output: scaled },
        Node { op: Add.into(), inputs: vec![plain, scaled], output: sum },
    ]);
    if let Some(DoraVectors { magnitude: wanted, inverse_norm: inverse, zeros }) = adapter.dora {
        let unit = value(shape.columns);
        let affine = |weight: usize, bias: usize| Affine { weight, bias }.into();
        program.graph.nodes.extend([
            Node { op: affine(inverse, zeros), inputs: vec![sum], output: unit },
            Node { op: affine(wanted, bias.unwrap_or(zeros)), inputs: vec![unit], output },
        ]);
    }
}

/// Appends the initial values of the adapters' tensors: A uniform in ± 1/√columns, B zero, norms those of the rows,
/// so that the model initially computes the same as without adapters.
pub fn initialize<T: Real>(
    program: &Program,
    adapters: &[TrainedAdapter],
    options: &AdapterOptions,
    parameters: &mut Parameters<T>,
    seed: u64,
) {
    for (number, adapter) in adapters.iter().enumerate() {
        let Weight { rows, columns, .. } = program.graph.weights[adapter.a];
        let mut random = Random::new(seed, &[INITIAL_ADAPTERS, number as u64]);
        let bound = (columns as f64).powf(-0.5);
        let even = |_| T::of(f64::from((bound * (2.0 * random.unit() - 1.0)) as f32));
        let first: Vec<T> = (0..rows * columns).map(even).collect();
        let mut push = |weight: usize, numbers: Vec<T>| {
            debug_assert_eq!(weight, parameters.list.len(), "tensors in index order");
            parameters.list.push(Parameter::new(&program.graph.weights[weight], numbers));
        };
        push(adapter.a, first);
        let second = &program.graph.weights[adapter.b];
        push(adapter.b, vec![T::ZERO; second.rows * second.columns]);
        if let Some(DoraVectors { magnitude: wanted, inverse_norm: inverse, zeros }) = adapter.dora {
            for weight in [wanted, inverse, zeros] {
                push(weight, vec![T::ZERO; second.rows]);
            }
            parameters.list[wanted].numbers = row_norms(parameters, adapter, options);
        }
    }
    update_norms(parameters, adapters, options);
}

/// Recomputes row norms after adapters have changed.
pub fn update_norms<T: Real>(
    parameters: &mut Parameters<T>,
    adapters: &[TrainedAdapter],
    options: &AdapterOptions,
) {
    for adapter in adapters {
        let Some(DoraVectors { inverse_norm: inverse, .. }) = adapter.dora else { continue };
        let lengths = row_norms(parameters, adapter, options);
        // A row of zeros has no direction.
        let over = |length: T| if length == T::ZERO { T::ZERO } else { T::ONE / length };
        parameters.list[inverse].numbers = lengths.into_iter().map(over).collect();
    }
}

/// Returns the row norms of a matrix plus its adapter.
fn row_norms<T: Real>(
    parameters: &Parameters<T>,
    adapter: &TrainedAdapter,
    options: &AdapterOptions,
) -> Vec<T> {
    let matrix = &parameters.list[adapter.base];
    let mut lengths = Vec::with_capacity(matrix.rows);
    for rows in matrix.parts() {
        let sum = merged_rows(parameters, adapter, options, rows);
        let length = |row: &[T]| T::of(row.iter().map(|x| x.f64() * x.f64()).sum::<f64>().sqrt());
        lengths.extend(sum.chunks(matrix.columns.max(1)).map(length));
    }
    lengths
}

/// Returns the adapters alone, for the model in `base`.
pub fn extract(
    parameters: &Parameters<f32>,
    adapters: &[TrainedAdapter],
    options: &AdapterOptions,
    base: &File,
) -> siskin_graph::adapter::Adapter {
    let part = |adapter: &TrainedAdapter| {
        let numbers = |weight: usize| parameters.list[weight].numbers.clone();
        let Parameter { name, rows, columns, .. } = &parameters.list[adapter.base];
        LoraMatrix {
            tensor: name.clone(),
            rows: *rows,
            columns: *columns,
            rank: parameters.list[adapter.a].rows,
            scale: options.factor() as f32,
            a: numbers(adapter.a),
            b: numbers(adapter.b),
            magnitudes: adapter.dora.map(|lengths| numbers(lengths.magnitude)).unwrap_or_default(),
        }
    };
    siskin_graph::adapter::Adapter {
        architecture: base.metadata().architecture.clone(),
        base: Some(base.digest()),
        parts: adapters.iter().map(part).collect(),
    }
}

/// Loads adapters that [`extract`] returned.
///
/// # Errors
/// If the tensors do not match these adapters; nothing is changed then.
pub fn load(
    parameters: &mut Parameters<f32>,
    adapters: &[TrainedAdapter],
    options: &AdapterOptions,
    from: &siskin_graph::adapter::Adapter,
) -> Result<()> {
    let fits = |adapter: &TrainedAdapter, part: &LoraMatrix| {
        let size = |weight: usize| parameters.list[weight].numbers.len();
        part.tensor == parameters.list[adapter.base].name
            && part.a.len() == size(adapter.a)
            && part.b.len() == size(adapter.b)
            && part.magnitudes.len() == adapter.dora.map_or(0, |lengths| size(lengths.magnitude))
            && part.scale == options.factor() as f32
    };
    let all = adapters.len() == from.parts.len();
    if !all || !adapters.iter().zip(&from.parts).all(|(adapter, part)| fits(adapter, part)) {
        let message =
            "mismatch with the config: the adapter has different matrices, or a different rank or alpha";
        return Err(Error::new(ErrorKind::Shape, "adapter", message));
    }
    for (adapter, part) in adapters.iter().zip(&from.parts) {
        parameters.list[adapter.a].numbers = part.a.clone();
        parameters.list[adapter.b].numbers = part.b.clone();
        if let Some(lengths) = adapter.dora {
            parameters.list[lengths.magnitude].numbers = part.magnitudes.clone();
        }
    }
    update_norms(parameters, adapters, options);
    Ok(())
}

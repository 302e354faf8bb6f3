//! Small matrices beside large ones that stay as they are: `W x + (scale / rank) · B A x` (Hu et al., 2021).
//!
//! An adapter is nothing but four more nodes: what can be trained and computed again needs no rule for it. When a run
//! is done, the product of its matrices is added to the one that it stands beside.

use serde::{Deserialize, Serialize};
use siskin::graph::{Op, Role, Weight};
use siskin::{Error, Result};

use crate::gemm::{Matrix, Target, multiply_together};
use crate::parameters::{Parameter, Parameters};
use crate::program::{Node, Program, Value};
use crate::random::Random;
use crate::settings::{fits, within};

/// The name of the random numbers that adapters begin with.
const BEGINNING: u64 = 0x6164_6170_7465_7200;

/// Which matrices have adapters, and how large they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterOptions {
    /// Rows of the first small matrix.
    pub rank: usize,
    /// Factor on what an adapter gives, times the rank.
    pub scale: f64,
    /// The matrices: names in which `*` stands for any letters.
    pub tensors: Vec<String>,
}

impl Default for AdapterOptions {
    fn default() -> Self {
        let tensors = ["*attn_q.weight", "*attn_v.weight", "*attn_qkv.weight"];
        Self { rank: 8, scale: 16.0, tensors: tensors.map(str::to_owned).to_vec() }
    }
}

impl AdapterOptions {
    fn factor(&self) -> f64 {
        self.scale / self.rank as f64
    }
}

/// The matrix that an adapter stands beside, by its number, and the adapter's own two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Stays as it is.
    pub beside: usize,
    /// Columns of the input to the rank.
    pub first: usize,
    /// The rank to outputs.
    pub second: usize,
}

/// Gives products of a program adapters; the tensors of these come after those that there were.
pub fn adapt(program: &mut Program, options: &AdapterOptions) -> Result<Vec<Adapter>> {
    within("adapters.rank", options.rank as f64, 1.0..=4096.0)?;
    let mut adapters: Vec<Adapter> = Vec::new();
    let nodes = std::mem::take(&mut program.nodes);
    let (tail, has_head) = (program.tail, program.tail < nodes.len());
    for (index, node) in nodes.into_iter().enumerate() {
        if index == tail {
            program.tail = program.nodes.len();
        }
        let beside = match &node.op {
            Op::Linear { parts } if index < tail => match parts[..] {
                [(weight, _)] => Some(weight),
                _ => None,
            },
            _ => None,
        };
        let chosen = |weight: &usize| {
            options.tensors.iter().any(|pattern| fits(pattern, &program.weights[*weight].name))
        };
        match beside.filter(chosen) {
            Some(weight) => {
                let adapter = adapter(program, options.rank, &mut adapters, weight);
                insert(program, node, adapter, options);
            }
            None => program.nodes.push(node),
        }
    }
    // A program whose head is empty ends with its last node.
    program.tail = if has_head { program.tail } else { program.nodes.len() };
    if adapters.is_empty() {
        let message = "fit no matrix; `siskin inspect` lists the names";
        return Err(Error::argument("adapters.tensors", message));
    }
    Ok(adapters)
}

/// The adapter of a matrix, which layers that share the matrix share.
fn adapter(program: &mut Program, rank: usize, adapters: &mut Vec<Adapter>, beside: usize) -> Adapter {
    if let Some(known) = adapters.iter().find(|adapter| adapter.beside == beside) {
        return *known;
    }
    let Weight { name, rows, columns, .. } = program.weights[beside].clone();
    let mut add = |part: &str, rows: usize, columns: usize| {
        let name = format!("{name}.adapter_{part}");
        program.weights.push(Weight { name, rows, columns, role: Role::Matrix });
        program.weights.len() - 1
    };
    let adapter = Adapter { beside, first: add("a", rank, columns), second: add("b", rows, rank) };
    adapters.push(adapter);
    adapter
}

fn insert(program: &mut Program, mut node: Node, adapter: Adapter, options: &AdapterOptions) {
    let (input, output) = (node.inputs[0], node.output);
    let shape = program.values[output];
    let mut value = |columns: usize| {
        program.values.push(Value { columns, ..shape });
        program.values.len() - 1
    };
    let (plain, small, wide, scaled) =
        (value(shape.columns), value(options.rank), value(shape.columns), value(shape.columns));
    node.output = plain;
    let linear = |weight: usize| Op::Linear { parts: vec![(weight, None)] };
    program.nodes.extend([
        node,
        Node { op: linear(adapter.first), inputs: vec![input], output: small },
        Node { op: linear(adapter.second), inputs: vec![small], output: wide },
        Node { op: Op::Scale(options.factor() as f32), inputs: vec![wide], output: scaled },
        Node { op: Op::Add, inputs: vec![plain, scaled], output },
    ]);
}

/// The first numbers of the adapters' tensors: the first matrix even between ± 1/√columns, the second zero, so that a
/// model with adapters begins as the one without.
pub fn begin(program: &Program, adapters: &[Adapter], seed: u64) -> Vec<Parameter<f32>> {
    let parameter = |(number, adapter): (usize, &Adapter)| {
        [adapter.first, adapter.second].map(|weight| {
            let Weight { name, rows, columns, role } = program.weights[weight].clone();
            let mut numbers = vec![0.0; rows * columns];
            if weight == adapter.first {
                let mut random = Random::new(seed, &[BEGINNING, number as u64]);
                let bound = (columns as f64).powf(-0.5);
                numbers.iter_mut().for_each(|x| *x = (bound * (2.0 * random.unit() - 1.0)) as f32);
            }
            Parameter { name, rows, columns, role, numbers }
        })
    };
    adapters.iter().enumerate().flat_map(parameter).collect()
}

/// The parameters without adapters, whose products are in the matrices that they stood beside.
pub fn merge(
    parameters: &Parameters<f32>,
    adapters: &[Adapter],
    options: &AdapterOptions,
) -> Parameters<f32> {
    let mut merged = parameters.clone();
    for adapter in adapters {
        let (first, second) = (&parameters.list[adapter.first], &parameters.list[adapter.second]);
        let a = Matrix::new(&first.numbers, first.rows, first.columns, first.columns);
        let b = Matrix::new(&second.numbers, second.rows, second.columns, second.columns);
        let to = Target::new(&mut merged.list[adapter.beside].numbers, first.columns);
        multiply_together(options.factor() as f32, b, a, true, to);
    }
    let most = adapters.iter().map(|adapter| adapter.first).min().unwrap_or(merged.list.len());
    merged.list.truncate(most);
    merged
}

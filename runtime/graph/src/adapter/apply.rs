//! Inserts an adapter into a graph: additional operations, and tensors that are created in memory.

use std::collections::{HashMap, HashSet};

use siskin_kernels::panel::{self, PanelType, ROWS};
use siskin_kernels::quant::BlockType;

use super::part_weights::{PartWeights, tensors};
use super::{Adapter, LoraMatrix, MAX_ADAPTERS, NamedAdapter, per_row, takes};
use crate::arch::Graphs;
use crate::op::{Add, Affine, Linear};
use crate::{AdapterSlot, Graph, Node, Op, ValueShape, Weight, WeightId, WeightRole};
use siskin_format::file::{self, Bytes, File, Tensor};
use siskin_format::{Error, ErrorKind, Result};

/// A bound weight.
#[derive(Clone, Debug)]
pub enum BoundWeight {
    /// Packed panels, mapped.
    Matrix(Tensor),
    /// f32 values, copied out of the file: norms and biases are small and must be aligned.
    Vector(Vec<f32>),
}

/// The tensors of an adapter, by name.
#[derive(Clone, Debug, Default)]
pub struct AdapterTensors {
    tensors: HashMap<String, BoundWeight>,
}

impl AdapterTensors {
    /// Inserts an adapter into the linear nodes of graphs. Unless `all` is set, parts without a matching matrix are
    /// ignored, as with layer skipping.
    pub fn new(graphs: &mut Graphs, file: &File, adapter: &Adapter, all: bool) -> Result<Self> {
        let mut placed = Self::default();
        placed.place(graphs, file, adapter, (AdapterSlot::MODEL, all), &insert)?;
        Ok(placed)
    }

    /// Inserts adapters of which each applies to the rows with its slot, counted from 1.
    pub fn per_row(graphs: &mut Graphs, file: &File, adapters: &[NamedAdapter], all: bool) -> Result<Self> {
        let mut placed = Self::default();
        if adapters.len() > MAX_ADAPTERS {
            let message = format!("{} adapters; a model has at most {MAX_ADAPTERS}", adapters.len());
            return Err(Error::argument("adapters", message));
        }
        for (slot, (index, NamedAdapter { name, adapter })) in
            (1..).map(AdapterSlot).zip(adapters.iter().enumerate())
        {
            if adapters[..index].iter().any(|other| other.name == *name) {
                return Err(Error::argument("adapters", format!("two adapters have the name {name:?}")));
            }
            let placed = placed.place(graphs, file, adapter, (slot, all), &per_row::insert);
            placed.map_err(|error| error.within(name))?;
        }
        Ok(placed)
    }

    fn place(
        &mut self,
        graphs: &mut Graphs,
        file: &File,
        adapter: &Adapter,
        (slot, all): (AdapterSlot, bool),
        insert: &dyn Fn(&mut Graph, WeightId, &LoraMatrix, AdapterSlot) -> Result<bool>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        for part in &adapter.parts {
            part.check()?;
            if !seen.insert(&part.tensor) {
                return Err(Error::corrupt(part.place(), "the adapter has two parts for this matrix"));
            }
            let mut found = false;
            for graph in [&mut graphs.encoder, &mut graphs.decoder].into_iter().flatten() {
                if let Some(weight) = target(graph, part)? {
                    found |= insert(graph, weight, part, slot)?;
                }
            }
            if !found && all {
                let message = "the model has no linear layer with this matrix";
                return Err(Error::new(ErrorKind::Missing, part.place(), message));
            }
            if found {
                self.make(part, slot, file)?;
            }
        }
        Ok(())
    }

    /// Returns the adapter tensor of this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&BoundWeight> {
        self.tensors.get(name)
    }

    /// Creates the tensors of a part.
    fn make(&mut self, part: &LoraMatrix, slot: AdapterSlot, file: &File) -> Result<()> {
        let [a, b, factors, zeros] = tensors(&part.tensor, slot);
        let second: Vec<f32> = part.b.iter().map(|x| x * part.scale).collect();
        self.tensors.insert(a.clone(), pack(&a, &part.a, [part.rank, part.columns])?);
        self.tensors.insert(b.clone(), pack(&b, &second, [part.rows, part.rank])?);
        if !part.magnitudes.is_empty() {
            self.tensors.insert(factors, BoundWeight::Vector(dora_scales(part, &second, file)?));
            self.tensors.insert(zeros, BoundWeight::Vector(vec![0.0; part.rows]));
        }
        Ok(())
    }
}

fn names(op: &Op, weight: WeightId) -> bool {
    op.weights().contains(&weight)
}

/// Returns the weight of a graph that a part changes.
fn target(graph: &Graph, part: &LoraMatrix) -> Result<Option<WeightId>> {
    let Some(weight) = graph.weights.iter().position(|weight| weight.name == part.tensor) else {
        return Ok(None);
    };
    let Weight { rows, columns, role, .. } = graph.weights[weight];
    if (rows, columns, role) != (part.rows, part.columns, WeightRole::Matrix) {
        let message = format!(
            "made for a matrix of {} × {}; the model has {rows} × {columns}",
            part.rows, part.columns
        );
        return Err(Error::new(ErrorKind::Shape, part.place(), message));
    }
    if graph.nodes.iter().any(|node| names(&node.op, weight) && !takes(&node.op, weight)) {
        let message = "not a linear layer; LoRA on embeddings and experts is unsupported";
        return Err(Error::unsupported(part.place(), message));
    }
    Ok(Some(weight))
}

/// Packs a matrix in memory.
fn pack(name: &str, numbers: &[f32], [rows, columns]: [usize; 2]) -> Result<BoundWeight> {
    let place = || format!("tensor {name}");
    let too_large = || Error::new(ErrorKind::Memory, place(), "exceeds the address space of this machine");
    let size = PanelType::F32.panel_bytes(columns).ok_or_else(too_large)?;
    let mut data = vec![0; PanelType::F32.tensor_bytes(rows, columns).ok_or_else(too_large)?];
    for (panel, rows) in data.chunks_mut(size).zip(numbers.chunks(ROWS * columns)) {
        let rows: Vec<Vec<u8>> =
            rows.chunks(columns).map(|row| row.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        panel::pack(BlockType::F32, &rows, columns, panel);
    }
    Ok(BoundWeight::Matrix(Tensor::in_memory(name, PanelType::F32, [rows, columns], Bytes::new(data))))
}

/// Returns the DoRA factor of each row: its magnitude divided by the norm of the adapted row. A zero row stays zero.
fn dora_scales(part: &LoraMatrix, second: &[f32], file: &File) -> Result<Vec<f32>> {
    let place = || format!("tensor {}", part.tensor);
    let missing =
        || Error::new(ErrorKind::Missing, place(), "missing from the file; convert the model again");
    let tensor = file.tensor(&part.tensor).ok_or_else(missing)?;
    if (tensor.role, tensor.rows, tensor.columns) != (file::StorageRole::Matrix, part.rows, part.columns) {
        return Err(Error::new(ErrorKind::Shape, place(), "not the shape that its adapter was trained for"));
    }
    let size = tensor.panel.panel_bytes(part.columns).unwrap_or(0);
    let mut row = vec![0.0; part.columns];
    let mut factors = Vec::with_capacity(part.rows);
    for (number, wanted) in part.magnitudes.iter().enumerate() {
        let first = number / ROWS * size;
        let panel = tensor.data.get(first..first + size).unwrap_or_default();
        panel::row_values(tensor.panel, panel, number % ROWS, part.columns, &mut row);
        for (b, a) in second[number * part.rank..].iter().zip(part.a.chunks(part.columns)) {
            row.iter_mut().zip(a).for_each(|(x, a)| *x += b * a);
        }
        let length = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        factors.push(if length > 0.0 { (f64::from(*wanted) / length) as f32 } else { 0.0 });
    }
    Ok(factors)
}

/// Adds the operations of a part to every linear node with its matrix; returns whether there was one.
fn insert(graph: &mut Graph, weight: WeightId, part: &LoraMatrix, slot: AdapterSlot) -> Result<bool> {
    if !graph.nodes.iter().any(|node| takes(&node.op, weight)) {
        return Ok(false);
    }
    let PartWeights { a, b, scaling } = PartWeights::new(graph, part, slot);
    for mut node in std::mem::take(&mut graph.nodes) {
        let linear = node.op.downcast_ref::<Linear>().filter(|_| takes(&node.op, weight));
        let Some(bias) = linear.map(|linear| linear.parts[0].1) else {
            graph.nodes.push(node);
            continue;
        };
        let (input, output) = (node.inputs[0], node.output);
        let rows = graph.values[output].rows;
        let mut value = |columns: usize| {
            graph.values.push(ValueShape { rows, columns });
            graph.values.len() - 1
        };
        let (plain, small, wide) = (value(part.rows), value(part.rank), value(part.rows));
        let sum = if scaling.is_some() { value(part.rows) } else { output };
        node.output = plain;
        if scaling.is_some() {
            // The bias is added after scaling.
            node.op = Linear { parts: vec![(weight, None)] }.into();
        }
        let linear = |weight: WeightId| Linear { parts: vec![(weight, None)] }.into();
        graph.nodes.extend([
            node,
            Node { op: linear(a), inputs: vec![input], output: small },
            Node { op: linear(b), inputs: vec![small], output: wide },
            Node { op: Add.into(), inputs: vec![plain, wide], output: sum },
        ]);
        if let Some([weight, zeros]) = scaling {
            let op = Affine { weight, bias: bias.unwrap_or(zeros) }.into();
            graph.nodes.push(Node { op, inputs: vec![sum], output });
        }
    }
    Ok(true)
}

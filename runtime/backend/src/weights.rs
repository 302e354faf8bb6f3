//! The weights of a model's graphs, bound to the tensors of a file.

use siskin_format::file::{self, File, Tensor};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::adapter::{AdapterTensors, BoundWeight};
use siskin_graph::arch::Graphs;
use siskin_graph::{Graph, Weight, WeightId, WeightRole};
use siskin_kernels::ops::attention::CacheType;

use super::ModelPart;

/// What the weights of a model are bound to.
pub struct WeightSource<'a> {
    /// The graphs, whose weights are named.
    pub graphs: &'a Graphs,
    /// The file that holds most of them.
    pub file: &'a File,
    /// Tensors that the file lacks.
    pub adapter: &'a AdapterTensors,
}

/// The weights of the encoder and of the decoder; empty for what a model lacks.
#[derive(Debug, Default)]
pub struct ModelWeights {
    /// Those of the encoder.
    pub encoder: Weights,
    /// Those of the decoder.
    pub decoder: Weights,
}

impl ModelWeights {
    /// Finds the weights of all graphs.
    pub fn bind(source: &WeightSource<'_>) -> Result<Self> {
        let bind = |graph: &Option<Graph>| match graph {
            None => Ok(Weights::default()),
            Some(graph) => Weights::bind(graph, source.file, source.adapter),
        };
        Ok(Self { encoder: bind(&source.graphs.encoder)?, decoder: bind(&source.graphs.decoder)? })
    }

    /// Returns the weights of a part of the model.
    pub fn of(&self, part: ModelPart) -> &Weights {
        match part {
            ModelPart::Encoder => &self.encoder,
            ModelPart::Decoder => &self.decoder,
        }
    }

    /// Returns the bytes of the vectors (norms, biases), which are copied out of the file.
    pub fn vector_bytes(&self) -> usize {
        self.encoder.vector_bytes() + self.decoder.vector_bytes()
    }

    /// Returns the default element type of the KV cache: that of a model with f32 weights is f32.
    pub fn cache_type(&self) -> CacheType {
        match self.encoder.any_full_precision() || self.decoder.any_full_precision() {
            true => CacheType::F32,
            false => CacheType::F16,
        }
    }
}

/// The weights of a graph, indexed by [`WeightId`].
#[derive(Clone, Debug, Default)]
pub struct Weights {
    bound: Vec<BoundWeight>,
    /// How many come from the file; those of an adapter follow.
    from_file: usize,
}

impl Weights {
    /// Finds every weight of `graph` in `file` or in `placed`, and checks its shape.
    fn bind(graph: &Graph, file: &File, placed: &AdapterTensors) -> Result<Self> {
        let find = |weight: &Weight| match placed.tensor(&weight.name) {
            Some(bound) => Ok(bound.clone()),
            None => bind(weight, file),
        };
        let bound = graph.weights.iter().map(find).collect::<Result<_>>()?;
        let from_file = graph.weights.iter().filter(|weight| placed.tensor(&weight.name).is_none()).count();
        Ok(Self { bound, from_file })
    }

    /// Returns a matrix; `None` if the weight is a vector, which binding rules out.
    pub fn matrix(&self, id: WeightId) -> Option<&Tensor> {
        match &self.bound[id] {
            BoundWeight::Matrix(tensor) => Some(tensor),
            BoundWeight::Vector(_) => None,
        }
    }

    /// Returns a vector; empty if there is none.
    pub fn vector(&self, id: Option<WeightId>) -> &[f32] {
        match id.map(|id| &self.bound[id]) {
            Some(BoundWeight::Vector(numbers)) => numbers,
            _ => &[],
        }
    }

    /// Returns the bytes of the vectors.
    pub fn vector_bytes(&self) -> usize {
        (0..self.bound.len()).map(|id| self.vector(Some(id)).len() * 4).sum()
    }

    /// Returns whether any matrix of the file is f32: such models stay in full precision, KV cache included.
    fn any_full_precision(&self) -> bool {
        let full = |tensor: &Tensor| tensor.panel == siskin_kernels::panel::PanelType::F32;
        self.bound[..self.from_file]
            .iter()
            .any(|bound| matches!(bound, BoundWeight::Matrix(tensor) if full(tensor)))
    }
}

fn bind(weight: &Weight, file: &File) -> Result<BoundWeight> {
    let place = || format!("tensor {}", weight.name);
    let tensor = file.tensor(&weight.name).ok_or_else(|| {
        Error::new(ErrorKind::Missing, place(), "missing from the file; convert the model again")
    })?;
    let role = match weight.role {
        WeightRole::Matrix => file::StorageRole::Matrix,
        WeightRole::Vector => file::StorageRole::Vector,
    };
    if (tensor.role, tensor.rows, tensor.columns) != (role, weight.rows, weight.columns) {
        return Err(Error::new(
            ErrorKind::Shape,
            place(),
            format!(
                "the model needs {} × {} ({:?}), the file has {} × {} ({:?})",
                weight.rows, weight.columns, role, tensor.rows, tensor.columns, tensor.role
            ),
        ));
    }
    Ok(match weight.role {
        WeightRole::Matrix => BoundWeight::Matrix(tensor.clone()),
        WeightRole::Vector => BoundWeight::Vector(tensor.floats()),
    })
}

//! The weights of a graph, bound to the tensors of a file.

use crate::adapter::Placed;
use crate::file::{self, File, Tensor};
use crate::graph::{Graph, Role, Weight, WeightId};
use crate::{Error, ErrorKind, Result};

/// A weight that is ready for use.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    /// Packed panels, mapped.
    Matrix(Tensor),
    /// Numbers, copied: norms and biases are small and must be aligned.
    Vector(Vec<f32>),
}

/// The weights of a graph, by their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weights {
    bound: Vec<Bound>,
    /// How many are the file's; those of an adapter come after them.
    own: usize,
}

impl Weights {
    /// Finds every weight of `graph` in `file`, or in what was placed beside it, and checks its shape.
    pub(crate) fn bind(graph: &Graph, file: &File, placed: &Placed) -> Result<Self> {
        let find = |weight: &Weight| match placed.tensor(&weight.name) {
            Some(bound) => Ok(bound.clone()),
            None => bind(weight, file),
        };
        let bound = graph.weights.iter().map(find).collect::<Result<_>>()?;
        let own = graph.weights.iter().filter(|weight| placed.tensor(&weight.name).is_none()).count();
        Ok(Self { bound, own })
    }

    /// A matrix. Empty where the weight is a vector, which binding excludes.
    pub(crate) fn matrix(&self, id: WeightId) -> Option<&Tensor> {
        match &self.bound[id] {
            Bound::Matrix(tensor) => Some(tensor),
            Bound::Vector(_) => None,
        }
    }

    /// A vector; empty where there is none.
    pub(crate) fn vector(&self, id: Option<WeightId>) -> &[f32] {
        match id.map(|id| &self.bound[id]) {
            Some(Bound::Vector(numbers)) => numbers,
            _ => &[],
        }
    }

    /// Bytes of the vectors.
    pub(crate) fn vector_bytes(&self) -> usize {
        (0..self.bound.len()).map(|id| self.vector(Some(id)).len() * 4).sum()
    }

    /// Whether any matrix of the file is held as f32: such models are kept exact, keys and values included.
    pub(crate) fn any_full_precision(&self) -> bool {
        let full = |tensor: &Tensor| tensor.panel == siskin_kernels::panel::PanelType::F32;
        self.bound[..self.own].iter().any(|bound| matches!(bound, Bound::Matrix(tensor) if full(tensor)))
    }
}

fn bind(weight: &Weight, file: &File) -> Result<Bound> {
    let place = || format!("tensor {}", weight.name);
    let tensor = file.tensor(&weight.name).ok_or_else(|| {
        Error::new(ErrorKind::Missing, place(), "the file does not hold it; convert the model again")
    })?;
    let role = match weight.role {
        Role::Matrix => file::Role::Matrix,
        Role::Vector => file::Role::Vector,
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
        Role::Matrix => Bound::Matrix(tensor.clone()),
        Role::Vector => Bound::Vector(tensor.floats()),
    })
}

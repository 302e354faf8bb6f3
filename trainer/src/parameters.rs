//! The parameters of a model, trained or frozen.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use siskin_format::file::{File, Tensor};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{Weight, WeightRole};
use siskin_kernels::panel::{self, PanelType, ROWS};

use crate::qat::WeightType;
use crate::real::Real;

/// Elements that are unpacked at a time.
const MAX_ELEMENTS: usize = 1 << 20;

/// A tensor in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter<T> {
    /// Its name in a `.siskin` file.
    pub name: String,
    /// The number of rows; 1 for a vector.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// Matrix or vector.
    pub role: WeightRole,
    /// The values; empty for a packed matrix.
    pub numbers: Vec<T>,
    /// What steps compute with.
    pub forward: ForwardWeights<T>,
}

/// What a step computes with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ForwardWeights<T> {
    /// The values.
    #[default]
    Numbers,
    /// Packed panels of a frozen matrix, unpacked a part at a time on demand.
    Packed(PackedPanels),
    /// The values rounded to a weight type (quantization-aware training).
    Rounded {
        /// The type.
        kind: WeightType,
        /// The rounded values.
        numbers: Vec<T>,
    },
}

/// The panels of a matrix.
#[derive(Clone, Debug)]
pub struct PackedPanels(Tensor);

impl PackedPanels {
    /// Returns the panel type.
    pub fn panel(&self) -> PanelType {
        self.0.panel
    }

    /// Returns the packed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.data
    }

    /// Unpacks row `row`.
    fn row(&self, row: usize, out: &mut [f32]) {
        let Tensor { panel, columns, data, .. } = &self.0;
        let bytes = panel.panel_bytes(*columns).unwrap_or(0);
        let first = row / ROWS * bytes;
        if let Some(bytes) = data.get(first..first + bytes) {
            panel::row_values(*panel, bytes, row % ROWS, *columns, out);
        }
    }
}

impl PartialEq for PackedPanels {
    fn eq(&self, other: &Self) -> bool {
        self.panel() == other.panel() && self.bytes() == other.bytes()
    }
}

impl<T: Real> Parameter<T> {
    /// Creates a tensor with these values.
    pub fn new(weight: &Weight, numbers: Vec<T>) -> Self {
        let Weight { name, rows, columns, role } = weight.clone();
        Self { name, rows, columns, role, numbers, forward: ForwardWeights::Numbers }
    }

    /// Returns some rows as steps compute with them.
    pub fn part(&self, rows: Range<usize>) -> Cow<'_, [T]> {
        let places = rows.start * self.columns..rows.end * self.columns;
        match &self.forward {
            ForwardWeights::Numbers => Cow::Borrowed(&self.numbers[places]),
            ForwardWeights::Rounded { numbers, .. } => Cow::Borrowed(&numbers[places]),
            ForwardWeights::Packed(packed) => {
                let columns = self.columns.max(1);
                let mut numbers = vec![T::ZERO; places.len()];
                let panels = numbers.par_chunks_mut(ROWS * columns).enumerate();
                panels.for_each_init(
                    || vec![0.0; columns],
                    |values, (index, out)| {
                        for (row, out) in out.chunks_mut(columns).enumerate() {
                            packed.row(rows.start + index * ROWS + row, values);
                            out.iter_mut().zip(&*values).for_each(|(out, x)| *out = T::of(f64::from(*x)));
                        }
                    },
                );
                Cow::Owned(numbers)
            }
        }
    }

    /// Returns ranges that cover all rows, each unpacked at once.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let rows = self.rows;
        let step = match self.forward {
            ForwardWeights::Packed(_) => (MAX_ELEMENTS / self.columns.max(1)).next_multiple_of(ROWS),
            ForwardWeights::Numbers | ForwardWeights::Rounded { .. } => rows.max(1),
        };
        (0..rows).step_by(step).map(move |first| first..rows.min(first + step))
    }

    /// Writes row `row` as steps compute with it.
    pub fn row(&self, row: usize, out: &mut [T]) {
        match &self.forward {
            ForwardWeights::Packed(packed) => {
                let mut values = vec![0.0; self.columns];
                packed.row(row, &mut values);
                out.iter_mut().zip(values).for_each(|(out, x)| *out = T::of(f64::from(x)));
            }
            ForwardWeights::Numbers | ForwardWeights::Rounded { .. } => {
                out.copy_from_slice(&self.part(row..row + 1));
            }
        }
    }

    /// Returns the bytes in memory; packed matrices are memory-mapped.
    pub fn bytes(&self) -> usize {
        let forward_bytes = match &self.forward {
            ForwardWeights::Numbers => 0,
            ForwardWeights::Packed(packed) => packed.bytes().len(),
            ForwardWeights::Rounded { numbers, .. } => size_of_val(&numbers[..]),
        };
        size_of_val(&self.numbers[..]) + forward_bytes
    }
}

/// The tensors of a program, by index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters<T> {
    /// In the order of the weights of the graph.
    pub list: Vec<Parameter<T>>,
}

impl<T: Real> Parameters<T> {
    /// Creates the tensors of `weights` with the values that `number` returns.
    pub fn new(weights: &[Weight], mut numbers: impl FnMut(&Weight) -> Vec<T>) -> Self {
        let parameter = |weight: &Weight| Parameter::new(weight, numbers(weight));
        Self { list: weights.iter().map(parameter).collect() }
    }

    /// Reads the tensors of `weights` from a file and unpacks them.
    pub fn read(weights: &[Weight], file: &File) -> Result<Self> {
        Self::read_with_packed(weights, file, |_| false)
    }

    /// Like [`Self::read`], but matrices that are not f32 stay packed if `stays` returns true for their index.
    pub fn read_with_packed(weights: &[Weight], file: &File, stays: impl Fn(usize) -> bool) -> Result<Self> {
        let list = weights.iter().enumerate().map(|(number, weight)| {
            let tensor = file.tensor(&weight.name).ok_or_else(|| {
                let place = format!("tensor {}", weight.name);
                Error::new(ErrorKind::Missing, place, "the file does not contain it; convert the model again")
            })?;
            if (tensor.rows, tensor.columns) != (weight.rows, weight.columns) {
                let message = format!(
                    "the model needs {} × {}, the file has {} × {}",
                    weight.rows, weight.columns, tensor.rows, tensor.columns
                );
                return Err(Error::new(ErrorKind::Shape, format!("tensor {}", weight.name), message));
            }
            if weight.role == WeightRole::Vector {
                let floats = tensor.floats().into_iter().map(|number| T::of(f64::from(number)));
                return Ok(Parameter::new(weight, floats.collect()));
            }
            let mut parameter = Parameter::new(weight, Vec::new());
            parameter.forward = ForwardWeights::Packed(PackedPanels(tensor.clone()));
            if tensor.panel == PanelType::F32 || !stays(number) {
                parameter.numbers = parameter.part(0..weight.rows).into_owned();
                parameter.forward = ForwardWeights::Numbers;
            }
            Ok(parameter)
        });
        Ok(Self { list: list.collect::<Result<_>>()? })
    }

    /// Returns the values that steps compute with; the tensor must not be packed.
    pub fn numbers(&self, weight: usize) -> &[T] {
        match &self.list[weight] {
            Parameter { forward: ForwardWeights::Rounded { numbers, .. }, .. } => numbers,
            Parameter { numbers, .. } => numbers,
        }
    }

    /// Returns the number of parameters.
    pub fn count(&self) -> usize {
        self.list.iter().map(|parameter| parameter.rows * parameter.columns).sum()
    }
}

/// The gradients of the loss; `None` for tensors that are not trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients<T> {
    /// In the order of the parameters.
    pub list: Vec<Option<Vec<T>>>,
}

impl<T: Real> Gradients<T> {
    /// Creates zero gradients of the tensors for which `trains` returns true.
    pub fn zeros(parameters: &Parameters<T>, trains: impl Fn(&Parameter<T>) -> bool) -> Self {
        let zeros =
            |parameter: &Parameter<T>| trains(parameter).then(|| vec![T::ZERO; parameter.numbers.len()]);
        Self { list: parameters.list.iter().map(zeros).collect() }
    }

    /// Zeroes all gradients.
    pub fn clear(&mut self) {
        self.list.iter_mut().flatten().for_each(|gradient| gradient.fill(T::ZERO));
    }

    /// Returns true if a tensor is trained.
    pub fn has(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(Option::is_some)
    }

    /// Returns the gradient of a tensor, if it is trained.
    pub fn of(&mut self, weight: usize) -> Option<&mut [T]> {
        self.list.get_mut(weight)?.as_deref_mut()
    }
}

//! The numbers of a model that training changes, and those that it does not.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;
use siskin::file::{File, Tensor};
use siskin::graph::{Role, Weight};
use siskin::{Error, ErrorKind, Result};
use siskin_kernels::panel::{self, PanelType, ROWS};

use crate::quantise::WeightType;
use crate::real::Real;

/// Numbers that are made of panels at a time.
const MOST: usize = 1 << 20;

/// A tensor: rows of columns, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter<T> {
    /// Its name in a `.siskin` file.
    pub name: String,
    /// Rows; 1 for a vector.
    pub rows: usize,
    /// Columns of a row.
    pub columns: usize,
    /// Matrix or vector.
    pub role: Role,
    /// The numbers; none of a matrix that is packed.
    pub numbers: Vec<T>,
    /// What is computed with.
    pub seen: Seen<T>,
}

/// What a step computes with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Seen<T> {
    /// The numbers.
    #[default]
    Numbers,
    /// Panels of a file, which stay as they are: they become numbers a part at a time, when they are needed.
    Packed(Packed),
    /// The numbers as a type of weights holds them.
    Rounded {
        /// The type.
        kind: WeightType,
        /// What it makes of the numbers.
        numbers: Vec<T>,
    },
}

/// The panels of a matrix.
#[derive(Clone, Debug)]
pub struct Packed(Tensor);

impl Packed {
    /// How they are packed.
    pub fn panel(&self) -> PanelType {
        self.0.panel
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.data
    }

    /// Writes row `row`.
    fn row(&self, row: usize, out: &mut [f32]) {
        let Tensor { panel, columns, data, .. } = &self.0;
        let bytes = panel.panel_bytes(*columns).unwrap_or(0);
        let first = row / ROWS * bytes;
        if let Some(bytes) = data.get(first..first + bytes) {
            panel::row_values(*panel, bytes, row % ROWS, *columns, out);
        }
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.panel() == other.panel() && self.bytes() == other.bytes()
    }
}

impl<T: Real> Parameter<T> {
    /// A tensor with these numbers.
    pub fn new(weight: &Weight, numbers: Vec<T>) -> Self {
        let Weight { name, rows, columns, role } = weight.clone();
        Self { name, rows, columns, role, numbers, seen: Seen::Numbers }
    }

    /// Some rows as they are computed with.
    pub fn part(&self, rows: Range<usize>) -> Cow<'_, [T]> {
        let places = rows.start * self.columns..rows.end * self.columns;
        match &self.seen {
            Seen::Numbers => Cow::Borrowed(&self.numbers[places]),
            Seen::Rounded { numbers, .. } => Cow::Borrowed(&numbers[places]),
            Seen::Packed(packed) => {
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

    /// All rows, in parts that are made of panels at once.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let rows = self.rows;
        let step = match self.seen {
            Seen::Packed(_) => (MOST / self.columns.max(1)).next_multiple_of(ROWS),
            _ => rows.max(1),
        };
        (0..rows).step_by(step).map(move |first| first..rows.min(first + step))
    }

    /// Writes row `row` as it is computed with.
    pub fn row(&self, row: usize, out: &mut [T]) {
        match &self.seen {
            Seen::Packed(packed) => {
                let mut values = vec![0.0; self.columns];
                packed.row(row, &mut values);
                out.iter_mut().zip(values).for_each(|(out, x)| *out = T::of(f64::from(x)));
            }
            _ => out.copy_from_slice(&self.part(row..row + 1)),
        }
    }

    /// The bytes that it takes; what is packed is mapped.
    pub fn bytes(&self) -> usize {
        let seen = match &self.seen {
            Seen::Numbers => 0,
            Seen::Packed(packed) => packed.bytes().len(),
            Seen::Rounded { numbers, .. } => size_of_val(&numbers[..]),
        };
        size_of_val(&self.numbers[..]) + seen
    }
}

/// The tensors of a program, by their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters<T> {
    /// In the order of [`Program::weights`](crate::Program::weights).
    pub list: Vec<Parameter<T>>,
}

impl<T: Real> Parameters<T> {
    /// Those of `weights`, with what `number` gives for each tensor.
    pub fn new(weights: &[Weight], mut numbers: impl FnMut(&Weight) -> Vec<T>) -> Self {
        let parameter = |weight: &Weight| Parameter::new(weight, numbers(weight));
        Self { list: weights.iter().map(parameter).collect() }
    }

    /// Reads those of `weights` from a file: what is packed is made numbers.
    pub fn read(weights: &[Weight], file: &File) -> Result<Self> {
        Self::read_but(weights, file, |_| false)
    }

    /// The same, but that matrices which are not f32 stay packed where `stays` says so of their number.
    pub fn read_but(weights: &[Weight], file: &File, stays: impl Fn(usize) -> bool) -> Result<Self> {
        let list = weights.iter().enumerate().map(|(number, weight)| {
            let tensor = file.tensor(&weight.name).ok_or_else(|| {
                let place = format!("tensor {}", weight.name);
                Error::new(ErrorKind::Missing, place, "the file does not hold it; convert the model again")
            })?;
            if (tensor.rows, tensor.columns) != (weight.rows, weight.columns) {
                let message = format!(
                    "the model needs {} × {}, the file has {} × {}",
                    weight.rows, weight.columns, tensor.rows, tensor.columns
                );
                return Err(Error::new(ErrorKind::Shape, format!("tensor {}", weight.name), message));
            }
            if weight.role == Role::Vector {
                let floats = tensor.floats().into_iter().map(|number| T::of(f64::from(number)));
                return Ok(Parameter::new(weight, floats.collect()));
            }
            let mut parameter = Parameter::new(weight, Vec::new());
            parameter.seen = Seen::Packed(Packed(tensor.clone()));
            if tensor.panel == PanelType::F32 || !stays(number) {
                parameter.numbers = parameter.part(0..weight.rows).into_owned();
                parameter.seen = Seen::Numbers;
            }
            Ok(parameter)
        });
        Ok(Self { list: list.collect::<Result<_>>()? })
    }

    /// The numbers that a tensor is computed with, which must not be packed.
    pub fn numbers(&self, weight: usize) -> &[T] {
        match &self.list[weight] {
            Parameter { seen: Seen::Rounded { numbers, .. }, .. } => numbers,
            Parameter { numbers, .. } => numbers,
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.list.iter().map(|parameter| parameter.rows * parameter.columns).sum()
    }
}

/// What the loss changes by when a number of a tensor does; `None` for tensors that stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients<T> {
    /// In the order of the parameters.
    pub list: Vec<Option<Vec<T>>>,
}

impl<T: Real> Gradients<T> {
    /// Zeros for those that `trains` says.
    pub fn zeros(parameters: &Parameters<T>, trains: impl Fn(&Parameter<T>) -> bool) -> Self {
        let zeros =
            |parameter: &Parameter<T>| trains(parameter).then(|| vec![T::ZERO; parameter.numbers.len()]);
        Self { list: parameters.list.iter().map(zeros).collect() }
    }

    /// Makes all zero.
    pub fn clear(&mut self) {
        self.list.iter_mut().flatten().for_each(|gradient| gradient.fill(T::ZERO));
    }

    /// Whether a tensor is trained.
    pub fn has(&self, weight: usize) -> bool {
        self.list.get(weight).is_some_and(Option::is_some)
    }

    /// That of a tensor, where it is trained.
    pub fn of(&mut self, weight: usize) -> Option<&mut [T]> {
        self.list.get_mut(weight)?.as_deref_mut()
    }
}

//! The numbers of a model that training changes.

use siskin::Result;
use siskin::file::File;
use siskin::graph::{Role, Weight};
use siskin::{Error, ErrorKind};
use siskin_kernels::panel::{self, ROWS};

use crate::real::Real;

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
    /// The numbers.
    pub numbers: Vec<T>,
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
        let parameter = |weight: &Weight| Parameter {
            name: weight.name.clone(),
            rows: weight.rows,
            columns: weight.columns,
            role: weight.role,
            numbers: numbers(weight),
        };
        Self { list: weights.iter().map(parameter).collect() }
    }

    /// Reads those of `weights` from a file: what is packed is made numbers.
    pub fn read(weights: &[Weight], file: &File) -> Result<Self> {
        let list = weights.iter().map(|weight| {
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
            let floats = match weight.role {
                Role::Vector => tensor.floats(),
                Role::Matrix => {
                    let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
                    let mut floats = vec![0.0; tensor.rows * tensor.columns];
                    for (row, out) in floats.chunks_mut(tensor.columns.max(1)).enumerate() {
                        let first = row / ROWS * bytes;
                        if let Some(panel) = tensor.data.get(first..first + bytes) {
                            panel::row_values(tensor.panel, panel, row % ROWS, tensor.columns, out);
                        }
                    }
                    floats
                }
            };
            Ok(Parameter {
                name: weight.name.clone(),
                rows: weight.rows,
                columns: weight.columns,
                role: weight.role,
                numbers: floats.into_iter().map(|number| T::of(f64::from(number))).collect(),
            })
        });
        Ok(Self { list: list.collect::<Result<_>>()? })
    }

    /// The numbers of a tensor.
    pub fn numbers(&self, weight: usize) -> &[T] {
        &self.list[weight].numbers
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.list.iter().map(|parameter| parameter.numbers.len()).sum()
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

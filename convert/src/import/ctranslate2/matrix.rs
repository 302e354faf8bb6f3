//! The values of a variable: floats, or integers with scales.

use super::{Container, DataType, Variable};
use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};
use siskin_kernels::quant::BlockType;
use std::ops::Range;

/// The scale of int16 weights without a stored scale.
const DEFAULT_INT16_SCALE: f32 = 1000.0;

/// The rows of a variable, in place. A vector is one row; a tensor of higher rank has one row for each index of all
/// dimensions but the last.
///
/// A quantized value is the integer divided by its row's scale. Like CTranslate2, this code computes it in f32 as the
/// integer times the reciprocal of the scale.
#[derive(Clone, Debug)]
pub struct VariableRows {
    /// The name of the variable.
    pub name: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// The dtype: a float type, or int8 or int16 with scales.
    pub data_type: DataType,
    /// The rows, concatenated, little-endian.
    pub data: Bytes,
    is_list: bool,
    scales: Scales,
}

#[derive(Clone, Debug)]
enum Scales {
    None,
    Whole(f32),
    /// Elements of a float type, one per row.
    Rows(BlockType, Bytes),
}

impl Container {
    /// Returns the values of the variable of this name or alias.
    ///
    /// Weights that other tools packed into integers (AWQ) give an `Unsupported` error.
    pub fn matrix(&self, name: &str) -> Result<VariableRows> {
        let missing = || Error::new(ErrorKind::Missing, name, "the file has no such variable");
        let index = self.find(name).ok_or_else(missing)?;
        let variable = self.variables.get(index).ok_or_else(missing)?;
        let within = |error: Error| error.within(&format!("model.bin variable {index} ({})", variable.name));
        matrix(self, variable).map_err(within)
    }
}

fn matrix(container: &Container, variable: &Variable) -> Result<VariableRows> {
    let companion = |suffix: &str| container.get(&format!("{}{suffix}", variable.name));
    if variable.data_type == DataType::Int32 || companion("_zero").is_some() {
        let message = "AWQ weights are not supported; convert the original model";
        return Err(Error::unsupported("type", message));
    }
    let (rows, columns) = match variable.dims.as_slice() {
        [] => (1, 1),
        &[length] => (1, usize::try_from(length).unwrap_or(0)),
        [first, rest @ ..] => {
            let columns = rest.iter().try_fold(1usize, |product, &size| product.checked_mul(size as usize));
            (usize::try_from(*first).unwrap_or(0), columns.unwrap_or(0))
        }
    };
    if rows.checked_mul(columns).and_then(|count| count.checked_mul(variable.data_type.size()))
        != Some(variable.data.len())
    {
        return Err(Error::corrupt("sizes", format!("{:?} are too large", variable.dims)));
    }
    let scales = match variable.data_type {
        DataType::Int8 => row_scales(companion("_scale"), rows)?,
        DataType::Int16 => Scales::Whole(match companion("_scale") {
            None => DEFAULT_INT16_SCALE,
            Some(scale) => whole_scale(scale)?,
        }),
        _ => Scales::None,
    };
    let is_list = variable.dims.len() < 2;
    let (name, data_type, data) = (variable.name.clone(), variable.data_type, variable.data.clone());
    Ok(VariableRows { name, rows, columns, data_type, data, is_list, scales })
}

fn is_scale(scale: f32) -> bool {
    scale.is_finite() && scale > 0.0 && scale.recip().is_finite()
}

fn whole_scale(variable: &Variable) -> Result<f32> {
    // Stored as a scalar, or as a vector of one element.
    let number = Variable { dims: Vec::new(), ..variable.clone() }.number();
    let scale = number.map(|number| number as f32).filter(|&scale| is_scale(scale));
    scale.ok_or_else(|| Error::corrupt("scale", "not one positive number"))
}

fn row_scales(variable: Option<&Variable>, rows: usize) -> Result<Scales> {
    let variable =
        variable.ok_or_else(|| Error::new(ErrorKind::Missing, "scale", "int8 weights have no scales"))?;
    let block = variable.data_type.block();
    let block = block.ok_or_else(|| Error::unsupported("scale", "scales must be floats"))?;
    let size = variable.data_type.size();
    if rows.checked_mul(size) != Some(variable.data.len()) {
        let count = variable.data.len() / size;
        return Err(Error::corrupt("scale", format!("{count} scales for {rows} rows")));
    }
    let scales = Scales::Rows(block, variable.data.clone());
    match (0..rows).find(|&row| !scales.of_row(row).is_some_and(is_scale)) {
        Some(row) => Err(Error::corrupt("scale", format!("row {row} has a scale that is not positive"))),
        None => Ok(scales),
    }
}

impl Scales {
    fn of_row(&self, row: usize) -> Option<f32> {
        match self {
            Self::None => None,
            Self::Whole(scale) => Some(*scale),
            Self::Rows(block, bytes) => {
                let size = block.row_bytes(1)?;
                let mut scale = [0.0];
                let element = bytes.get(row.checked_mul(size)?..)?.get(..size)?;
                block.dequantize_row(element, &mut scale).then_some(scale[0])
            }
        }
    }
}

impl VariableRows {
    /// Returns the scale that the values of a row were multiplied by, or `None` for floats or if the row is out of
    /// range.
    pub fn scale(&self, row: usize) -> Option<f32> {
        self.scales.of_row(row).filter(|_| row < self.rows)
    }

    /// Returns the stored bytes of a row.
    pub fn row_bytes(&self, row: usize) -> Option<&[u8]> {
        let length = self.columns.checked_mul(self.data_type.size())?;
        self.data.get(row.checked_mul(length)?..)?.get(..length).filter(|_| row < self.rows)
    }

    /// Writes the `columns` values of a row to `out`.
    pub fn row_into(&self, row: usize, out: &mut [f32]) -> Result<()> {
        let bytes = self.row_bytes(row).filter(|_| out.len() == self.columns).ok_or_else(|| {
            let message = format!(
                "cannot read row {row} with {} values of {} × {}",
                out.len(),
                self.rows,
                self.columns
            );
            Error::argument(&self.name, message)
        })?;
        let factor = self.scale(row).map_or(1.0, f32::recip);
        match self.data_type {
            DataType::Int8 => {
                for (value, &byte) in out.iter_mut().zip(bytes) {
                    *value = f32::from(i8::from_le_bytes([byte])) * factor;
                }
            }
            DataType::Int16 => {
                for (value, &pair) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from(i16::from_le_bytes(pair)) * factor;
                }
            }
            _ => {
                let block = self.data_type.block();
                if !block.is_some_and(|block| block.dequantize_row(bytes, out)) {
                    return Err(Error::unsupported(&self.name, "unsupported type"));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of rows, or of elements if it is a vector: the unit of slices.
    pub fn length(&self) -> usize {
        if self.is_list { self.columns } else { self.rows }
    }

    /// Returns a range of rows, or of elements if it is a vector, or `None` if the range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let unit = if self.is_list {
            self.data_type.size()
        } else {
            self.columns.checked_mul(self.data_type.size())?
        };
        if range.start > range.end || range.end > self.length() {
            return None;
        }
        let data = self.data.slice(range.start.checked_mul(unit)?..range.end.checked_mul(unit)?)?;
        let scales = match &self.scales {
            Scales::Rows(block, bytes) if !self.is_list => {
                let size = block.row_bytes(1)?;
                let range = range.start.checked_mul(size)?..range.end.checked_mul(size)?;
                Scales::Rows(*block, bytes.slice(range)?)
            }
            scales => scales.clone(),
        };
        let (rows, columns) = if self.is_list { (1, range.len()) } else { (range.len(), self.columns) };
        Some(Self { rows, columns, data, scales, ..self.clone() })
    }
}

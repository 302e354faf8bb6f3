//! ONNX models whose inputs are not tokens: tensors in and out, by name.

use super::{Table, integers};
use siskin::external_model::{NamedTensor, TensorElements};
use siskin::file::Bytes;
use siskin::{Error, Model, Result};
use siskin_convert::import::safetensors::{self, SafetensorsTensor};
use std::path::Path;

/// Writes all outputs, from the inputs in a safetensors file.
pub(super) fn tables(model: &Model, input: &Path) -> Result<Vec<Table>> {
    let place = input.display().to_string();
    let bytes = std::fs::read(input).map_err(|error| Error::io(&place, &error))?;
    let tensors = safetensors::parse(Bytes::new(bytes)).map_err(|error| error.within(&place))?;
    let inputs = tensors.iter().map(|(name, tensor)| named(name, tensor));
    let inputs = inputs.collect::<Result<Vec<_>>>().map_err(|error| error.within(&place))?;
    let table = |output: NamedTensor| {
        let values = match output.numbers {
            TensorElements::Floats(values) => values,
            TensorElements::Integers(values) => values.into_iter().map(|value| value as f32).collect(),
        };
        Table { name: output.name.into(), shape: output.shape, values }
    };
    Ok(model.run(&inputs)?.into_iter().map(table).collect())
}

fn named(name: &str, tensor: &SafetensorsTensor) -> Result<NamedTensor> {
    let numbers = match tensor.dtype {
        "F32" => TensorElements::Floats(
            tensor.data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        ),
        _ => TensorElements::Integers(integers(name, tensor)?),
    };
    let shape = tensor.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    Ok(NamedTensor { name: name.to_owned(), shape, numbers })
}

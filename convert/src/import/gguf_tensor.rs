//! The tensors of a GGUF file, as those of a source and as numbers.

use super::SourceTensor;
use super::gguf::{TensorInfo, type_name};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::TensorTransform;
use siskin_kernels::quant::BlockType;

/// Returns a tensor of a file as a source.
pub(super) fn source_tensor(info: &TensorInfo, take: TensorTransform) -> Result<SourceTensor> {
    let location = || format!("tensors.{}", info.name);
    let block = BlockType::from_gguf(info.ggml_type).ok_or_else(|| {
        let name = type_name(info.ggml_type).unwrap_or("unknown");
        Error::unsupported(location(), format!("weights of type {name} are not supported"))
    })?;
    let size = |size: u64| usize::try_from(size).ok();
    let columns = info.dims.first().copied().map_or(Some(1), size);
    let rows = info.dims.iter().skip(1).try_fold(1usize, |product, &dim| product.checked_mul(size(dim)?));
    let (Some(rows), Some(columns)) = (rows, columns) else {
        return Err(Error::corrupt(location(), "the shape is too large"));
    };
    Ok(SourceTensor { name: info.name.clone(), block, rows, columns, data: info.data.clone(), take })
}

/// Returns the values of a tensor in row order, all finite. Quantized types can expand few bytes to many values: the
/// caller bounds their number.
pub(super) fn floats(info: &TensorInfo) -> Result<Vec<f32>> {
    let tensor = source_tensor(info, TensorTransform::Whole)?;
    let location = || format!("tensors.{}", info.name);
    let wrong = || Error::corrupt(location(), "wrong length");
    let row = tensor.block.row_bytes(tensor.columns).ok_or_else(wrong)?;
    // The data bounds the number of values: rows and columns are untrusted fields of the file.
    if row.checked_mul(tensor.rows) != Some(tensor.data.len()) || tensor.columns == 0 {
        return Err(wrong());
    }
    let count = tensor.rows.checked_mul(tensor.columns).ok_or_else(wrong)?;
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        Error::new(ErrorKind::Memory, location(), format!("cannot allocate memory for {count} values"))
    })?;
    values.resize(count, 0.0);
    let rows = values.chunks_mut(tensor.columns).zip(tensor.data.chunks(row));
    for (values, data) in rows {
        if !tensor.block.dequantize_row(data, values) {
            return Err(wrong());
        }
    }
    match values.iter().all(|value: &f32| value.is_finite()) {
        true => Ok(values),
        false => Err(Error::corrupt(location(), "contains NaN or infinity")),
    }
}

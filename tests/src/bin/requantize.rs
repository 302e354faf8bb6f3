//! Quantizes and dequantizes the matrices of a safetensors file, and reports the error.
//!
//! `requantize IN OUT TYPE [OTHER]`: replaces every f32 matrix of a linear layer by its values after a round trip
//! through TYPE; embeddings and vectors are kept. OTHER is used for matrices whose columns are not whole blocks of
//! TYPE. Prints one JSON object: the number of matrices, the number stored as OTHER, the number of weights, the error
//! of all weights and their size (root sums of squares), and the bits per weight including scales and padding, as GGUF
//! blocks (`null` for types that GGUF lacks) and as panels of a `.siskin` file.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use serde_json::{Map, Value, json};
use siskin::file::Bytes;
use siskin::{Error, ErrorKind, Result};
use siskin_convert::WeightTarget;
use siskin_convert::import::safetensors::{self, SafetensorsTensor};
use siskin_kernels::hadamard;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match requantize(&arguments) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn requantize(arguments: &[String]) -> Result<Value> {
    let (from, to, wanted) = match arguments {
        [from, to, wanted @ ..] if (1..=2).contains(&wanted.len()) => (from, to, wanted),
        _ => return Err(Error::argument("", "usage: requantize IN OUT TYPE [OTHER]")),
    };
    let targets = wanted.iter().map(|name| target(name)).collect::<Result<Vec<_>>>()?;
    let bytes = std::fs::read(from).map_err(|error| Error::io(from, &error))?;
    let mut tensors: Vec<_> = safetensors::parse(Bytes::new(bytes))?.into_iter().collect();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut cost = Cost::default();
    let mut written = Vec::new();
    for (name, tensor) in &tensors {
        let data = match matrix(name, tensor) {
            Some((rows, columns)) => {
                cost.matrix(&targets, (rows, columns), &tensor.data).map_err(|error| error.within(name))?
            }
            None => tensor.data.to_vec(),
        };
        written.push((name, tensor, data));
    }
    write(to, &written)?;
    Ok(cost.report(targets[0]))
}

fn target(name: &str) -> Result<WeightTarget> {
    WeightTarget::from_name(name)
        .ok_or_else(|| Error::argument("TYPE", format!("`{name}` cannot be written")))
}

/// Returns rows and columns of the weights of a linear layer.
fn matrix(name: &str, tensor: &SafetensorsTensor) -> Option<(usize, usize)> {
    let [rows, columns] = tensor.shape[..] else { return None };
    let linear = tensor.dtype == "F32" && name.ends_with("weight") && !name.contains("embedding");
    linear.then_some((usize::try_from(rows).ok()?, usize::try_from(columns).ok()?))
}

/// The cost of storing matrices in a type.
#[derive(Default)]
struct Cost {
    matrices: usize,
    others: usize,
    weights: usize,
    error: f64,
    signal: f64,
    block_bytes: usize,
    panel_bytes: usize,
}

impl Cost {
    /// Returns the bytes of a matrix after a round trip through the first type that fits its columns.
    fn matrix(&mut self, targets: &[WeightTarget], shape: (usize, usize), data: &[u8]) -> Result<Vec<u8>> {
        let (rows, columns) = shape;
        let fits = |target: &&WeightTarget| target.row_bytes(columns).is_some();
        let broken = || Error::new(ErrorKind::Shape, "", format!("{columns} columns fit no given type"));
        let target = *targets.iter().find(fits).ok_or_else(broken)?;
        let row_bytes = target.row_bytes(columns).ok_or_else(broken)?;
        self.matrices += 1;
        self.others += usize::from(target != targets[0]);
        self.weights += rows * columns;
        self.block_bytes += rows * row_bytes;
        self.panel_bytes += target.panel().tensor_bytes(rows, columns).ok_or_else(broken)?;
        let mut stored = Vec::with_capacity(data.len());
        for row in data.chunks_exact(4 * columns) {
            let row: Vec<f32> = row.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            let again = through(target, &row, row_bytes).ok_or_else(broken)?;
            for (&x, &y) in row.iter().zip(&again) {
                self.error += (f64::from(x) - f64::from(y)).powi(2);
                self.signal += f64::from(x).powi(2);
            }
            stored.extend(again.iter().flat_map(|x| x.to_le_bytes()));
        }
        Ok(stored)
    }

    fn report(&self, target: WeightTarget) -> Value {
        let bits = |bytes: usize| 8.0 * bytes as f64 / self.weights as f64;
        let blocks = match target {
            WeightTarget::Block(_) => json!(bits(self.block_bytes)),
            WeightTarget::Row(_) => Value::Null,
        };
        json!({
            "matrices": self.matrices,
            "others": self.others,
            "weights": self.weights,
            "relative_error": (self.error / self.signal).sqrt(),
            "block_bits": blocks,
            "panel_bits": bits(self.panel_bytes),
        })
    }
}

/// Encodes and decodes a row.
fn through(target: WeightTarget, row: &[f32], row_bytes: usize) -> Option<Vec<f32>> {
    let mut values = row.to_vec();
    target.prepare(&mut values);
    let mut encoded = vec![0; row_bytes];
    let mut again = vec![0.0; values.len()];
    if !(target.encode(&values, None, &mut encoded) && target.decode(&encoded, &mut again)) {
        return None;
    }
    if let WeightTarget::Row(_) = target {
        hadamard::rotate(&mut again);
        again.truncate(row.len());
    }
    Some(again)
}

fn write(path: &str, tensors: &[(&String, &SafetensorsTensor, Vec<u8>)]) -> Result<()> {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, tensor, data) in tensors {
        let offsets = [end, end + data.len()];
        end += data.len();
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets});
        header.insert((*name).clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.bytes());
    tensors.iter().for_each(|(_, _, data)| out.extend(data));
    std::fs::write(path, out).map_err(|error| Error::io(path, &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Values that are exact multiples of the scale survive the round trip, whatever the rotation.
    #[test]
    fn exact_rows_come_back() {
        let steps: Vec<f32> = (0..64).map(|i| (i * 7 % 31) as f32 - 15.0).collect();
        // A row whose rotation is one number and zeros.
        let mut corner = vec![0.0; 64];
        corner[5] = 127.0;
        hadamard::rotate(&mut corner);
        let target = target("w8r").unwrap();
        let again = through(target, &corner, target.row_bytes(64).unwrap()).unwrap();
        let far = corner.iter().zip(&again).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(far < 1e-4, "{far}");
        let again = through(target, &steps[..40], target.row_bytes(40).unwrap()).unwrap();
        assert_eq!(again.len(), 40);
        let far = steps.iter().zip(&again).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(far < 0.5 && far > 0.0, "{far}");
    }

    #[test]
    fn bits_count_scales() {
        let data: Vec<u8> = (0..16 * 64).flat_map(|i| ((i % 13) as f32).to_le_bytes()).collect();
        let bits = |names: &[&str]| {
            let targets: Vec<_> = names.iter().map(|name| target(name).unwrap()).collect();
            let mut cost = Cost::default();
            cost.matrix(&targets, (16, 64), &data).unwrap();
            (cost.report(targets[0]), cost.others)
        };
        // 18 and 34 bytes for 32 weights, as in the ggml documentation.
        assert_eq!(bits(&["q4_0"]).0["block_bits"], 4.5);
        assert_eq!(bits(&["q8_0"]).0["block_bits"], 8.5);
        // 64 bytes and a 4-byte scale per row.
        assert_eq!(bits(&["w8r"]).0["panel_bits"], 8.5);
        assert_eq!(bits(&["q4_k", "q5_0"]).1, 1);
        assert!(Cost::default().matrix(&[target("q4_k").unwrap()], (16, 64), &data).is_err());
    }
}

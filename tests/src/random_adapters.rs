//! Adapters with random values.

use siskin::file::{File, StorageRole, Tensor};
use siskin::{Adapter, LoraMatrix, Model, ModelOptions, NamedAdapter};

/// Values between -0.5 and 0.5.
fn values(seed: &mut u64, count: usize) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// Returns an adapter of the matrices that `changes`, as far as they can have one.
pub fn adapter(file: &File, rank: usize, is_dora: bool, changes: impl Fn(&str) -> bool) -> Adapter {
    let mut seed = rank as u64;
    let parts =
        file.tensors().iter().filter(|tensor| tensor.role == StorageRole::Matrix && changes(&tensor.name));
    let part = |tensor: &Tensor| LoraMatrix {
        tensor: tensor.name.clone(),
        rows: tensor.rows,
        columns: tensor.columns,
        rank,
        scale: 2.0,
        a: values(&mut seed, rank * tensor.columns),
        b: values(&mut seed, rank * tensor.rows),
        magnitudes: if is_dora { values(&mut seed, tensor.rows) } else { Vec::new() },
    };
    let architecture = file.metadata().architecture.clone();
    let whole = Adapter { architecture, base: None, parts: parts.map(part).collect() };
    let takes = |part: &LoraMatrix| {
        let single = Adapter { parts: vec![part.clone()], ..whole.clone() };
        Model::with_adapter(file.clone(), &single, &ModelOptions::default()).is_ok()
    };
    Adapter { parts: whole.parts.iter().filter(|part| takes(part)).cloned().collect(), ..whole.clone() }
}

/// Returns adapters of different ranks and matrices: LoRA of everything, of few matrices, and DoRA.
///
/// # Panics
/// If the model has too few matrices.
pub fn adapters(file: &File) -> Vec<NamedAdapter> {
    let all = [
        ("everything", adapter(file, 5, false, |_| true)),
        ("some", adapter(file, 70, false, |name| name.contains("_q") || name.contains("down"))),
        ("dora", adapter(file, 3, true, |name| name.contains("attn"))),
    ];
    all.into_iter()
        .map(|(name, adapter)| {
            assert!(adapter.parts.len() > 1, "{name}: {}", adapter.parts.len());
            NamedAdapter { name: name.to_owned(), adapter }
        })
        .collect()
}

//! The CUDA backend, with the bits of the CPU: committed hashes of golden models, batches and chunks of every kind, forks,
//! and sequences that move between devices.

use siskin::{CpuFeatures, DeviceKind, Model, ModelOptions};
use siskin_convert::{Recipe, WeightTarget};
use siskin_cuda_backend::CudaBackend;
use siskin_tests::golden::{self, hash, load_as, score};
use siskin_tests::paths;

use super::common::device;

/// Decoders whose graphs have kernels for all operations.
const MODELS: [&str; 3] = ["llama", "olmoe", "gpt-oss"];
const TYPES: [&str; 6] = ["source", "Q4_0", "Q5_1", "Q8_0", "W4i", "W8r"];

/// Returns options with a backend on the test device; `None` if there is none.
fn options() -> Option<ModelOptions> {
    // A backend lives as long as the process, like a GPU.
    let backend: &'static CudaBackend = Box::leak(Box::new(CudaBackend::new(device()?)));
    Some(ModelOptions { backend: Some(backend), ..ModelOptions::default() })
}

fn recipe(form: &str) -> Option<Recipe> {
    WeightTarget::from_name(form).map(|matrices| Recipe { matrices, tables: None, always: false, mix: None })
}

#[test]
fn logits_have_the_committed_bits() {
    let Some(options) = options() else { return };
    let committed = std::fs::read_to_string(paths::data("golden").join("hashes.txt")).unwrap();
    for name in MODELS {
        for form in TYPES {
            let golden = load_as(name, recipe(form));
            let model = Model::from_file(golden.file.clone(), &options).unwrap();
            assert_eq!(model.device(), "cuda");
            for batch in [64, 7, 1] {
                let line = format!("{name} {form} {:016x}", hash(&score(&model, &golden.ids[0], batch)));
                if !committed.lines().any(|known| known == line) {
                    let cpu = golden::model(&golden.file, DeviceKind::Cpu, 1, CpuFeatures::NONE);
                    let (own, wanted) =
                        (score(&model, &golden.ids[0], batch), score(&cpu, &golden.ids[0], batch));
                    let first = own.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
                    panic!(
                        "{line} in batches of {batch}: first difference at {first:?} of {}: {:?} {:?}",
                        own.len(),
                        &own[..8],
                        &wanted[..8]
                    );
                }
            }
        }
    }
}

//! The CUDA backend, with the bits of the CPU: committed hashes of golden models, and all golden models beside the CPU
//! backend.

use siskin::{CpuFeatures, DeviceKind, Model, ModelOptions};
use siskin_convert::{Recipe, WeightTarget};
use siskin_cuda_backend::CudaBackend;
use siskin_tests::extent::cases;
use siskin_tests::golden::{self, hash, load_as, score};
use siskin_tests::{paths, texts};

use super::common::device;

/// Models of `golden::NAMES` that run by default: one for each operation that only few models have.
const REPRESENTATIVE: [&str; 3] = ["granite-moe-shared", "lfm2", "qwen3-5"];
/// The same of `texts::NAMES`.
const REPRESENTATIVE_TEXTS: [&str; 3] = ["bert", "whisper", "mobilebert"];
const BATCHES: [usize; 3] = [64, 7, 1];

/// Returns options with a backend on the test device; `None` if there is none.
fn options() -> Option<ModelOptions> {
    // A backend lives as long as the process, like a GPU.
    let backend: &'static CudaBackend = Box::leak(Box::new(CudaBackend::new(device()?)));
    Some(ModelOptions { backend: Some(backend), ..ModelOptions::default() })
}

fn recipe(form: &str) -> Option<Recipe> {
    WeightTarget::from_name(form).map(|matrices| Recipe { matrices, tables: None, always: false, mix: None })
}

/// A golden model, and which of its values are compared.
enum Golden {
    Decoder(golden::GoldenModel),
    Texts(texts::GoldenTexts),
}

impl Golden {
    fn load(name: &str, form: &str, is_text: bool) -> Self {
        match is_text {
            true => Self::Texts(texts::load(name, recipe(form))),
            false => Self::Decoder(load_as(name, recipe(form))),
        }
    }

    fn on_device(&self, options: &ModelOptions) -> Model {
        let model = Model::from_file(self.file().clone(), options).unwrap();
        assert_eq!(model.device(), "cuda");
        model
    }

    fn on_cpu(&self) -> Model {
        golden::model(self.file(), DeviceKind::Cpu, 1, CpuFeatures::NONE)
    }

    fn file(&self) -> &siskin::file::File {
        match self {
            Self::Decoder(golden) => &golden.file,
            Self::Texts(golden) => &golden.file,
        }
    }

    /// Returns what `bit_identity.rs` hashes.
    fn values(&self, model: &Model, batch: usize) -> Vec<f32> {
        match self {
            Self::Decoder(golden) => score(model, &golden.ids[0], batch),
            Self::Texts(golden) => match golden.written.first() {
                Some(written) => texts::score(model, &golden.texts[0], written, batch),
                None => texts::read(model, &golden.texts, batch).concat(),
            },
        }
    }
}

/// Panics at the first value that is not that of the CPU.
fn assert_same(what: &str, own: &[f32], wanted: &[f32]) {
    assert_eq!(own.len(), wanted.len(), "{what}");
    let first = own.iter().zip(wanted).position(|(a, b)| a.to_bits() != b.to_bits());
    assert!(first.is_none(), "{what}: value {first:?} of {}: {:?} {:?}", own.len(), &own[..8], &wanted[..8]);
}

#[test]
fn results_have_the_committed_bits() {
    let Some(options) = options() else { return };
    let committed = std::fs::read_to_string(paths::data("golden").join("hashes.txt")).unwrap();
    let lines: Vec<(usize, &str)> = committed.lines().enumerate().collect();
    // By default each model once, and each type with some of them: a model has six lines, one for each type.
    let lines = cases("models and types", lines, |(number, _)| number / 6 % 6 == number % 6);
    for (number, line) in lines {
        let [name, form, wanted] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let golden = Golden::load(name, form, !golden::NAMES.contains(&name));
        let model = golden.on_device(&options);
        let batches = cases("batch sizes", BATCHES, |batch| *batch == BATCHES[number / 6 % 3]);
        for batch in batches {
            let own = golden.values(&model, batch);
            if wanted != format!("{:016x}", hash(&own)) {
                let what = format!("{name} {form} in batches of {batch}");
                assert_same(&what, &own, &golden.values(&golden.on_cpu(), batch));
                panic!("{what}: the CPU does not have the committed bits");
            }
        }
    }
}

#[test]
fn all_golden_models_have_the_bits_of_the_cpu() {
    let Some(options) = options() else { return };
    let decoders = golden::NAMES.iter().map(|name| (*name, false));
    let all = decoders.chain(texts::NAMES.iter().map(|name| (*name, true)));
    let chosen = cases("golden models", all, |(name, is_text)| {
        if *is_text { REPRESENTATIVE_TEXTS.contains(name) } else { REPRESENTATIVE.contains(name) }
    });
    let mut failures = Vec::new();
    for (name, is_text) in chosen {
        let golden = Golden::load(name, "source", is_text);
        let run = || {
            let own = golden.values(&golden.on_device(&options), 7);
            assert_same(name, &own, &golden.values(&golden.on_cpu(), 7));
        };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
            failures.push(name);
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

//! The CUDA backend, with the bits of the CPU: committed hashes of golden models, all golden models beside the CPU backend,
//! forks, windows, types of the KV cache, several sequences in a batch, and sessions that move between devices.

use siskin::{
    BatchEntry, CacheType, CpuFeatures, DeviceKind, Model, ModelOptions, OutputRows, SessionOptions,
    StreamingWindow,
};
use siskin_convert::{Recipe, WeightTarget};
use siskin_cuda_backend::CudaBackend;
use siskin_tests::extent::cases;
use siskin_tests::golden::{self, hash, load_as, score};
use siskin_tests::{paths, texts};

use super::common::device;

/// Models of `golden::NAMES` that run by default: those with operations that no model of the committed hashes has.
const REPRESENTATIVE: [&str; 1] = ["lfm2"];
/// The same of `texts::NAMES`.
const REPRESENTATIVE_TEXTS: [&str; 1] = ["bert"];
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

/// Returns the logits of a session that is forked and, without recurrent states, truncated.
fn branches(model: &Model, options: &SessionOptions, ids: &[u32], can_truncate: bool) -> Vec<f32> {
    let mut session = model.session(options.clone()).unwrap();
    session.prefill(&ids[..10]).unwrap();
    let mut fork = session.fork().unwrap();
    let mut all = Vec::new();
    for (session, tokens) in [(&mut session, &ids[10..]), (&mut fork, &ids[3..8])] {
        session.prefill(tokens).unwrap();
        all.extend_from_slice(session.logits());
    }
    if can_truncate {
        session.truncate(6).unwrap();
        session.prefill(&ids[2..9]).unwrap();
        all.extend_from_slice(session.logits());
    }
    all
}

#[test]
fn forks_windows_and_cache_types_have_the_bits_of_the_cpu() {
    let Some(on_device) = options() else { return };
    let types = [CacheType::F32, CacheType::F16, CacheType::Int8, CacheType::Int14];
    let windows = [None, Some(StreamingWindow { window: 6, sinks: 2 })];
    let each = ["llama", "gemma3", "gpt-oss", "bloom", "qwen3-next"].into_iter();
    let each = each.flat_map(|name| types.map(|cache| (name, cache)));
    let each: Vec<_> = each.flat_map(|(name, cache)| windows.map(|window| (name, cache, window))).collect();
    let chosen = cases("models and cache types", each, |(name, cache, window)| match *name {
        "llama" => window.is_none() == matches!(cache, CacheType::Int8 | CacheType::Int14),
        "qwen3-next" => *cache == CacheType::F16 && window.is_none(),
        _ => false,
    });
    for (name, cache, window) in chosen {
        let golden = Golden::load(name, "source", false);
        let Golden::Decoder(decoder) = &golden else { unreachable!() };
        let options =
            SessionOptions { batch: 7, cache: Some(cache), window, forks: 1, ..SessionOptions::default() };
        let run = |model: &Model| {
            branches(model, &options, &decoder.ids[0], name != "qwen3-next" && window.is_none())
        };
        let what = format!("{name} {cache:?} {window:?}");
        assert_same(&what, &run(&golden.on_device(&on_device)), &run(&golden.on_cpu()));
    }
}

#[test]
fn sessions_move_between_devices() {
    let Some(on_device) = options() else { return };
    for (name, cache) in
        [("llama", CacheType::Int8), ("gemma3", CacheType::F16), ("qwen3-next", CacheType::F32)]
    {
        let golden = Golden::load(name, "source", false);
        let Golden::Decoder(decoder) = &golden else { unreachable!() };
        let (models, ids) = ([golden.on_cpu(), golden.on_device(&on_device)], &decoder.ids[0]);
        let open = |model: &Model| {
            let options = SessionOptions { cache: Some(cache), ..SessionOptions::default() };
            model.session(options).unwrap()
        };
        let saved = models.each_ref().map(|model| {
            let mut session = open(model);
            session.prefill(&ids[..10]).unwrap();
            session.save().unwrap()
        });
        assert!(saved[0] == saved[1], "{name}: what is saved");
        let [there, back] = [(0, 1), (1, 0)].map(|(from, to): (usize, usize)| {
            let mut session = open(&models[to]);
            session.restore(&saved[from]).unwrap();
            session.prefill(&ids[10..]).unwrap();
            session.logits().to_vec()
        });
        assert_same(name, &there, &back);
    }
}

#[test]
fn sequences_in_one_batch_have_the_bits_of_the_cpu() {
    let Some(on_device) = options() else { return };
    for name in cases("models", ["llama", "olmoe", "qwen3-next", "gemma3"], |name| *name != "gemma3") {
        let golden = Golden::load(name, "source", false);
        let Golden::Decoder(decoder) = &golden else { unreachable!() };
        let (a, b) = (&decoder.ids[0], &decoder.ids[1][..9]);
        let options =
            SessionOptions { batch: 64, context: a.len().max(b.len()), ..SessionOptions::default() };
        let run = |model: &Model| {
            let mut context = model.context(&options, 2, 64).unwrap();
            let (first, second) = (context.create(), context.create());
            let entry = |sequence, tokens| BatchEntry::new(sequence, tokens, OutputRows::All);
            let entries = [entry(first, &a[..5]), entry(second, b), entry(first, &a[5..])];
            context.forward(&entries).unwrap();
            (0..a.len() + b.len()).flat_map(|row| context.output(row).to_vec()).collect::<Vec<_>>()
        };
        assert_same(name, &run(&golden.on_device(&on_device)), &run(&golden.on_cpu()));
    }
}

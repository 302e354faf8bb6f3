//! Adapters that requests choose: each has the bits of a model that was opened with it, whatever shares its batch.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::serving;
use siskin::encoder::{EmbedOptions, EncoderInput, EncoderOptions};
use siskin::file::File;
use siskin::serving::{Admission, SchedulingOptions};
use siskin::{
    AdapterSlot, BatchEntry, DeviceKind, ErrorKind, KvBudget, Model, ModelOptions, NamedAdapter, OutputRows,
    SessionOptions,
};
use siskin_tests::extent::cases;
use siskin_tests::random_adapters::adapters;
use siskin_tests::{golden, texts};

fn options(device: DeviceKind, threads: usize) -> ModelOptions {
    ModelOptions { threads, device, ..ModelOptions::default() }
}

/// Returns a model that was opened with each adapter alone, the first one with none.
pub(crate) fn single(file: &File, adapters: &[NamedAdapter]) -> Vec<Model> {
    let options = options(DeviceKind::Cpu, 1);
    let plain = Model::from_file(file.clone(), &options).unwrap();
    let adapted =
        adapters.iter().map(|named| Model::with_adapter(file.clone(), &named.adapter, &options).unwrap());
    std::iter::once(plain).chain(adapted).collect()
}

const MODELS: [(&str, Option<&str>); 6] = [
    ("llama", Some("w4i")),
    ("qwen2", Some("q8_0")),
    ("gemma2", None),
    ("gpt2", None),
    ("qwen3-next", None),
    ("llama", Some("q4_1")),
];

#[test]
fn rows_of_a_batch_have_the_bits_of_their_adapters() {
    for (name, recipe) in cases("models and types", MODELS, |case| *case != MODELS[5]) {
        let golden = golden::load_as(name, recipe.map(|recipe| recipe.parse().unwrap()));
        let adapters = adapters(&golden.file);
        let ids = &golden.ids[0];
        let alone: Vec<Vec<f32>> =
            single(&golden.file, &adapters).iter().map(|model| golden::score(model, ids, 64)).collect();
        assert!(alone[1..].iter().all(|logits| *logits != alone[0]), "{name}: adapters change something");
        for (device, threads) in [(DeviceKind::Cpu, 1), (DeviceKind::Cpu, 3), (DeviceKind::Reference, 1)] {
            let options = options(device, threads);
            let model = Model::with_adapters(golden.file.clone(), &adapters, &options).unwrap();
            let rows = 7 * ids.len();
            let session = SessionOptions { context: ids.len(), batch: rows, ..SessionOptions::default() };
            let mut context = model.context(&session, 7, rows).unwrap();
            // Neighbors with the same adapter and with others.
            let slots = [0, 2, 3, 3, 1, 0, 2];
            let sequences = slots.map(|_| context.create());
            for range in [0..1, 1..ids.len()] {
                let entry = |(slot, sequence): (&u16, &usize)| BatchEntry {
                    adapter: AdapterSlot(*slot),
                    ..BatchEntry::new(*sequence, &ids[range.clone()], OutputRows::All)
                };
                let entries: Vec<_> = slots.iter().zip(&sequences).map(entry).collect();
                context.forward(&entries).unwrap();
                let columns = model.config().vocabulary;
                for (row, slot) in slots.iter().flat_map(|slot| range.clone().map(move |_| slot)).enumerate()
                {
                    let position = range.start + row % range.len();
                    let want = &alone[usize::from(*slot)][position * columns..][..columns];
                    assert!(context.output(row) == want, "{name} {recipe:?} {device:?}, adapter {slot}");
                }
            }
        }
    }
}

#[test]
fn requests_with_adapters_have_the_tokens_that_they_have_alone() {
    for (name, recipe) in cases("models and types", MODELS, |case| *case == MODELS[0] || *case == MODELS[4]) {
        let file = golden::load_as(name, recipe.map(|recipe| recipe.parse().unwrap())).file;
        let adapters = adapters(&file);
        let models = single(&file, &adapters);
        let model = Model::with_adapters(file, &adapters, &options(DeviceKind::Cpu, 2)).unwrap();
        let scheduling = SchedulingOptions {
            admission: Admission::Overcommit,
            max_running: 8,
            ..SchedulingOptions::default()
        };
        let mut options = serving::options(&model, scheduling, 32);
        // Memory for about three of eight sequences.
        let sized = SessionOptions { forks: 2, ..options.session.clone() };
        options.kv_budget = Some(KvBudget { bytes: model.memory(&sized).unwrap().cache });
        serving::compare_with(name, &model, &options, (3, 60), &|request| {
            let names = adapters.iter().map(|named| Some(&named.name));
            let slot = std::iter::once(None).chain(names).position(|name| name == request.adapter.as_ref());
            serving::alone(&models[slot.unwrap()], request)
        });
    }
}

#[test]
fn texts_of_a_batch_have_the_bits_of_their_adapters() {
    for name in ["bert", "roberta"] {
        let golden = texts::load(name, None);
        let adapters = adapters(&golden.file);
        let models = single(&golden.file, &adapters);
        let model =
            Model::with_adapters(golden.file.clone(), &adapters, &options(DeviceKind::Cpu, 3)).unwrap();
        let slots: Vec<u16> = (0..4).chain(0..4).chain([3, 3, 0]).collect();
        let inputs: Vec<EncoderInput> = (slots.iter().enumerate())
            .map(|(index, slot)| EncoderInput {
                adapter: AdapterSlot(*slot),
                ..golden.texts[index % golden.texts.len()].clone()
            })
            .collect();
        let got = texts::read(&model, &inputs, 512);
        for ((input, got), slot) in inputs.iter().zip(got).zip(slots) {
            let input = EncoderInput { adapter: AdapterSlot::MODEL, ..input.clone() };
            let want = texts::read(&models[usize::from(slot)], &[input], 512);
            assert!(want[0] == got, "{name}, adapter {slot}");
        }
    }
}

#[test]
fn embeddings_are_those_of_the_adapter() {
    let file = texts::with_words("golden-texts/bert");
    let adapters = adapters(&file);
    let models = single(&file, &adapters);
    let model = Model::with_adapters(file, &adapters, &options(DeviceKind::Cpu, 1)).unwrap();
    let embed = |model: &Model, adapter: AdapterSlot| {
        let options = EmbedOptions { adapter, ..EmbedOptions::of(model).unwrap() };
        let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
        let tokens = [EncoderInput::from(vec![2, 12, 3])];
        [encoder.embed(&["w7 w8", "w9"], &options), encoder.embed_tokens(&tokens, &options)]
            .map(Result::unwrap)
    };
    for (slot, alone) in (0..).map(AdapterSlot).zip(&models) {
        assert_eq!(embed(&model, slot), embed(alone, AdapterSlot::MODEL), "{slot:?}");
    }
}

#[test]
fn saved_sessions_know_their_adapter() {
    let file = golden::load("llama").file;
    let adapters = adapters(&file);
    let models = single(&file, &adapters);
    let model = Model::with_adapters(file, &adapters, &options(DeviceKind::Cpu, 1)).unwrap();
    let session = |adapter: Option<&str>| {
        let adapter = adapter.map(str::to_owned);
        model.session(SessionOptions { adapter, ..SessionOptions::default() }).unwrap()
    };
    let mut some = session(Some("some"));
    some.prefill(&[5, 6, 7]).unwrap();
    let saved = some.save().unwrap();
    // The same session of a model that was opened with this adapter alone.
    let mut alone = models[2].session(SessionOptions::default()).unwrap();
    alone.restore(&saved).unwrap();
    alone.prefill(&[8]).unwrap();
    some.prefill(&[8]).unwrap();
    assert_eq!(some.logits(), alone.logits());
    for mut other in [session(None), session(Some("dora")), models[0].session(Default::default()).unwrap()] {
        assert_eq!(other.restore(&saved).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn unknown_and_repeated_adapters_are_rejected() {
    let file = golden::load("llama").file;
    let mut adapters = adapters(&file);
    let open = |adapters: &[NamedAdapter]| {
        Model::with_adapters(file.clone(), adapters, &options(DeviceKind::Cpu, 1))
    };
    let model = open(&adapters).unwrap();
    assert_eq!(model.adapters().collect::<Vec<_>>(), ["everything", "some", "dora"]);
    let unknown = SessionOptions { adapter: Some("other".to_owned()), ..SessionOptions::default() };
    let error = model.session(unknown).err().unwrap();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Argument, "adapter"));
    assert!(error.message().contains("everything, some, dora"), "{error}");
    let mut context = model.context(&SessionOptions::default(), 1, 1).unwrap();
    let sequence = context.create();
    let entry = BatchEntry::new(sequence, &[1], OutputRows::Last);
    let beyond = BatchEntry { adapter: AdapterSlot(4), ..entry };
    assert_eq!(context.forward(&[beyond]).unwrap_err().location(), "adapter");
    context.forward(&[entry]).unwrap();
    adapters[1].name = "dora".to_owned();
    assert_eq!(open(&adapters).err().unwrap().kind(), ErrorKind::Argument);
    adapters[1].name = "other".to_owned();
    let parts = adapters[1].adapter.parts.clone();
    adapters[1].adapter.parts.push(parts[0].clone());
    assert_eq!(open(&adapters).err().unwrap().kind(), ErrorKind::Corrupt, "a matrix with two parts");
    adapters[1].adapter.parts = parts;
    adapters[1].adapter.parts[0].tensor = "nothing".to_owned();
    let error = open(&adapters).err().unwrap();
    assert!(error.kind() == ErrorKind::Missing && error.location().starts_with("other"), "{error}");
}

//! Every family compared to PyTorch, and all ways of running it compared to each other, bit for bit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use siskin::{CpuFeatures, DeviceKind};
use siskin_graph::arch::FAMILIES;
use siskin_tests::golden::{
    self, LEVELS, NAMES, devices, emulate, load, model, relative_error, score, session,
};
use siskin_tests::{paths, texts};
use std::collections::HashSet;

#[test]
fn logits_are_those_of_pytorch_on_both_executors() {
    let mut report = String::new();
    for name in NAMES {
        let golden = load(name);
        for device in devices() {
            let model = model(&golden.file, device, 2, CpuFeatures::NONE);
            for (ids, want) in golden.ids.iter().zip(&golden.logits) {
                let error = relative_error(&score(&model, ids, 64), want);
                if error.is_nan() || error > 1e-4 {
                    report += &format!("{name} on {device:?}: {error:.1e}\n");
                }
            }
        }
    }
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}

#[test]
fn bits_depend_on_nothing_but_the_tokens() {
    emulate();
    for name in NAMES {
        let golden = load(name);
        let ids = &golden.ids[0];
        let want = score(&model(&golden.file, DeviceKind::Reference, 1, CpuFeatures::NONE), ids, 64);
        let runs = [(1, 1), (2, 7), (4, 64)].map(|run| (CpuFeatures::NONE, run)).into_iter();
        let levels = LEVELS.into_iter().skip(1).zip([(2, 64), (2, 5), (3, 6), (3, 64), (2, 7)]);
        for (without, (threads, batch)) in runs.chain(levels) {
            let model = model(&golden.file, DeviceKind::Cpu, threads, without);
            let got = score(&model, ids, batch);
            let same = got.iter().zip(&want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(same, 0, "{name}: {threads} threads, batches of {batch}, without {without}");
        }
    }
}

#[test]
fn products_take_in_what_follows_them() {
    // Two matrices, the halves of one, and a matrix with an activation.
    for (name, words) in
        [("llama", "of the first times the second"), ("phi3", "of the first"), ("gpt2", "Gelu")]
    {
        let plan = model(&load(name).file, DeviceKind::Cpu, 1, CpuFeatures::NONE).plan_text().unwrap();
        let layers = plan.lines().filter(|line| line.contains("attend layer")).count();
        let products = plan.lines().filter(|line| line.contains("matmul") && line.contains(words)).count();
        assert!(layers > 0 && products == layers, "{name}:\n{plan}");
        let apart = plan.contains(" Gate") || plan.contains(" Activate");
        assert!(!apart, "{name} gates or activates rows:\n{plan}");
    }
}

#[test]
fn a_greedy_continuation_is_that_of_the_reference() {
    for name in NAMES {
        let golden = load(name);
        let run = |device| {
            let model = model(&golden.file, device, 2, CpuFeatures::NONE);
            let mut session = session(&model, 16);
            session.prefill(&golden.ids[1]).unwrap();
            (0..20)
                .map(|_| {
                    let logits = session.logits();
                    let best = (0..logits.len())
                        .fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
                    session.prefill(&[best as u32]).unwrap();
                    best
                })
                .collect::<Vec<_>>()
        };
        let want = run(DeviceKind::Reference);
        for device in devices().filter(|device| *device != DeviceKind::Reference) {
            assert_eq!(run(device), want, "{name} on {device:?}");
        }
    }
}

#[test]
fn sequences_in_one_batch_give_what_each_gives_alone() {
    for name in ["llama", "gemma3", "bloom", "gpt2"] {
        let golden = load(name);
        let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let (a, b) = (&golden.ids[0], &golden.ids[1][..9]);
        let alone = [score(&model, a, 64), score(&model, b, 64)];
        // The batch holds more tokens than the context of one sequence.
        let context = a.len().max(b.len());
        let options = siskin::SessionOptions { batch: 64, context, ..Default::default() };
        let mut context = model.context(&options, 2, 64).unwrap();
        let (first, second) = (context.create(), context.create());
        let piece = |sequence, tokens| siskin::BatchEntry::new(sequence, tokens, siskin::OutputRows::All);
        context.forward(&[piece(first, &a[..5]), piece(second, b), piece(first, &a[5..])]).unwrap();
        let width = alone[0].len() / a.len();
        let row = |row: usize| context.output(row).to_vec();
        for index in 0..a.len() {
            let place = if index < 5 { index } else { index + b.len() };
            assert_eq!(row(place), alone[0][index * width..][..width], "{name}: row {index} of the first");
        }
        for index in 0..b.len() {
            assert_eq!(
                row(5 + index),
                alone[1][index * width..][..width],
                "{name}: row {index} of the second"
            );
        }
    }
}

#[test]
fn a_canceled_entry_leaves_the_others_of_its_batch_alone() {
    for name in ["llama", "gemma3", "qwen3-next"] {
        let golden = load(name);
        let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let (a, b) = (&golden.ids[0], &golden.ids[1][..9]);
        let options = siskin::SessionOptions { batch: 64, ..Default::default() };
        let mut context = model.context(&options, 2, 64).unwrap();
        let (first, second) = (context.create(), context.create());
        let entry = |sequence, tokens, outputs| siskin::BatchEntry::new(sequence, tokens, outputs);
        context.forward(&[entry(first, &a[..5], siskin::OutputRows::None)]).unwrap();
        assert_eq!(context.output(0), [0.0; 0], "{name}: no output was requested");
        let cancel = siskin::CancelHandle::new();
        cancel.cancel();
        let canceled =
            siskin::BatchEntry { cancel: Some(&cancel), ..entry(first, &a[5..], siskin::OutputRows::Last) };
        context.forward(&[canceled, entry(second, b, siskin::OutputRows::From(7))]).unwrap();
        assert_eq!([first, second].map(|sequence| context.is_canceled(sequence)), [true, false], "{name}");
        assert_eq!([context.length(first).unwrap(), context.length(second).unwrap()], [5, 9], "{name}");
        let width = model.config().vocabulary;
        let last = |ids: &[u32], count: usize| {
            let all = score(&model, ids, 64);
            all[all.len() - count * width..].to_vec()
        };
        let rows: Vec<f32> = [1, 2].iter().flat_map(|&row| context.output(row)).copied().collect();
        assert_eq!(rows, last(b, 2), "{name}: the other entry");
        context.forward(&[entry(first, &a[5..], siskin::OutputRows::Last)]).unwrap();
        assert_eq!(context.output(0), last(a, 1), "{name}: the sequence goes on as if nothing had happened");
    }
}

#[test]
fn contexts_of_two_models_share_threads_and_a_budget_for_each_cache() {
    let resources = siskin::Resources {
        thread_pool: siskin::SharedThreadPool::new(2).unwrap(),
        kv_budget: Some(siskin::KvBudget { bytes: 64 << 10 }),
        pass_scheduler: None,
    };
    let options = siskin::SessionOptions { batch: 64, context: 64, ..Default::default() };
    let goldens = ["llama", "gpt2"].map(load);
    let models = goldens.each_ref().map(|golden| model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE));
    let mut contexts = models.each_ref().map(|model| model.context_on(&resources, &options, 8, 1).unwrap());
    let memory = contexts[0].memory();
    let budget = Some(memory.activations + memory.kv_cache);
    let tight = siskin::SessionOptions { budget, ..options.clone() };
    assert!(models[0].context_on(&resources, &tight, 8, 1).is_ok());
    assert!(models[0].context(&tight, 8, 1).is_err(), "the whole cache is larger");
    for _ in 0..2 {
        for ((golden, model), context) in goldens.iter().zip(&models).zip(&mut contexts) {
            assert!(context.memory().kv_cache <= 64 << 10, "{} bytes", context.memory().kv_cache);
            let sequence = context.create();
            let entry = siskin::BatchEntry::new(sequence, &golden.ids[0], siskin::OutputRows::Last);
            context.forward(&[entry]).unwrap();
            let all = score(model, &golden.ids[0], 64);
            assert_eq!(context.output(0), &all[all.len() - model.config().vocabulary..]);
            context.remove(sequence);
        }
    }
    let adapted = siskin::BatchEntry {
        adapter: siskin::AdapterSlot(1),
        ..siskin::BatchEntry::new(0, &[1], siskin::OutputRows::Last)
    };
    let error = contexts[0].forward(&[adapted]).unwrap_err();
    assert_eq!((error.kind(), error.location()), (siskin::ErrorKind::Argument, "adapter"));
}

#[test]
fn forks_truncations_and_resets_change_nothing() {
    for name in ["llama", "mistral", "gemma3"] {
        let golden = load(name);
        let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let ids = &golden.ids[0];
        let whole = |ids: &[u32]| {
            let mut session = session(&model, 64);
            session.prefill(ids).unwrap();
            session.logits().to_vec()
        };
        let mut trunk = session(&model, 64);
        trunk.prefill(&ids[..10]).unwrap();
        let mut fork = trunk.fork().unwrap();
        trunk.prefill(&ids[10..15]).unwrap();
        let other: Vec<u32> = ids[..10].iter().chain(&[7, 8, 9]).copied().collect();
        fork.prefill(&other[10..]).unwrap();
        assert_eq!(trunk.logits(), whole(&ids[..15]), "{name}: trunk");
        assert_eq!(fork.logits(), whole(&other), "{name}: fork");
        fork.truncate(12).unwrap();
        fork.prefill(&other[12..]).unwrap();
        assert_eq!(fork.logits(), whole(&other), "{name}: truncated");
        fork.reset();
        fork.prefill(ids).unwrap();
        assert_eq!(fork.logits(), whole(ids), "{name}: reset");
    }
}

#[test]
fn a_stopped_session_is_as_it_was() {
    let golden = load("llama");
    let model = golden::model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let mut session = session(&model, 64);
    session.prefill(&golden.ids[0][..6]).unwrap();
    session.cancel_handle().cancel();
    let error = session.prefill(&golden.ids[0][6..]).unwrap_err();
    assert_eq!(error.kind(), siskin::ErrorKind::Canceled);
    assert_eq!(session.position(), 6);
    session.prefill(&golden.ids[0][6..]).unwrap();
    let width = session.logits().len();
    assert!(relative_error(session.logits(), &golden.logits[0][22 * width..]) < 1e-4);
}

/// Families without a golden, each with the reason.
const WITHOUT_GOLDEN: &[(&str, &str)] = &[];

#[test]
fn every_family_has_a_golden() {
    let packed = NAMES.iter().map(|name| load(name).file);
    let packed = packed.chain(texts::NAMES.iter().map(|name| texts::load(name, None).file));
    let compared: HashSet<String> = packed.map(|file| file.metadata().architecture.clone()).collect();
    for family in FAMILIES {
        let is_excepted = WITHOUT_GOLDEN.iter().any(|(name, _)| *name == family.name);
        assert_ne!(
            compared.contains(family.name),
            is_excepted,
            "{}: needs a golden in NAMES of tests/src/golden.rs or tests/src/texts.rs, or a reason in \
             WITHOUT_GOLDEN, and not both",
            family.name
        );
    }
}

#[test]
fn every_golden_is_listed() {
    for (folder, names) in [("golden", NAMES), ("golden-texts", texts::NAMES)] {
        for entry in std::fs::read_dir(paths::data(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_listed = names.contains(&name);
            assert!(is_listed || !path.is_dir(), "{folder}/{name} is compared by no test");
        }
    }
}

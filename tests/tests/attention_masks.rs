//! Attention masks that a session chooses, compared to PyTorch with the same mask:
//! `tests/golden-scripts/make_golden_kinds.py`.

use siskin::{CpuFeatures, DeviceKind, ErrorKind, Model, Session, SessionOptions, StreamingWindow};
use siskin_tests::attention_masks::{FIRST, PREFIX, RECENT, masked};
use siskin_tests::golden::{LEVELS, devices, emulate, load, model, relative_error, score};

fn options(window: Option<StreamingWindow>, batch: usize) -> SessionOptions {
    SessionOptions { window, batch, ..SessionOptions::default() }
}

fn window() -> Option<StreamingWindow> {
    Some(StreamingWindow { window: RECENT, sinks: FIRST })
}

/// Returns the logits of every token of `ids`, fed in chunks of the given sizes.
fn logits(session: &mut Session, ids: &[u32]) -> Vec<f32> {
    let mut all = Vec::new();
    session.score(ids, &mut |_, logits| all.extend_from_slice(logits)).expect("the model runs");
    all
}

#[test]
fn the_newest_and_the_first_tokens_are_seen() {
    emulate();
    for name in ["llama", "bloom"] {
        let golden = masked(name, "recent");
        let reference = model(&golden.file, DeviceKind::Reference, 1, CpuFeatures::NONE);
        for (ids, want) in golden.ids.iter().zip(&golden.logits) {
            let plain = logits(&mut reference.session(options(window(), 64)).unwrap(), ids);
            let error = relative_error(&plain, want);
            assert!(error <= 1e-4, "{name}: {error:.1e}");
            for (without, (threads, batch)) in
                LEVELS.into_iter().zip([(1, 1), (2, 7), (4, 64), (2, 5), (3, 6), (2, 64)])
            {
                let model = model(&golden.file, DeviceKind::Cpu, threads, without);
                let got = logits(&mut model.session(options(window(), batch)).unwrap(), ids);
                assert!(got == plain, "{name}: {threads} threads, batches of {batch}, without {without}");
            }
        }
    }
}

#[test]
fn a_window_bounds_the_memory() {
    let golden = masked("bloom", "recent");
    let ids: Vec<u32> = (0..700).map(|i| 5 + i * i % 83).collect();
    let context = 1024;
    let open = |device, window, batch| {
        let model = model(&golden.file, device, 2, CpuFeatures::NONE);
        model.session(SessionOptions { context, ..options(window, batch) }).unwrap()
    };
    // The sinks share a block with tokens that leave the window, and the window spans chunks.
    let window = Some(StreamingWindow { window: 70, sinks: 5 });
    let mut bounded = open(DeviceKind::Cpu, window, 16);
    let [all, some] = [open(DeviceKind::Cpu, None, 16), bounded].map(|session| session.memory().cache);
    assert!(3 * some <= all, "{some} of {all}");
    bounded = open(DeviceKind::Cpu, window, 16);
    bounded.prefill(&ids).unwrap();
    let mut plain = open(DeviceKind::Reference, window, 700);
    plain.prefill(&ids).unwrap();
    assert_eq!(bounded.logits(), plain.logits());
    assert_eq!(bounded.truncate(300).unwrap_err().kind(), ErrorKind::State);
    let none = options(Some(StreamingWindow { window: 0, sinks: 4 }), 8);
    let model = model(&golden.file, DeviceKind::Cpu, 1, CpuFeatures::NONE);
    assert_eq!(model.session(none).err().map(|error| error.kind()), Some(ErrorKind::Argument));
}

#[test]
fn a_prefix_sees_itself_both_ways() {
    emulate();
    for name in ["llama", "bloom"] {
        let golden = masked(name, "prefix");
        let run = |model: &Model, ids: &[u32], batch: usize| {
            let mut context = model.context(&options(None, batch), 1, batch).unwrap();
            let sequence = context.create();
            context.set_bidirectional_prefix(sequence, PREFIX).unwrap();
            let mut all = Vec::new();
            for tokens in std::iter::once(&ids[..PREFIX]).chain(ids[PREFIX..].chunks(batch)) {
                context
                    .forward(&[siskin::BatchEntry::new(sequence, tokens, siskin::OutputRows::All)])
                    .unwrap();
                (0..tokens.len()).for_each(|row| all.extend_from_slice(context.output(row)));
            }
            all
        };
        let reference = model(&golden.file, DeviceKind::Reference, 1, CpuFeatures::NONE);
        for (ids, want) in golden.ids.iter().zip(&golden.logits) {
            let plain = run(&reference, ids, 64);
            let error = relative_error(&plain, want);
            assert!(error <= 1e-4, "{name}: {error:.1e}");
            for (without, (threads, batch)) in
                LEVELS.into_iter().zip([(1, 7), (2, 8), (4, 64), (2, 9), (3, 16), (2, 64)])
            {
                let model = model(&golden.file, DeviceKind::Cpu, threads, without);
                let same = run(&model, ids, batch) == plain;
                assert!(same, "{name}: {threads} threads, batches of {batch}, without {without}");
            }
        }
    }
}

#[test]
fn a_prefix_stays_whole() {
    let golden = masked("llama", "prefix");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let ids = &golden.ids[0];
    let width = golden.logits[0].len() / ids.len();
    let mut session = model.session(options(None, 5)).unwrap();
    assert_eq!(session.prefill_bidirectional(&ids[..PREFIX]).unwrap_err().kind(), ErrorKind::Argument);
    let mut session = model.session(options(None, 16)).unwrap();
    session.prefill_bidirectional(&ids[..PREFIX]).unwrap();
    assert_eq!(session.prefill_bidirectional(&ids[..PREFIX]).unwrap_err().kind(), ErrorKind::State);
    let mut fork = session.fork().unwrap();
    session.prefill(&ids[PREFIX..]).unwrap();
    let want = &golden.logits[0][(ids.len() - 1) * width..];
    assert!(relative_error(session.logits(), want) <= 1e-4);
    fork.prefill(&ids[PREFIX..]).unwrap();
    assert_eq!(fork.logits(), session.logits());
    assert_eq!(session.truncate(PREFIX - 1).unwrap_err().kind(), ErrorKind::State);
    session.truncate(PREFIX + 3).unwrap();
    session.prefill(&ids[PREFIX + 3..]).unwrap();
    assert_eq!(fork.logits(), session.logits());
}

#[test]
fn states_are_forked_and_reset_and_do_not_go_back() {
    for name in ["qwen3-next", "llama-linear"] {
        let golden = load(name);
        let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let ids = &golden.ids[0];
        let open = || model.session(options(None, 6)).unwrap();
        let whole = |ids: &[u32]| {
            let mut session = open();
            session.prefill(ids).unwrap();
            session.logits().to_vec()
        };
        let mut trunk = open();
        trunk.prefill(&ids[..10]).unwrap();
        let mut fork = trunk.fork().unwrap();
        trunk.prefill(&ids[10..15]).unwrap();
        let other: Vec<u32> = ids[..10].iter().chain(&[7, 8, 9]).copied().collect();
        fork.prefill(&other[10..]).unwrap();
        assert_eq!(trunk.logits(), whole(&ids[..15]), "{name}: trunk");
        assert_eq!(fork.logits(), whole(&other), "{name}: fork");
        assert_eq!(fork.truncate(12).unwrap_err().kind(), ErrorKind::State, "{name}");
        fork.truncate(13).unwrap();
        fork.prefill(&ids[..2]).unwrap();
        let longer: Vec<u32> = other.iter().chain(&ids[..2]).copied().collect();
        assert_eq!(fork.logits(), whole(&longer), "{name}: after a rejected truncation");
        fork.cancel_handle().cancel();
        assert_eq!(fork.prefill(&ids[2..5]).unwrap_err().kind(), ErrorKind::Canceled);
        fork.prefill(&ids[2..5]).unwrap();
        let longer: Vec<u32> = longer.iter().chain(&ids[2..5]).copied().collect();
        assert_eq!(fork.logits(), whole(&longer), "{name}: after a stop");
        fork.truncate(0).unwrap();
        fork.prefill(ids).unwrap();
        assert_eq!(fork.logits(), whole(ids), "{name}: begun again");
    }
}

#[test]
fn sequences_with_states_in_one_batch_give_what_each_gives_alone() {
    for name in ["qwen3-next", "llama-linear", "gpt-oss"] {
        let golden = load(name);
        let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let (a, b) = (&golden.ids[0], &golden.ids[1][..9]);
        let alone = [score(&model, a, 64), score(&model, b, 64)];
        let mut context = model.context(&options(None, 64), 2, 64).unwrap();
        let (first, second) = (context.create(), context.create());
        let piece = |sequence, tokens| siskin::BatchEntry::new(sequence, tokens, siskin::OutputRows::All);
        context.forward(&[piece(first, &a[..5]), piece(second, b), piece(first, &a[5..])]).unwrap();
        let width = alone[0].len() / a.len();
        for index in 0..a.len() {
            let place = if index < 5 { index } else { index + b.len() };
            assert_eq!(context.output(place), &alone[0][index * width..][..width], "{name}: {index}");
        }
        for index in 0..b.len() {
            assert_eq!(context.output(5 + index), &alone[1][index * width..][..width], "{name}: {index}");
        }
    }
}

/// Transformers uses the frequencies of the prompt's length for the whole prompt, and for each later token those of the
/// length so far.
#[test]
fn dynamic_frequencies_follow_the_length_of_what_goes_in() {
    let golden = load("llama-dynamic");
    let (ids, want) = (&golden.ids[0], &golden.logits[0]);
    let width = want.len() / ids.len();
    for device in devices() {
        let model = model(&golden.file, device, 2, CpuFeatures::NONE);
        let mut session = model.session(options(None, 4)).unwrap();
        session.prefill(ids).unwrap();
        assert!(relative_error(session.logits(), &want[(ids.len() - 1) * width..]) <= 1e-4);
        let mut pieces = model.session(options(None, 4)).unwrap();
        ids.iter().for_each(|id| pieces.prefill(&[*id]).unwrap());
        assert!(relative_error(pieces.logits(), session.logits()) > 1e-4, "the length has no part in it");
    }
}

/// Transformers uses the long factors for all tokens of a sequence that exceeds the original context, and recomputes
/// the past when a sequence grows beyond it.
#[test]
fn longrope_has_short_factors_up_to_the_original_length() {
    let (long, short) = (masked("phi3-longrope", "logits"), masked("phi3-longrope", "short"));
    for device in devices() {
        let model = model(&long.file, device, 2, CpuFeatures::NONE);
        for (row, ids) in long.ids.iter().enumerate() {
            assert!(relative_error(&score(&model, ids, 64), &long.logits[row]) <= 1e-4);
            assert!(relative_error(&score(&model, &ids[..16], 64), &short.logits[row]) <= 1e-4);
            let width = short.logits[row].len() / 16;
            for batch in [1, 4] {
                let mut session = model.session(options(None, batch)).unwrap();
                for (index, id) in ids.iter().enumerate() {
                    session.prefill(&[*id]).unwrap();
                    let want = if index == 15 { Some(&short.logits[row]) } else { None };
                    let want = want.or((index == 22).then_some(&long.logits[row]));
                    if let Some(want) = want {
                        let error = relative_error(session.logits(), &want[index * width..]);
                        assert!(error <= 1e-4, "{index}: {error:.1e}");
                    }
                }
                assert_eq!(session.position(), 23);
            }
        }
    }
}

#[test]
fn a_stop_while_the_past_is_computed_again_loses_nothing() {
    let golden = masked("phi3-longrope", "logits");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let read = |stops: bool| {
        let mut session = model.session(options(None, 4)).unwrap();
        for (index, id) in golden.ids[0].iter().enumerate() {
            // The seventeenth token exceeds the original length.
            if stops && index >= 15 {
                session.cancel_handle().cancel();
                assert_eq!(session.prefill(&[*id]).unwrap_err().kind(), ErrorKind::Canceled);
                assert_eq!(session.position(), index);
            }
            session.prefill(&[*id]).unwrap();
        }
        session.logits().to_vec()
    };
    assert_eq!(read(true), read(false));
}

#[test]
fn a_bidirectional_prefix_stays_one_when_the_past_is_computed_again() {
    let golden = masked("phi3-longrope", "logits");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let ids = &golden.ids[0];
    let mut context = model.context(&options(None, 16), 1, 1).unwrap();
    let sequence = context.create();
    context.set_expected_length(sequence, ids.len()).unwrap();
    context.set_bidirectional_prefix(sequence, PREFIX).unwrap();
    for tokens in [&ids[..PREFIX], &ids[PREFIX..]] {
        context.forward(&[siskin::BatchEntry::new(sequence, tokens, siskin::OutputRows::Last)]).unwrap();
    }
    for is_canceled in [false, true] {
        let mut session = model.session(options(None, 16)).unwrap();
        session.prefill_bidirectional(&ids[..PREFIX]).unwrap();
        session.prefill(&ids[PREFIX..12]).unwrap();
        if is_canceled {
            session.cancel_handle().cancel();
            assert_eq!(session.prefill(&ids[12..]).unwrap_err().kind(), ErrorKind::Canceled);
            assert_eq!(session.truncate(PREFIX - 1).unwrap_err().kind(), ErrorKind::State);
        }
        session.prefill(&ids[12..]).unwrap();
        assert_eq!(session.logits(), context.output(0));
        session.truncate(0).unwrap();
        session.prefill(&ids[..7]).unwrap();
        let mut causal = model.session(options(None, 16)).unwrap();
        causal.prefill(&ids[..7]).unwrap();
        assert_eq!(session.logits(), causal.logits());
    }
}

#[test]
fn gpt_oss_comes_from_gguf_too() {
    let golden = masked("gpt-oss-gguf", "logits");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    for (ids, want) in golden.ids.iter().zip(&golden.logits) {
        let error = relative_error(&score(&model, ids, 64), want);
        assert!(error <= 1e-4, "{error:.1e}");
    }
}

//! Every encoder and encoder–decoder family compared to PyTorch, and all ways of running it compared to each other.

use siskin::encoder::{EncoderInput, EncoderOptions};
use siskin::{
    BatchEntry, Context, CpuFeatures, DeviceKind, ErrorKind, OutputRows, SequenceInput, SessionOptions,
};
use siskin_tests::golden::{LEVELS, devices, emulate, model, relative_error};
use siskin_tests::texts::{self, NAMES, WRITERS, encoder, load, read, score};

#[test]
fn outputs_are_those_of_pytorch_on_both_executors() {
    let mut report = String::new();
    for name in NAMES {
        let golden = load(name, None);
        for device in devices() {
            let model = model(&golden.file, device, 2, CpuFeatures::NONE);
            let mut check = |what: &str, got: &[f32], want: &[f32]| {
                let error = relative_error(got, want);
                if error.is_nan() || error > 1e-4 {
                    report += &format!("{name} on {device:?}, {what}: {error:.1e}\n");
                }
            };
            for (got, want) in read(&model, &golden.texts, 64).iter().zip(&golden.read) {
                check("read", got, want);
            }
            for ((text, written), want) in golden.texts.iter().zip(&golden.written).zip(&golden.scores) {
                check("written", &score(&model, text, written, 16), want);
            }
        }
    }
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}

#[test]
fn bits_depend_on_nothing_but_the_text() {
    emulate();
    for name in NAMES {
        let golden = load(name, None);
        let reference = model(&golden.file, DeviceKind::Reference, 1, CpuFeatures::NONE);
        let want: Vec<_> =
            golden.texts.iter().map(|text| read(&reference, std::slice::from_ref(text), 8)).collect();
        let want = want.concat();
        let scored = |model: &siskin::Model, batch: usize| -> Vec<Vec<f32>> {
            let pairs = golden.texts.iter().zip(&golden.written);
            pairs.map(|(text, written)| score(model, text, written, batch)).collect()
        };
        let want_scores = scored(&reference, 16);
        // Shorter texts in addition to those of the golden, so that batches hold several.
        let cut = |text: &EncoderInput| EncoderInput {
            ids: text.ids.iter().take(4).copied().collect(),
            token_type_ids: text.token_type_ids.iter().take(4).copied().collect(),
            global_positions: text.global_positions.iter().filter(|&&place| place < 4).copied().collect(),
            features: text.features.iter().take(12 * 7).copied().collect(),
            ..EncoderInput::default()
        };
        let mut crowd: Vec<EncoderInput> = golden.texts.clone();
        crowd.extend(golden.texts.iter().map(cut));
        let runs = [(1, 1), (2, 200), (4, 40)].map(|run| (CpuFeatures::NONE, run)).into_iter();
        let levels = LEVELS.into_iter().skip(1).zip([(2, 200), (2, 50), (3, 1), (3, 60), (2, 70)]);
        for (without, (threads, batch)) in runs.chain(levels) {
            let model = model(&golden.file, DeviceKind::Cpu, threads, without);
            let got = read(&model, &crowd, batch);
            assert!(got[..want.len()] == want, "{name}: {threads} threads, {batch} rows, without {without}");
            assert!(
                scored(&model, batch.min(5)) == want_scores,
                "{name}: {threads} threads, without {without}"
            );
        }
    }
}

#[test]
fn members_of_a_team_may_take_texts_apart() {
    let read = |model: &siskin::Model, head: bool, texts: &[EncoderInput]| {
        let options = EncoderOptions { head, batch: 640, ..EncoderOptions::default() };
        texts::rows(&mut model.encoder(options).unwrap(), texts, OutputRows::First)
    };
    for name in NAMES {
        let golden = load(name, None);
        let alone = model(&golden.file, DeviceKind::Cpu, 1, CpuFeatures::NONE);
        let rows: usize = golden.texts.iter().map(|text| text.ids.len().max(1)).sum();
        // Enough sequences for sequence parallelism.
        let count = golden.texts.len() * 700 / rows;
        let crowd: Vec<EncoderInput> = golden.texts.iter().cycle().take(count).cloned().collect();
        for (head, threads) in [(false, 2), (true, 2), (false, 3)] {
            let want: Vec<_> =
                golden.texts.iter().flat_map(|text| read(&alone, head, std::slice::from_ref(text))).collect();
            let team = model(&golden.file, DeviceKind::Cpu, threads, CpuFeatures::NONE);
            for (index, got) in read(&team, head, &crowd).iter().enumerate() {
                assert!(*got == want[index % want.len()], "{name}: text {index}, {threads} threads");
            }
        }
    }
}

#[test]
fn forks_write_on_from_what_was_read() {
    for name in WRITERS {
        let golden = load(name, None);
        let model = texts_model(&golden);
        let options = SessionOptions { context: 32, ..SessionOptions::default() };
        let mut context = model.context(&options, 3, 1).unwrap();
        let trunk = context.create();
        let hear = |context: &mut Context, sequence, text: &EncoderInput| {
            let EncoderInput { ids, token_type_ids, features, global_positions, padding_token, adapter } =
                text;
            let (outputs, padding_token) = (OutputRows::None, *padding_token);
            context
                .encode(&[SequenceInput {
                    sequence,
                    tokens: ids,
                    token_type_ids,
                    features,
                    global_positions,
                    padding_token,
                    outputs,
                    adapter: *adapter,
                }])
                .unwrap();
        };
        let say = |context: &mut Context, sequence, tokens: &[u32]| {
            context.forward(&[BatchEntry::new(sequence, tokens, OutputRows::Last)]).unwrap();
            context.output(0).to_vec()
        };
        let (text, written) = (&golden.texts[0], &golden.written[0]);
        let other = (&golden.texts[1], &golden.written[1]);
        hear(&mut context, trunk, text);
        say(&mut context, trunk, &written[..3]);
        let fork = context.fork(trunk).unwrap();
        context.remove(trunk);
        let trunk = context.create();
        hear(&mut context, trunk, other.0);
        let trunk = say(&mut context, trunk, other.1);
        let fork = say(&mut context, fork, &written[3..]);
        let last = |scores: Vec<f32>| scores[scores.len() - fork.len()..].to_vec();
        assert_eq!(fork, last(score(&model, text, written, 8)), "{name}: fork");
        assert_eq!(trunk, last(score(&model, other.0, other.1, 8)), "{name}: trunk");
    }
}

#[test]
fn what_cannot_be_read_is_rejected() {
    let golden = load("bert", None);
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let mut encoder = encoder(&model, 16);
    let mut kind = |text: EncoderInput| {
        let texts = [golden.texts[0].clone(), text];
        encoder.encode(&texts, OutputRows::All, &mut |_, _| Ok(())).unwrap_err().kind()
    };
    assert_eq!(kind(EncoderInput::default()), ErrorKind::Argument);
    assert_eq!(kind(EncoderInput::from(vec![5; 65])), ErrorKind::TooLong);
    assert_eq!(kind(EncoderInput::from(vec![80])), ErrorKind::Argument);
    assert_eq!(
        kind(EncoderInput { ids: vec![5], token_type_ids: vec![2], ..EncoderInput::default() }),
        ErrorKind::Argument
    );
    assert_eq!(
        kind(EncoderInput { ids: vec![5], token_type_ids: vec![0, 1], ..EncoderInput::default() }),
        ErrorKind::Argument
    );
    assert_eq!(
        kind(EncoderInput { ids: vec![5], features: vec![0.5], ..EncoderInput::default() }),
        ErrorKind::Argument
    );
    assert!(model.session(SessionOptions::default()).is_err(), "BERT does not write");

    let golden = load("t5", None);
    let model = texts_model(&golden);
    let mut session = model.session(SessionOptions::default()).unwrap();
    assert_eq!(session.prefill(&[5]).unwrap_err().kind(), ErrorKind::State, "nothing was read");
    session.encode(&golden.texts[0]).unwrap();
    session.prefill(&[5]).unwrap();
    assert_eq!(session.encode(&EncoderInput::from(vec![99])).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(session.prefill(&[5]).unwrap_err().kind(), ErrorKind::State, "the text was rejected");
}

fn texts_model(golden: &texts::GoldenTexts) -> siskin::Model {
    model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE)
}

//! Examples that tasks create from records.

use siskin_trainer::batch::BatchSequences;
use siskin_trainer::data::task::{
    CausalLm, ClassificationTask, ContrastiveTask, MaskedLm, Packing, Sentinels, Seq2SeqTask, SpanCorruption,
    SpecialTokens, TASKS, TaskEntry,
};
use siskin_trainer::data::{RecordsInMemory, Sink, TaskBatch, TaskSettings, TokenizedDocument, TrainingTask};
use siskin_trainer::random::Random;
use std::sync::Arc;

use super::common::{memory, random_documents, records, task, task_of, tokenizer};

/// Returns every example as its own batch.
fn examples(task: &dyn TrainingTask) -> Vec<TaskBatch> {
    let make = |example| {
        let mut made = TaskBatch::default();
        task.add(example, &mut Random::new(9, &[example as u64]), &mut made).unwrap();
        let rows = made.batch.encoder.rows.len() + made.batch.decoder.rows.len();
        assert_eq!(rows, task.rows(example), "example {example}");
        assert_eq!(made.targets.ids.len(), made.targets.weights.len());
        made
    };
    (0..task.count()).map(make).collect()
}

fn ids(texts: &BatchSequences) -> Vec<u32> {
    texts.rows.iter().map(|row| row.token).collect()
}

/// Returns the sequences, and the targets with nonzero weight.
fn seen(made: &[TaskBatch]) -> Vec<(Vec<u32>, Vec<Option<u32>>)> {
    let targets = |made: &TaskBatch| {
        let pairs = made.targets.ids.iter().zip(&made.targets.weights);
        pairs.map(|(&id, &weight)| (weight > 0.0).then_some(id)).collect()
    };
    made.iter().map(|made| (ids(&made.batch.decoder), targets(made))).collect()
}

#[test]
fn causal_lm_sequences_are_documents_or_packed() {
    let some = |ids: &[u32]| ids.iter().map(|&id| Some(id)).collect::<Vec<_>>();
    let records = memory(20, &[vec![5, 6, 7, 8], vec![], vec![9], vec![10, 11]]);
    let made = |before: &[u32], after: &[u32], packing| {
        let frame = SpecialTokens { before: before.to_vec(), after: after.to_vec() };
        seen(&examples(&CausalLm::new(records.clone(), frame, 3, packing).unwrap()))
    };
    // The end token is a target, and never an input.
    assert_eq!(
        made(&[], &[1], Packing::PerDocument),
        [
            (vec![5, 6, 7], some(&[6, 7, 8])),
            (vec![8], some(&[1])),
            (vec![9], some(&[1])),
            (vec![10, 11], some(&[11, 1])),
        ]
    );
    // Without an end token, the last token has no target.
    assert_eq!(
        made(&[2], &[], Packing::PerDocument),
        [
            (vec![2, 5, 6], some(&[5, 6, 7])),
            (vec![7, 8], vec![Some(8), None]),
            (vec![2, 9], vec![Some(9), None]),
            (vec![2, 10, 11], vec![Some(10), Some(11), None]),
        ]
    );
    assert_eq!(
        made(&[], &[1], Packing::Packed),
        [
            (vec![5, 6, 7], some(&[6, 7, 8])),
            (vec![8, 1, 9], some(&[1, 9, 1])),
            (vec![1, 10, 11], some(&[10, 11, 1])),
        ]
    );
}

#[test]
fn packing_keeps_every_token() {
    let documents = random_documents(200, 40, 3, 50);
    let records = memory(50, &documents);
    for (before, after) in [(vec![], vec![]), (vec![1], vec![]), (vec![], vec![2]), (vec![1, 1], vec![0, 2])]
    {
        for length in [1, 2, 7, 64] {
            let frame = SpecialTokens { before: before.clone(), after: after.clone() };
            let framed: Vec<Vec<u32>> =
                documents.iter().filter(|text| !text.is_empty()).map(|text| frame.around(text)).collect();
            let apart = CausalLm::new(records.clone(), frame.clone(), length, Packing::PerDocument).unwrap();
            let made = seen(&examples(&apart));
            assert!(made.iter().all(|(text, _)| (1..=length).contains(&text.len())));
            let went_in: Vec<u32> = made.iter().flat_map(|(text, _)| text.clone()).collect();
            let inner = |text: &Vec<u32>| text[..text.len() - usize::from(!after.is_empty())].to_vec();
            assert_eq!(went_in, framed.iter().flat_map(inner).collect::<Vec<_>>());
            let wanted: Vec<u32> = made.iter().flat_map(|(_, targets)| targets).flatten().copied().collect();
            assert_eq!(wanted, framed.iter().flat_map(|text| text[1..].to_vec()).collect::<Vec<_>>());
            let across = CausalLm::new(records.clone(), frame, length, Packing::Packed).unwrap();
            let made = seen(&examples(&across));
            let stream = framed.concat();
            let went_in: Vec<u32> = made.iter().flat_map(|(text, _)| text.clone()).collect();
            assert_eq!(went_in, stream[..stream.len() - 1]);
            let wanted: Vec<u32> = made.iter().flat_map(|(_, targets)| targets).flatten().copied().collect();
            assert_eq!(wanted, stream[1..]);
            assert!(made[..made.len() - 1].iter().all(|(text, _)| text.len() == length));
        }
    }
}

#[test]
fn masking_follows_its_probabilities_and_targets_restore_the_text() {
    const MASK: u32 = 4;
    let documents = random_documents(2000, 100, 3, 1000);
    // Ids below ten are special.
    let ordinary: Vec<bool> = (0..1000).map(|id| id >= 10).collect();
    let frame = SpecialTokens { before: vec![1], after: vec![2] };
    let task = MaskedLm::new(memory(1000, &documents), frame, 62, MASK, ordinary).unwrap();
    let (mut maskable, mut chosen, mut masked, mut same) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut restored = Vec::new();
    for made in examples(&task) {
        let reader = &made.batch.encoder;
        let mut text = ids(reader);
        assert_eq!((text[0], text[text.len() - 1]), (1, 2), "the frame stays");
        for (&row, &id) in reader.output_rows.iter().zip(&made.targets.ids) {
            assert!(id >= 10, "special token {id} was chosen");
            assert!(text[row] == MASK || text[row] >= 10, "special token {} was put in", text[row]);
            masked += u64::from(text[row] == MASK);
            same += u64::from(text[row] == id);
            text[row] = id;
        }
        let able = text.iter().filter(|&&id| id >= 10).count() as u64;
        assert!(able == 0 || !reader.output_rows.is_empty(), "a text without a target");
        assert!(reader.output_rows.is_sorted_by(|a, b| a < b));
        maskable += able;
        chosen += reader.output_rows.len() as u64;
        restored.extend_from_slice(&text[1..text.len() - 1]);
    }
    assert_eq!(restored, documents.concat());
    // Five standard deviations around the share; a replacement is the same token one time in 990, and very short texts
    // exceed their share.
    let near = |count: u64, all: u64, share: f64, more: f64| {
        let (count, all) = (count as f64, all as f64);
        let off = (count - all * share).abs();
        assert!(
            off < 5.0 * (all * share * (1.0 - share)).sqrt() + more * all,
            "{count} of {all}, wanted {share}"
        );
    };
    near(chosen, maskable, 0.15, 0.005);
    near(masked, chosen, 0.8, 0.0);
    near(same, chosen, 0.1, 0.0002);
}

#[test]
fn corrupted_spans_restore_the_original() {
    let documents = random_documents(300, 200, 3, 900);
    let sentinels = Sentinels::top(1000, 100);
    let settings =
        TaskSettings { max_length: 64, decoder_start_token_id: Some(0), ..TaskSettings::default() };
    let task = SpanCorruption::new(memory(1000, &documents), &settings, sentinels, 1).unwrap();
    let mut rebuilt = Vec::new();
    for made in examples(&task) {
        let (source, target) = (ids(&made.batch.encoder), &made.targets.ids);
        assert!(source.len() <= 64);
        assert_eq!((source.last(), target.last()), (Some(&1), Some(&1)));
        let mut shifted = vec![0];
        shifted.extend(&target[..target.len() - 1]);
        assert_eq!(ids(&made.batch.decoder), shifted);
        assert_eq!(made.batch.decoder.output_rows, (0..target.len()).collect::<Vec<_>>());
        let (mut spans, mut hidden) = (0, 0);
        for &id in &source[..source.len() - 1] {
            if id < 900 {
                rebuilt.push(id);
                continue;
            }
            assert_eq!(id, 999 - spans, "sentinels go down from the top");
            let start = target.iter().position(|&other| other == id).unwrap() + 1;
            let span: Vec<u32> =
                target[start..].iter().copied().take_while(|&id| (3..900).contains(&id)).collect();
            assert!(!span.is_empty());
            hidden += span.len();
            rebuilt.extend(span);
            spans += 1;
        }
        let length = hidden + source.len() - 1 - spans as usize;
        let share = (length as f64 * 0.15).round_ties_even() as usize;
        assert_eq!(hidden, if length < 2 { 0 } else { share.clamp(1, length - 1) }, "of {length}");
    }
    assert_eq!(rebuilt, documents.concat());
}

fn filled(parts: usize, rows: &[(&[&[u32]], Option<u32>)]) -> Arc<RecordsInMemory> {
    let mut memory = RecordsInMemory::new(100, parts).unwrap();
    for (parts, label) in rows {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        memory.push(&TokenizedDocument { parts, label: *label, hash: 0 }).unwrap();
    }
    Arc::new(memory)
}

fn frame() -> SpecialTokens {
    SpecialTokens { before: vec![1], after: vec![2] }
}

/// Returns all examples in one batch.
fn batch(task: &dyn TrainingTask) -> TaskBatch {
    let mut made = TaskBatch::default();
    for example in 0..task.count() {
        task.add(example, &mut Random::new(0, &[]), &mut made).unwrap();
    }
    made
}

#[test]
fn classification_outputs_the_first_row() {
    let records = filled(1, &[(&[&[5, 6, 7, 8]], Some(2)), (&[&[9]], Some(0)), (&[&[]], Some(1))]);
    let made = batch(&ClassificationTask::new(records.clone(), frame(), 5, 3).unwrap());
    assert_eq!(ids(&made.batch.encoder), [1, 5, 6, 7, 2, 1, 9, 2, 1, 2]);
    assert_eq!(made.batch.encoder.output_rows, [0, 5, 8]);
    assert_eq!((made.targets.ids, made.targets.weights), (vec![2, 0, 1], vec![1.0; 3]));
    let error = ClassificationTask::new(records, frame(), 5, 2).err().unwrap();
    assert!(error.to_string().contains("record 0") && error.to_string().contains("class 2"), "{error}");
}

#[test]
fn contrastive_batches_have_the_positive_after_its_anchor() {
    let records = filled(3, &[(&[&[5], &[6, 7], &[8]], None), (&[&[9], &[10], &[]], None)]);
    let made = batch(&ContrastiveTask::new(records, frame(), 8).unwrap());
    let texts: Vec<_> =
        made.batch.encoder.spans().map(|span| ids(&made.batch.encoder)[span.clone()].to_vec()).collect();
    assert_eq!(texts, [vec![1, 5, 2], vec![1, 6, 7, 2], vec![1, 8, 2], vec![1, 9, 2], vec![1, 10, 2]]);
    assert_eq!(made.targets.ids, [0, 0, 0, 1, 1]);
    assert_eq!(made.targets.weights, [1.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(made.batch.encoder.output_rows, (0..16).collect::<Vec<_>>());
}

#[test]
fn seq2seq_targets_are_shifted_by_one() {
    let records = filled(2, &[(&[&[5, 6], &[7, 8, 9]], None), (&[&[10], &[11]], None)]);
    let settings = TaskSettings {
        max_length: 8,
        max_target_length: 3,
        decoder_start_token_id: Some(0),
        ..TaskSettings::default()
    };
    let target = SpecialTokens { before: vec![], after: vec![2] };
    let made = batch(&Seq2SeqTask::new(records, &settings, [frame(), target]).unwrap());
    assert_eq!(ids(&made.batch.encoder), [1, 5, 6, 2, 1, 10, 2]);
    assert_eq!(ids(&made.batch.decoder), [0, 7, 8, 0, 11]);
    assert_eq!(made.targets.ids, [7, 8, 2, 11, 2]);
    assert_eq!(made.batch.decoder.output_rows, [0, 1, 2, 3, 4]);
    assert!(made.batch.encoder.output_rows.is_empty());
}

/// Rows have their sequence and position, and output rows have targets.
#[test]
fn batches_of_every_task_are_consistent() {
    for kind in TASKS {
        let task = task(kind, 40);
        let made = batch(&*task);
        let mut wanted = 0;
        for texts in [&made.batch.encoder, &made.batch.decoder] {
            assert_eq!(texts.spans().map(|span| span.len()).sum::<usize>(), texts.rows.len());
            for (text, span) in texts.spans().enumerate() {
                let place = |(position, row): (usize, &siskin_trainer::batch::BatchRow)| {
                    (row.sequence, row.position) == (text, position)
                };
                assert!(texts.rows[span.clone()].iter().enumerate().all(place), "{}", kind.name);
                assert!(!span.is_empty(), "{}: text {text} is empty", kind.name);
            }
            wanted += texts.output_rows.len();
        }
        let targets = made.targets.ids.len();
        let by_text = kind.name == "contrastive";
        assert_eq!(
            targets,
            if by_text { made.batch.encoder.sequences.len() } else { wanted },
            "{}",
            kind.name
        );
        assert_eq!((0..task.count()).map(|example| task.rows(example)).sum::<usize>(), {
            made.batch.encoder.rows.len() + made.batch.decoder.rows.len()
        });
    }
}

/// Without truncation, each document is one example.
#[test]
fn any_maximum_length_is_accepted() {
    for kind in TASKS {
        for length in [100_000, usize::MAX / 2, usize::MAX] {
            let task = task_of(kind, 10, length);
            assert_eq!(task.count(), 10, "{}", kind.name);
            assert_eq!(examples(&*task).len(), 10);
        }
    }
    let records = memory(20, &[vec![5, 6], vec![7]]);
    let frame = SpecialTokens { before: Vec::new(), after: vec![1] };
    let across = CausalLm::new(records, frame, usize::MAX, Packing::Packed).unwrap();
    assert_eq!(seen(&examples(&across))[0].0, [5, 6, 1, 7]);
}

/// Each list is what the task needs, and errors name missing fields.
#[test]
fn task_errors_name_what_is_missing() {
    let tokenizer = tokenizer();
    let frame = SpecialTokens::of(&tokenizer).unwrap();
    assert_eq!((&frame.before[..], &frame.after[..]), (&[2][..], &[3][..]), "[CLS] and [SEP]");
    let settings = TaskSettings { max_length: 24, ..TaskSettings::default() };
    let rejected = |name: &str, of: &str, settings: &TaskSettings, what: &str| {
        let kind = TaskEntry::of(name).unwrap();
        let error = (kind.make)(settings, &tokenizer, records(TaskEntry::of(of).unwrap(), 3)).err().unwrap();
        assert!(error.to_string().contains(what), "{name}: {error}");
    };
    rejected("seq2seq", "causal_lm", &settings, "1 token lists each");
    rejected("causal_lm", "seq2seq", &settings, "the task needs one");
    rejected("seq2seq", "seq2seq", &settings, "decoder_start_token_id");
    rejected("span_corruption", "span_corruption", &settings, "decoder_start_token_id");
    rejected("sequence_classification", "causal_lm", &settings, "no class");
    rejected(
        "masked_lm",
        "masked_lm",
        &TaskSettings { mlm_probability: 1.0, ..settings.clone() },
        "mlm_probability",
    );
    rejected("masked_lm", "masked_lm", &TaskSettings { max_length: 2, ..settings.clone() }, "max_length");
    let unknown = TaskEntry::of("poetry").err().unwrap();
    assert!(unknown.to_string().contains("causal_lm, masked_lm, span_corruption"), "{unknown}");
}

//! Batches: order, size, and resuming.

use siskin_trainer::data::task::TASKS;
use siskin_trainer::data::{LoadedBatch, Loader, LoaderOptions, Position, Prefetch, TrainingTask};
use std::collections::HashSet;
use std::sync::Arc;

use super::common::task;

fn options() -> LoaderOptions {
    LoaderOptions { seed: 3, max_tokens: 150, pool_size: 16, epochs: 3, ..LoaderOptions::default() }
}

fn load(task: &Arc<dyn TrainingTask>, from: Position) -> Vec<LoadedBatch> {
    Loader::new(task.clone(), options(), from).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Returns everything in a batch as text.
fn text(step: &LoadedBatch) -> String {
    format!("{step:?}")
}

#[test]
fn resumed_loaders_yield_the_same_batches() {
    for kind in TASKS {
        let task = task(kind, 50);
        let whole = load(&task, Position::default());
        assert_eq!(whole.last().map(|step| step.next.epoch), Some(2));
        let epochs: HashSet<u64> = whole.iter().map(|step| step.next.epoch).collect();
        assert_eq!(epochs.len(), 3, "{}", kind.name);
        // After every batch: in the middle of an epoch, at its end, and in the next.
        for (place, step) in whole.iter().enumerate() {
            let rest = load(&task, step.next);
            assert_eq!(rest.len(), whole.len() - place - 1, "{} after {:?}", kind.name, step.next);
            for (one, other) in rest.iter().zip(&whole[place + 1..]) {
                assert_eq!(text(one), text(other), "{} after {:?}", kind.name, step.next);
            }
        }
    }
}

#[test]
fn epochs_are_different_permutations() {
    for kind in TASKS {
        let task = task(kind, 50);
        let steps = load(&task, Position::default());
        let order = |epoch| -> Vec<usize> {
            let own = steps.iter().filter(|step| step.next.epoch == epoch);
            own.flat_map(|step| step.examples.clone()).collect()
        };
        let sorted = |mut list: Vec<usize>| {
            list.sort_unstable();
            list
        };
        for epoch in 0..3 {
            assert_eq!(sorted(order(epoch)), (0..task.count()).collect::<Vec<_>>(), "{}", kind.name);
        }
        assert_ne!(order(0), order(1), "{}", kind.name);
        let other = Loader::new(task.clone(), LoaderOptions { seed: 4, ..options() }, Position::default());
        assert_ne!(other.unwrap().next().unwrap().unwrap().examples, steps[0].examples, "{}", kind.name);
    }
}

#[test]
fn masks_differ_between_epochs() {
    let task = task(siskin_trainer::data::TaskEntry::of("masked_lm").unwrap(), 1);
    let alone = LoaderOptions { epochs: 20, ..options() };
    let steps: Vec<LoadedBatch> =
        Loader::new(task, alone, Position::default()).unwrap().map(Result::unwrap).collect();
    let kinds: HashSet<String> = steps.iter().map(|step| format!("{:?}", step.batch)).collect();
    assert!(kinds.len() > 10, "{} of 20 epochs differ", kinds.len());
}

#[test]
fn batches_respect_their_limits_and_group_by_length() {
    for kind in TASKS {
        let task = task(kind, 200);
        let spread = |group_by_length| {
            let options = LoaderOptions {
                max_tokens: 120,
                max_examples: 5,
                pool_size: 200,
                group_by_length,
                epochs: 1,
                ..options()
            };
            let loader = Loader::new(task.clone(), options, Position::default()).unwrap();
            let mut spread = 0;
            for step in loader.map(Result::unwrap) {
                let rows: Vec<usize> = step.examples.iter().map(|&example| task.rows(example)).collect();
                let sum = step.batch.encoder.rows.len() + step.batch.decoder.rows.len();
                assert_eq!(rows.iter().sum::<usize>(), sum);
                assert!(sum <= 120 || rows.len() == 1, "{}: {rows:?}", kind.name);
                assert!(rows.len() <= 5);
                spread += rows.iter().max().unwrap() - rows.iter().min().unwrap();
            }
            spread
        };
        assert!(3 * spread(true) < spread(false), "{}: lengths in batches", kind.name);
    }
}

#[test]
fn without_shuffling_examples_are_in_order() {
    let task = task(&TASKS[0], 50);
    let plain = LoaderOptions { shuffle: false, group_by_length: false, epochs: 1, ..options() };
    let steps = Loader::new(task.clone(), plain, Position::default()).unwrap();
    let order: Vec<usize> = steps.flat_map(|step| step.unwrap().examples).collect();
    assert_eq!(order, (0..task.count()).collect::<Vec<_>>());
}

#[test]
fn positions_beyond_the_data_are_rejected() {
    let task = task(&TASKS[0], 50);
    let last = load(&task, Position::default()).last().unwrap().next;
    let beyond = Position { batch: last.batch + 1, ..last };
    let error = Loader::new(task.clone(), options(), beyond).err().unwrap();
    assert!(error.to_string().contains("position"), "{error}");
    assert!(Loader::new(task, LoaderOptions { max_tokens: 0, ..options() }, last).is_err());
}

/// A task with a failing example.
struct Failing(Arc<dyn TrainingTask>, usize);

impl TrainingTask for Failing {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn rows(&self, example: usize) -> usize {
        self.0.rows(example)
    }

    fn add(
        &self,
        example: usize,
        random: &mut siskin_trainer::random::Random,
        made: &mut siskin_trainer::data::TaskBatch,
    ) -> siskin::Result<()> {
        match example == self.1 {
            true => Err(siskin::Error::argument("text", "went away")),
            false => self.0.add(example, random, made),
        }
    }
}

#[test]
fn prefetched_batches_are_the_same() {
    let task = task(&TASKS[1], 50);
    let whole = load(&task, Position::default());
    for ahead in [0, 1, 4, 1000] {
        let loader = Loader::new(task.clone(), options(), Position::default()).unwrap();
        let steps: Vec<LoadedBatch> = Prefetch::new(loader, ahead).unwrap().map(Result::unwrap).collect();
        assert_eq!(steps.len(), whole.len());
        assert!(steps.iter().zip(&whole).all(|(one, other)| text(one) == text(other)));
    }
    // A prefetch thread ends when its batches are no longer consumed.
    let loader = Loader::new(task.clone(), LoaderOptions { epochs: 0, ..options() }, Position::default());
    let mut prefetch = Prefetch::new(loader.unwrap(), 2).unwrap();
    assert_eq!(text(&prefetch.next().unwrap().unwrap()), text(&whole[0]));
    drop(prefetch);
    let failing: Arc<dyn TrainingTask> = Arc::new(Failing(task, 7));
    let loader = Loader::new(failing, options(), Position::default()).unwrap();
    let steps: Vec<_> = Prefetch::new(loader, 2).unwrap().collect();
    let (last, before) = steps.split_last().unwrap();
    assert!(last.as_ref().err().unwrap().to_string().contains("example 7"));
    assert!(before.iter().all(Result::is_ok));
}

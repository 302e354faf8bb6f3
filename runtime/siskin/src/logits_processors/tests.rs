use super::*;

fn after(rules: &LogitsProcessorOptions, text: &[u32], prompt: usize, left: usize) -> Vec<f32> {
    let mut scores = vec![1.0, 2.0, -1.0, -2.0, 0.5, 3.0];
    let place = ProcessorContext { source: &[4, 1, 5], text, prompt, left };
    LogitsProcessorList::new(rules).unwrap().apply(&mut scores, &place);
    scores
}

const NO: f32 = f32::NEG_INFINITY;
const ALL: [f32; 6] = [1.0, 2.0, -1.0, -2.0, 0.5, 3.0];

#[test]
fn nothing_changes_unasked() {
    assert!(LogitsProcessorList::new(&LogitsProcessorOptions::default()).unwrap().is_empty());
    assert_eq!(after(&LogitsProcessorOptions::default(), &[0, 1], 1, 9), ALL);
}

#[test]
fn repeated_tokens_are_punished_once() {
    let rules = LogitsProcessorOptions { repetition_penalty: 2.0, ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[1, 1, 3, 90], 1, 9), [1.0, 1.0, -1.0, -4.0, 0.5, 3.0]);
}

#[test]
fn groups_come_once() {
    let rules = LogitsProcessorOptions { no_repeat_ngram_size: 2, ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[1, 0, 1, 2, 1], 1, 9), [NO, 2.0, NO, -2.0, 0.5, 3.0]);
    assert_eq!(after(&rules, &[1], 1, 9), ALL);
    let rules = LogitsProcessorOptions { no_repeat_ngram_size: 1, ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[2], 1, 9), [1.0, 2.0, NO, -2.0, 0.5, 3.0]);
    let rules =
        LogitsProcessorOptions { encoder_no_repeat_ngram_size: 2, ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[0, 1], 1, 9), [1.0, 2.0, -1.0, -2.0, 0.5, NO]);
}

#[test]
fn words_are_forbidden_but_not_the_end() {
    let bad_words = vec![vec![5], vec![0], vec![3, 1], vec![3, 2, 4]];
    let rules =
        LogitsProcessorOptions { bad_words, eos_token_ids: vec![0], ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[3], 0, 9), [1.0, NO, -1.0, -2.0, 0.5, NO]);
    assert_eq!(after(&rules, &[3, 2], 0, 9), [1.0, 2.0, -1.0, -2.0, NO, NO]);
    assert!(
        LogitsProcessorList::new(&LogitsProcessorOptions {
            bad_words: vec![vec![]],
            ..LogitsProcessorOptions::default()
        })
        .is_err()
    );
}

#[test]
fn lengths_count_with_and_without_the_prompt() {
    let rules = LogitsProcessorOptions {
        eos_token_ids: vec![0, 2],
        min_length: 3,
        ..LogitsProcessorOptions::default()
    };
    assert_eq!(after(&rules, &[5, 5], 2, 9), [NO, 2.0, NO, -2.0, 0.5, 3.0]);
    assert_eq!(after(&rules, &[5, 5, 5], 2, 9), ALL);
    let rules =
        LogitsProcessorOptions { eos_token_ids: vec![0], min_tokens: 2, ..LogitsProcessorOptions::default() };
    assert_eq!(after(&rules, &[5, 5, 5], 2, 9)[0], NO);
    assert_eq!(after(&rules, &[5, 5, 5, 5], 2, 9), ALL);
}

#[test]
fn tokens_are_forced_at_either_end() {
    let rules = LogitsProcessorOptions {
        forced_bos_token_id: Some(4),
        forced_eos_token_ids: vec![0, 1],
        ..LogitsProcessorOptions::default()
    };
    assert_eq!(after(&rules, &[5], 1, 9), [NO, NO, NO, NO, 0.0, NO]);
    assert_eq!(after(&rules, &[5, 4], 1, 9), ALL);
    assert_eq!(after(&rules, &[5, 4], 1, 1), [0.0, 0.0, NO, NO, NO, NO]);
}

#[test]
fn what_is_suppressed_first_comes_behind_what_is_forced() {
    let mut rules = LogitsProcessorOptions {
        suppress: vec![3],
        suppress_first: vec![1],
        ..LogitsProcessorOptions::default()
    };
    assert_eq!(after(&rules, &[5], 1, 9), [1.0, NO, -1.0, NO, 0.5, 3.0]);
    assert_eq!(after(&rules, &[5, 5], 1, 9), [1.0, 2.0, -1.0, NO, 0.5, 3.0]);
    rules.forced_bos_token_id = Some(0);
    assert_eq!(after(&rules, &[5, 0], 1, 9), [1.0, NO, -1.0, NO, 0.5, 3.0]);
}

#[test]
fn a_configuration_of_generation_is_all_that_holds() {
    let read = |text: &str| {
        let values = serde_json::from_str(text).unwrap();
        LogitsProcessorOptions::read(&siskin_graph::arch::ConfigReader::new(values), &[7], usize::MAX)
            .unwrap()
    };
    let old = read(r#"{"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "forced_eos_token_id": 2}"#);
    let want = LogitsProcessorOptions {
        eos_token_ids: vec![7],
        no_repeat_ngram_size: 3,
        forced_bos_token_id: Some(0),
        forced_eos_token_ids: vec![2],
        ..LogitsProcessorOptions::default()
    };
    assert_eq!(old, want);
    let new = read(
        r#"{"no_repeat_ngram_size": 3, "eos_token_id": 2,
            "generation": {"suppress_tokens": [-1, 4], "bad_words_ids": [[5], [6, 7]], "min_length": 9}}"#,
    );
    let bad_words = vec![vec![5], vec![6, 7]];
    let want = LogitsProcessorOptions {
        eos_token_ids: vec![2],
        suppress: vec![4],
        bad_words,
        min_length: 9,
        ..LogitsProcessorOptions::default()
    };
    assert_eq!(new, want);
}

//! Timestamp rules and segmentation, tested against OpenAI's description of them.

use super::decode::repetition;
use super::rules::{self, choose, probability};
use super::segments::{SegmentFrames, cut};
use super::special::Special;
use crate::logits_processors::{LogitsProcessorOptions, ProcessorContext};
use crate::sample::random::SamplerRandom;

/// Ids 0 to 9 are text, 10 is the end token, 11 to 14 are control tokens, timestamps begin at 15.
const TIMES: u32 = 15;
const COUNT: usize = 15 + 101;

fn special() -> Special {
    Special {
        end: 10,
        start: 11,
        times: TIMES,
        rules: LogitsProcessorOptions {
            suppress: vec![3, 900],
            suppress_first: vec![0, 10],
            ..LogitsProcessorOptions::default()
        },
        ..Special::default()
    }
}

/// Returns the ids that may follow `written` if all scores are equal except the given ones.
fn allowed(written: &[u32], with_times: bool, scores: &[(usize, f32)]) -> Vec<u32> {
    let mut all = vec![0.0; COUNT];
    for &(id, score) in scores {
        all[id] = score;
    }
    let place = ProcessorContext { source: &[], text: written, prompt: 0, left: 99 };
    rules::of(&special(), with_times).unwrap().apply(&mut all, &place);
    (0..COUNT as u32).filter(|&id| all[id as usize] > f32::NEG_INFINITY).collect()
}

#[test]
fn text_alone_has_its_lists() {
    let text: Vec<u32> = allowed(&[], false, &[]).into_iter().filter(|&id| id < TIMES).collect();
    assert_eq!(text, [1, 2, 4, 5, 6, 7, 8, 9]);
    let text: Vec<u32> = allowed(&[5], false, &[]).into_iter().filter(|&id| id < TIMES).collect();
    assert_eq!(text, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn the_first_is_an_early_time() {
    assert_eq!(allowed(&[], true, &[(5, 100.0)]), (TIMES..=TIMES + 50).collect::<Vec<_>>());
}

#[test]
fn text_follows_the_first_time_and_every_second_of_a_pair() {
    for written in [&[TIMES + 2][..], &[TIMES, 5, TIMES + 9, TIMES + 9]] {
        assert_eq!(allowed(written, true, &[]), [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
    }
}

#[test]
fn a_time_after_text_asks_for_its_pair_or_the_end() {
    let expected: Vec<u32> = (TIMES + 9..COUNT as u32).collect();
    assert_eq!(allowed(&[TIMES, 5, TIMES + 9], true, &[]), expected, "together, times outweigh the end");
    let with_end: Vec<u32> = std::iter::once(10).chain(expected).collect();
    assert_eq!(allowed(&[TIMES, 5, TIMES + 9], true, &[(10, 20.0)]), with_end);
}

#[test]
fn times_do_not_go_back_and_segments_take_time() {
    let likely = &[(6, 20.0)];
    let times = |written: &[u32]| -> Vec<u32> {
        allowed(written, true, likely).into_iter().filter(|&id| id >= TIMES).collect()
    };
    assert_eq!(times(&[TIMES + 3, 5]), (TIMES + 4..COUNT as u32).collect::<Vec<_>>());
    assert_eq!(times(&[TIMES, 5, TIMES + 7, TIMES + 8, 4]), (TIMES + 9..COUNT as u32).collect::<Vec<_>>());
}

#[test]
fn times_win_together() {
    // 97 timestamps of weight 1 outweigh a text token of weight 96, not one of weight 98.
    let lighter = allowed(&[TIMES + 3, 5], true, &[(6, 96_f32.ln())]);
    assert!(lighter.iter().all(|&id| id >= TIMES));
    assert!(allowed(&[TIMES + 3, 5], true, &[(6, 98_f32.ln())]).contains(&6));
}

#[test]
fn the_highest_score_is_chosen_with_its_probability() {
    let scores = [1.0_f32, 3.0, f32::NEG_INFINITY, 3.0];
    let mut random = SamplerRandom::new(1);
    let mut at = |scores: &[f32], temperature| choose(scores, &special(), temperature, &mut random);
    let choice = at(&scores, 0.0);
    let expected = 3.0 - (1_f32.exp() + 2.0 * 3_f32.exp()).ln();
    assert!(choice.id == 1 && (choice.log_probability - expected).abs() < 1e-6);
    assert_eq!(at(&[f32::NEG_INFINITY; 4], 0.0).id, 10);
    assert_eq!(at(&[f32::NEG_INFINITY; 4], 1.0).id, 10);
    let mut counts = [0; 4];
    (0..2000).for_each(|_| counts[at(&scores, 2.0).id as usize] += 1);
    // Weights 1, e, e: probabilities 0.155 and 0.422.
    assert!(
        (250..370).contains(&counts[0]) && (780..910).contains(&counts[1]) && counts[2] == 0,
        "{counts:?}"
    );
    assert!((probability(&scores, 0, &[0, 1]) - 1.0 / (1.0 + 2_f32.exp())).abs() < 1e-6);
    assert_eq!(probability(&scores, 77, &[]), 0.0);
}

#[test]
fn windows_are_cut_between_pairs() {
    let t = |step: u32| TIMES + step;
    let ids = [t(0), 1, t(10), t(12), 2, 3, t(20), t(20), 4];
    let (parts, next) = cut(&ids, TIMES, 3000);
    let part = |start, end, ids| SegmentFrames { start, end, ids };
    assert_eq!(parts, [part(0, 20, &ids[..3]), part(24, 40, &ids[3..7])]);
    assert_eq!(next, 40, "what comes after the last pair is heard again");
    let closed = &ids[..7];
    let (parts, next) = cut(closed, TIMES, 3000);
    assert_eq!(parts, [part(0, 20, &ids[..3]), part(24, 40, &ids[3..7])]);
    assert_eq!(next, 3000);
}

#[test]
fn windows_without_pairs_are_one_segment() {
    let part = |end, ids| vec![SegmentFrames { start: 0, end, ids }];
    assert_eq!(cut(&[1, 2], TIMES, 90), (part(90, &[1, 2]), 90));
    let open = [TIMES + 3, 1];
    assert_eq!(cut(&open, TIMES, 90), (part(6, &open), 90));
    let whole = [TIMES, 1, TIMES + 30];
    assert_eq!(cut(&whole, TIMES, 3000), (part(60, &whole), 3000));
    assert_eq!(cut(&[TIMES, 1], TIMES, 70), (part(70, &[TIMES, 1]), 70));
    assert_eq!(cut(&[], TIMES, 70), (part(70, &[]), 70));
    let beyond = [TIMES, 1, u32::MAX, u32::MAX];
    assert_eq!(cut(&beyond, TIMES, 70).0[0].end, 70);
}

#[test]
fn repetitions_are_noticed_and_end_after_their_first_round() {
    let list = |start: &[u32], group: &[u32], times: usize| [start, &group.repeat(times)].concat();
    assert_eq!(repetition(&list(&[1, 2], &[5], 24)), Some(3));
    assert_eq!(repetition(&list(&[1, 2], &[5], 23)), None);
    assert_eq!(repetition(&list(&[1, 2], &[5, 6, 7], 8)), Some(5));
    assert_eq!(repetition(&list(&[], &[5, 6, 7], 8)), Some(3));
    assert_eq!(repetition(&list(&[9], &(0..32).collect::<Vec<_>>(), 4)), Some(33));
    assert_eq!(repetition(&list(&[9], &(0..33).collect::<Vec<_>>(), 5)), None);
    assert_eq!(repetition(&[]), None);
}

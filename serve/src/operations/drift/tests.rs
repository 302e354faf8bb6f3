//! Prompts from texts of the repository: prose and code.

use std::time::Duration;

use super::*;
use crate::operations::drift::baseline::Feature;

/// Paragraphs of the documentation, and functions of the source, as tokens: words and single marks, numbered.
fn prompts(folders: &[&str], extension: &str) -> Vec<Vec<u32>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text: String = files
        .iter()
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| std::fs::read_to_string(path).unwrap() + "\n\n")
        .collect();
    text.split("\n\n").filter(|part| part.len() > 40).map(tokens).collect()
}

/// Words by their hash, below the size of the vocabulary.
fn tokens(text: &str) -> Vec<u32> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    for part in text.split_inclusive(|c| !is_word(c)) {
        let (word, mark) = part.split_at(part.trim_end_matches(|c| !is_word(c)).len());
        for piece in [word, mark].into_iter().filter(|piece| !piece.is_empty()) {
            tokens.push(
                u32::from_le_bytes(blake3::hash(piece.as_bytes()).as_bytes()[..4].try_into().unwrap())
                    % VOCABULARY,
            );
        }
    }
    tokens
}

const VOCABULARY: u32 = 50_000;

/// A generator of numbers below a bound.
fn random(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % bound
}

/// The indices of prompts that come within a second, by feature.
fn indices(baseline: &DriftBaseline, prompts: &[&Vec<u32>]) -> Vec<(Feature, f64)> {
    let frequencies = baseline.frequencies();
    let features = [Feature::PromptLength, Feature::TokenFrequency];
    let histogram = |feature: &Feature| {
        let counts = baseline.counts(*feature);
        let mut window = WindowHistogram::new(counts.len(), Duration::from_secs(3600));
        for tokens in prompts {
            let bin = match feature {
                Feature::PromptLength => baseline::length_bin(tokens.len()),
                _ => baseline.frequency_bin(&frequencies, tokens).unwrap(),
            };
            window.add(Duration::ZERO, [(bin, 1.0)]);
        }
        (*feature, window.psi(counts))
    };
    features.iter().map(histogram).collect()
}

#[test]
fn halves_of_a_data_set_agree_and_code_differs_from_prose() {
    let (prose, code) = (
        prompts(&["docs", "docs/adr"], "md"),
        prompts(&["serve/src", "serve/src/openai", "serve/src/ollama"], "rs"),
    );
    assert!(prose.len() > 500 && code.len() > 200, "{} and {}", prose.len(), code.len());
    let mut state = 1;
    for _ in 0..100 {
        // Each prompt is in one of both halves, drawn anew each time.
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for prompt in &prose {
            if random(&mut state, 2) == 0 { first.push(prompt) } else { second.push(prompt) }
        }
        let baseline = baseline_of(&first);
        for (feature, index) in indices(&baseline, &second) {
            assert!(index < 0.1, "{}: {index}", feature.name());
        }
    }
    let baseline = baseline_of(&prose.iter().collect::<Vec<_>>());
    let all = indices(&baseline, &code.iter().collect::<Vec<_>>());
    let (_, frequency) = all[1];
    assert!(frequency > 0.25, "{all:?}");
}

fn baseline_of(prompts: &[&Vec<u32>]) -> DriftBaseline {
    let prompts: Vec<BaselinePrompt> = prompts
        .iter()
        .map(|tokens| BaselinePrompt { tokens: (*tokens).clone(), ..BaselinePrompt::default() })
        .collect();
    DriftBaseline::of_tokens(&prompts, VOCABULARY, String::new(), Vec::new())
}

#[test]
fn files_are_read_again_and_wrong_ones_are_not() {
    let prompts = prompts(&["docs"], "md");
    let baseline = baseline_of(&prompts.iter().take(200).collect::<Vec<_>>());
    let text = baseline.to_json();
    assert_eq!(DriftBaseline::parse(&text).unwrap().to_json(), text);
    for (from, to) in [
        ("\"format\":1", "\"format\":2"),
        ("\"vocabulary\":50000", "\"vocabulary\":5"),
        ("\"prompt_length\":[0.0,", "\"prompt_length\":["),
        ("\"prompt_length\":[0.0,", "\"prompt_length\":[-1.0,"),
        ("\"bounds\":[-", "\"bounds\":["),
        ("\"prompts\"", "\"prompt\""),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(DriftBaseline::parse(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
}

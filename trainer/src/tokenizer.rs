//! Training of byte-level BPE tokenizers (arXiv:1508.07909, as in GPT-2), in the form of a Hugging Face
//! `tokenizer.json`.
//!
//! The pre-tokenizer is that of GPT-2. The most frequent pair is merged next; ties are broken by the smaller first
//! byte string, then the smaller second.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use siskin_format::{Error, Result};

/// Ids of all bytes, before any merge.
const BYTES: usize = 256;

/// Splits text into words like GPT-2, with the space before a word as a part of it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = word(rest)?;
        let (word, after) = rest.split_at(length);
        rest = after;
        Some(word)
    })
}

/// Returns the length of the first word in bytes.
fn word(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    for ending in ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"] {
        if text.starts_with(ending) {
            return Some(ending.len());
        }
    }
    let skipped = usize::from(first == ' ');
    let kind = |c: char| match c {
        c if c.is_whitespace() => 0,
        c if c.is_alphabetic() => 1,
        c if c.is_numeric() => 2,
        _ => 3,
    };
    let run = |from: &str, wanted: u8| {
        from.char_indices().find(|(_, c)| kind(*c) != wanted).map_or(from.len(), |(at, _)| at)
    };
    if let Some(next) = text[skipped..].chars().next().filter(|c| !c.is_whitespace()) {
        return Some(skipped + run(&text[skipped..], kind(next)));
    }
    // Whitespace: the last space belongs to the word after it.
    let spaces = run(text, 0);
    let last = text[..spaces].chars().next_back().map_or(0, char::len_utf8);
    Some(if spaces == text.len() || spaces == last { spaces } else { spaces - last })
}

/// Returns GPT-2's mapping of bytes to characters.
fn characters() -> Vec<char> {
    let plain =
        |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte);
    let mut next = 256;
    (0..256_u32)
        .map(|byte| {
            let code = if plain(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap_or('?')
        })
        .collect()
}

/// Trains a tokenizer of `vocabulary` ids on `texts`; the last ids are `special`.
pub fn train<'a>(texts: impl Iterator<Item = &'a str>, vocabulary: usize, special: &[&str]) -> Result<Value> {
    let mut words = WordCounts::default();
    texts.for_each(|text| words.add(text));
    words.train(vocabulary, special)
}

/// Word counts of the training text: all that the training of a tokenizer depends on.
#[derive(Clone, Debug, Default)]
pub struct WordCounts {
    counts: BTreeMap<String, u64>,
}

impl WordCounts {
    /// Counts the words of a text.
    pub fn add(&mut self, text: &str) {
        for word in words(text) {
            match self.counts.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(word.to_owned(), 1);
                }
            }
        }
    }

    /// Trains a tokenizer of `vocabulary` ids; the last ids are `special`.
    pub fn train(self, vocabulary: usize, special: &[&str]) -> Result<Value> {
        let max_merges = vocabulary.checked_sub(BYTES + special.len()).ok_or_else(|| {
            let least = BYTES + special.len();
            Error::argument(
                "model.tokenizer_vocab_size",
                format!("expected at least {least}, for all bytes and the special tokens, got {vocabulary}"),
            )
        })?;
        let mut learner = BpeTrainer::new(self.counts);
        let mut merges = Vec::new();
        while merges.len() < max_merges {
            let Some(pair) = learner.best() else { break };
            merges.push(pair);
            learner.join(pair, (BYTES + merges.len() - 1) as u32);
        }
        Ok(as_json(&learner.pieces, &merges, special))
    }
}

/// A pair of ids.
type Pair = (u32, u32);

struct BpeTrainer {
    /// The words as ids, and their counts.
    words: Vec<(Vec<u32>, u64)>,
    /// The count of each pair, and the words that it has occurred in.
    pairs: HashMap<Pair, (u64, Vec<usize>)>,
    /// The bytes of each id.
    pieces: Vec<Vec<u8>>,
}

impl BpeTrainer {
    fn new(counts: BTreeMap<String, u64>) -> Self {
        let words: Vec<(Vec<u32>, u64)> =
            counts.into_iter().map(|(word, count)| (word.bytes().map(u32::from).collect(), count)).collect();
        let pieces = (0..=255_u8).map(|byte| vec![byte]).collect();
        let mut learner = Self { words, pairs: HashMap::new(), pieces };
        (0..learner.words.len()).for_each(|word| learner.count(word, true));
        learner
    }

    /// Adds or removes the pairs of a word.
    fn count(&mut self, word: usize, add: bool) {
        let (ids, count) = &self.words[word];
        for pair in ids.windows(2) {
            let (total, places) = self.pairs.entry((pair[0], pair[1])).or_default();
            if add {
                *total += count;
                if places.last() != Some(&word) {
                    places.push(word);
                }
            } else {
                *total -= count;
            }
        }
    }

    fn best(&self) -> Option<Pair> {
        let bytes = |id: u32| &self.pieces[id as usize];
        let order = |pair: &Pair| (std::cmp::Reverse(bytes(pair.0)), std::cmp::Reverse(bytes(pair.1)));
        let there = self.pairs.iter().filter(|(_, (count, _))| *count > 1);
        there.max_by_key(|(pair, (count, _))| (*count, order(pair))).map(|(pair, _)| *pair)
    }

    fn join(&mut self, pair: Pair, id: u32) {
        let (_, mut places) = self.pairs.remove(&pair).unwrap_or_default();
        self.pairs.insert(pair, (0, Vec::new()));
        places.sort_unstable();
        places.dedup();
        let joined = [&self.pieces[pair.0 as usize][..], &self.pieces[pair.1 as usize]].concat();
        self.pieces.push(joined);
        for word in places {
            if !self.words[word].0.windows(2).any(|ids| (ids[0], ids[1]) == pair) {
                continue;
            }
            // The counts of the removed pair were already removed with it.
            let own = self.words[word].0.windows(2).filter(|ids| (ids[0], ids[1]) == pair).count() as u64;
            if let Some((count, _)) = self.pairs.get_mut(&pair) {
                *count += own * self.words[word].1;
            }
            self.count(word, false);
            let (ids, _) = &mut self.words[word];
            let mut out = Vec::with_capacity(ids.len());
            let mut at = 0;
            while at < ids.len() {
                let joins = ids.get(at + 1).is_some_and(|&next| (ids[at], next) == pair);
                out.push(if joins { id } else { ids[at] });
                at += if joins { 2 } else { 1 };
            }
            *ids = out;
            self.count(word, true);
        }
        self.pairs.retain(|_, (count, _)| *count > 0);
    }
}

fn as_json(pieces: &[Vec<u8>], merges: &[Pair], special: &[&str]) -> Value {
    let characters = characters();
    let text =
        |id: usize| -> String { pieces[id].iter().map(|byte| characters[usize::from(*byte)]).collect() };
    let mut vocabulary = serde_json::Map::new();
    (0..pieces.len()).for_each(|id| {
        vocabulary.insert(text(id), id.into());
    });
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(index, name)| {
            json!({
                "id": pieces.len() + index, "content": name, "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    special.iter().enumerate().for_each(|(index, name)| {
        vocabulary.insert((*name).to_owned(), (pieces.len() + index).into());
    });
    let merges: Vec<Value> =
        merges.iter().map(|(a, b)| json!([text(*a as usize), text(*b as usize)])).collect();
    json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "vocab": vocabulary, "merges": merges,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pre_tokenization_matches_gpt2() {
        let cut = |text| words(text).collect::<Vec<_>>();
        assert_eq!(
            cut("I'll be  there, 42 times!\n\nOK "),
            ["I", "'ll", " be", " ", " there", ",", " 42", " times", "!", "\n", "\n", "OK", " "]
        );
        assert_eq!(cut(" don't"), [" don", "'t"]);
        assert_eq!(cut("  "), ["  "]);
        assert_eq!(cut(""), [""; 0]);
    }

    #[test]
    fn the_most_frequent_pairs_are_merged_first() {
        let made = train(["low low low lower lowest"].into_iter(), 262, &["<end>"]).unwrap();
        let merges = made["model"]["merges"].as_array().unwrap();
        assert_eq!(merges[0], json!(["l", "o"]));
        assert_eq!(merges[1], json!(["lo", "w"]));
        assert_eq!(merges[2], json!(["Ġ", "low"]));
        assert_eq!(made["added_tokens"][0]["id"], 256 + merges.len());
        assert!(train([""].into_iter(), 200, &[]).is_err());
    }
}

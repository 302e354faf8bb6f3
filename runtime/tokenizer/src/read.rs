//! Reading a section back to a [`Vocabulary`], to write the tokenizer in another format.

use super::Tokenizer;
use super::normalize::Normalizer;
use super::record::TokenizerRecord;
use super::section::{NONE, SectionTable, SectionView, attribute, field, flag, u32_at};
use super::split::PreTokenizerStep;
use super::token_kind::TokenKind;
use super::trie::Trie;
use super::vocabulary::{Merges, SpecialIds, Vocabulary, VocabularyToken};
use siskin_format::{Error, Result};
use std::collections::HashSet;

impl Tokenizer {
    /// Returns a vocabulary from which [`Vocabulary::write`] creates this section.
    ///
    /// If merges were created from scores, the scores may differ but have the same order. Which of several tokens with
    /// the same text are matched in normalized text is only preserved if it makes a difference.
    pub fn vocabulary(&self) -> Result<Vocabulary> {
        let view = self.view();
        let normalized: HashSet<u32> = match Trie::open(self.section.table(SectionTable::NormalizedTrie)) {
            Some(trie) => trie.all().collect(),
            None => HashSet::new(),
        };
        let token = |id: u32| -> Result<VocabularyToken> {
            let bits = view.attributes_of(id);
            Ok(VocabularyToken {
                text: self.token_text(id)?.to_vec(),
                kind: TokenKind::from_number(bits & attribute::KIND),
                score: view.score(id),
                continues: bits & attribute::CONTINUES != 0,
                strip_left: bits & attribute::STRIP_LEFT != 0,
                strip_right: bits & attribute::STRIP_RIGHT != 0,
                single_word: bits & attribute::SINGLE_WORD != 0,
                normalized: normalized.contains(&id),
            })
        };
        let mut tokens = (0..self.vocabulary_size()).map(token).collect::<Result<Vec<_>>>()?;
        let merges = merges(view, &mut tokens)?;
        let has = |flag: u32| view.has(flag);
        Ok(Vocabulary {
            merges,
            byte_level: has(flag::BYTE_LEVEL),
            spells_spaces: has(flag::SPACES),
            byte_fallback: has(flag::BYTE_FALLBACK),
            fuse_unknown: has(flag::FUSE_UNKNOWN),
            whole_first: has(flag::WHOLE_FIRST),
            unknown_score: Some(f32::from_bits(self.section.field(field::UNKNOWN_SCORE))),
            longest_word: self.section.field(field::MAX_WORD_CHARS),
            trim: self.trim,
            normalizers: self.read("normalizer", SectionTable::Normalizer, Normalizer::from_record)?,
            charsmap: self.section.table(SectionTable::Charsmap).to_vec(),
            pre_tokenizers: self.read(
                "pre_tokenizer",
                SectionTable::PreTokenizer,
                PreTokenizerStep::from_record,
            )?,
            special: self.special(),
            add_bos: has(flag::ADD_BOS),
            add_eos: has(flag::ADD_EOS),
            single: self.single.clone(),
            pair: self.pair.clone(),
            ends: self.ends.clone(),
            strip_leading_space: has(flag::STRIP_LEADING_SPACE),
            join_words: has(flag::JOIN_WORDS),
            clean_spaces: has(flag::CLEAN_SPACES),
            ..Vocabulary::new(self.model, tokens)
        })
    }

    fn read<T>(
        &self,
        name: &str,
        table: SectionTable,
        step: fn(TokenizerRecord) -> Result<T>,
    ) -> Result<Vec<T>> {
        TokenizerRecord::read_all(self.section.table(table), name)?.into_iter().map(step).collect()
    }

    fn special(&self) -> SpecialIds {
        SpecialIds {
            bos: self.bos(),
            eos: self.eos(),
            eot: self.eot(),
            unknown: self.unk(),
            pad: self.pad(),
            separator: self.sep(),
            class: self.cls(),
            mask: self.mask(),
        }
    }
}

/// Returns the merges by rank. Equal ranks mean that merges were created from scores, which are then set in `tokens`.
fn merges(view: SectionView<'_>, tokens: &mut [VocabularyToken]) -> Result<Merges> {
    let mut entries: Vec<[u32; 4]> = view
        .merges
        .as_chunks::<16>()
        .0
        .iter()
        .map(|entry| [0, 1, 2, 3].map(|index| u32_at(entry, index).unwrap_or(NONE)))
        .filter(|entry| entry[0] != NONE)
        .collect();
    entries.sort_unstable_by_key(|&[left, right, merged, rank]| (rank, left, right, merged));
    let from_scores = entries.windows(2).any(|pair| pair[0][3] == pair[1][3]);
    if from_scores {
        for [_, _, merged, rank] in entries {
            if let Some(token) = tokens.get_mut(merged as usize) {
                token.score = -(rank as f32);
            }
        }
        return Ok(Merges::FromScores);
    }
    let text = |symbol: u32| {
        let text = view.text_of(symbol).map(<[u8]>::to_vec);
        text.ok_or_else(|| Error::corrupt("tokenizer.merges", format!("there is no symbol {symbol}")))
    };
    let pairs = entries.into_iter().map(|[left, right, ..]| Ok((text(left)?, text(right)?)));
    pairs.collect::<Result<_>>().map(Merges::Listed)
}

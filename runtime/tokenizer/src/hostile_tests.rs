//! Corrupt and hostile sections and vocabularies give errors or wrong tokens, never a panic.

use super::*;
use siskin_format::ErrorKind;

fn small() -> Vocabulary {
    let mut tokens: Vec<VocabularyToken> =
        (0..=255u8).map(|byte| VocabularyToken::new(vec![byte], TokenKind::Normal)).collect();
    for text in ["ab", "abc", " x"] {
        tokens.push(VocabularyToken::new(text, TokenKind::Normal));
    }
    tokens.push(VocabularyToken::new("<end>", TokenKind::Control));
    tokens.push(VocabularyToken::new("<user>", TokenKind::UserDefined));
    let mut vocabulary = Vocabulary::new(ModelKind::Bpe, tokens);
    vocabulary.byte_level = true;
    let pair = |left: &str, right: &str| (left.as_bytes().to_vec(), right.as_bytes().to_vec());
    vocabulary.merges = Merges::Listed(vec![pair("a", "b"), pair("ab", "c"), pair(" ", "x")]);
    vocabulary.pre_tokenizers = vec![PreTokenizerStep::isolated(r" ?\p{L}+|\s+")];
    vocabulary.normalizers = vec![Normalizer::Nfc, Normalizer::Replace { from: "Q".into(), to: "q".into() }];
    vocabulary
}

fn unigram() -> Vocabulary {
    let texts = ["a", "b", "ab", "abab", " "];
    let mut tokens = vec![VocabularyToken::new("<unk>", TokenKind::Unknown)];
    for (index, text) in texts.iter().enumerate() {
        tokens.push(VocabularyToken {
            score: -(index as f32),
            ..VocabularyToken::new(*text, TokenKind::Normal)
        });
    }
    let mut vocabulary = Vocabulary::new(ModelKind::Unigram, tokens);
    vocabulary.special.unknown = Some(0);
    vocabulary
}

fn exercise(section: Vec<u8>) {
    let Ok(tokenizer) = Tokenizer::open(Bytes::new(section)) else { return };
    let text = "abc ab x <end><user> Qé\u{301} \u{2581}abababab 12345 ababcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc";
    for options in [false, true].map(|on| EncodeOptions { add_special: on, parse_special: on }) {
        if let Ok(tokens) = tokenizer.encode_with_offsets(text, options) {
            let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            let spans = tokens.iter().map(|token| tokenizer.span(text, token));
            spans.for_each(|(start, end)| assert!(text.get(start..end).is_some(), "{start} to {end}"));
            let _ = tokenizer.decode(&ids, DecodeOptions::default());
        }
    }
    let _ = tokenizer.token_to_id(b"abc");
    (0..300).for_each(|id| {
        let _ = tokenizer.piece(id, true);
    });
}

/// A small deterministic random number generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn damaged_sections_never_panic() {
    let mut state = 7;
    for section in [small().write().unwrap(), unigram().write().unwrap()] {
        exercise(section.clone());
        for _ in 0..3000 {
            let mut damaged = section.clone();
            for _ in 0..1 + next(&mut state) % 4 {
                // Half of the corruption targets the header, which matters most.
                let reach = if next(&mut state).is_multiple_of(2) { 256 } else { damaged.len() };
                let at = next(&mut state) as usize % reach;
                damaged[at] = [0, 1, 0x7F, 0xFF, next(&mut state) as u8][next(&mut state) as usize % 5];
            }
            exercise(damaged);
        }
        for length in (0..section.len()).step_by(97) {
            exercise(section[..length].to_vec());
        }
    }
}

#[test]
fn impossible_vocabularies_are_rejected() {
    let rejected = |change: fn(&mut Vocabulary)| {
        let mut vocabulary = small();
        change(&mut vocabulary);
        vocabulary.write().err().unwrap_or_else(|| panic!("was accepted"))
    };
    assert!(rejected(|v| v.tokens.clear()).location().contains("tokens"));
    assert!(
        rejected(|v| v.merges = Merges::Listed(vec![(vec![], b"a".to_vec())]))
            .location()
            .contains("merges[0]")
    );
    assert!(rejected(|v| v.special.bos = Some(9999)).location().contains("special"));
    assert!(rejected(|v| v.ends = vec![9999]).message().contains("9999"));
    assert!(rejected(|v| v.tokens[3].score = f32::NAN).location().contains("scores[3]"));
    assert!(rejected(|v| v.tokens[3].text = vec![b'a'; 1 << 17]).location().contains("tokens[3]"));
    assert!(
        rejected(|v| v.pre_tokenizers = vec![PreTokenizerStep::isolated("(")]).location().contains("pattern")
    );
    assert!(rejected(|v| v.normalizers = vec![Normalizer::Charsmap]).location().contains("charsmap"));
    assert!(
        rejected(|v| v.normalizers = vec![Normalizer::Suffix("x".repeat(4096))])
            .location()
            .contains("normalizer")
    );
}

/// Covers every kind of token that is matched by a trie.
#[test]
fn tokens_too_long_to_look_for_are_rejected() {
    let long = |length: usize, kind| VocabularyToken::new(vec![b'a'; length], kind);
    for (model, kind) in [
        (ModelKind::Unigram, TokenKind::Normal),
        (ModelKind::WordPiece, TokenKind::Normal),
        (ModelKind::Bpe, TokenKind::UserDefined),
    ] {
        let write = |length| {
            let mut vocabulary = Vocabulary { model, ..unigram() };
            vocabulary.tokens.push(long(length, kind));
            vocabulary.write()
        };
        assert!(write(1024).is_ok());
        let error = write(1025).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.location().contains("tokens[6]"), "{error}");
    }
}

#[test]
fn templates_that_repeat_the_text_are_rejected() {
    let open = |texts: usize| {
        let mut vocabulary = small();
        vocabulary.pair = vec![TemplateItem::First { token_type: 0 }; texts];
        vocabulary.write()
    };
    let mut section = open(4).unwrap();
    assert!(open(5).unwrap_err().location().contains("template"));
    assert!(Tokenizer::open(Bytes::new(section.clone())).is_ok());
    // Lists of one and of four texts: the first list's count is set to five, so that it reads the second list's count
    // as an item.
    let table = u32::from_le_bytes(section[96 + 8 * 13..][..4].try_into().unwrap()) as usize;
    let items: Vec<u8> =
        [5u32].into_iter().chain([1, 0, 0].repeat(5)).chain([0]).flat_map(u32::to_le_bytes).collect();
    assert!(items.len() <= 4 * (2 + 3 * 5));
    section[table..table + items.len()].copy_from_slice(&items);
    let error = Tokenizer::open(Bytes::new(section)).unwrap_err();
    assert!(error.message().contains("5 texts"), "{error}");
}

#[test]
fn steps_that_blow_text_up_stop_in_time() {
    let mut vocabulary = small();
    vocabulary.normalizers = vec![Normalizer::Replace { from: "a".into(), to: "b".repeat(128) }];
    let tokenizer = Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap();
    let (text, mut scratch) = ("a".repeat(1 << 16), EncodeScratch::default());
    let encode = |text: &str, scratch: &mut EncodeScratch| {
        tokenizer.encode_into(text, EncodeOptions::default(), scratch, &mut Vec::new())
    };
    assert!(encode("aa", &mut scratch).is_ok());
    assert_eq!(encode(&text, &mut scratch).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(scratch.longest_text() <= 64 * text.len(), "{}", scratch.longest_text());
    assert!(encode("aa", &mut scratch).is_ok());
}

#[test]
fn duplicate_tokens_and_merges_keep_the_first() {
    let mut vocabulary = small();
    vocabulary.tokens.push(VocabularyToken::new("ab", TokenKind::Normal));
    let Merges::Listed(merges) = &mut vocabulary.merges else { panic!() };
    merges.extend(merges.clone());
    let tokenizer = Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap();
    assert_eq!(tokenizer.encode("ab", EncodeOptions::default()).unwrap(), [256]);
}

#[test]
fn long_runs_take_little_time() {
    let mut vocabulary = small();
    vocabulary.pre_tokenizers.clear();
    vocabulary.tokens.push(VocabularyToken::new("aa", TokenKind::Normal));
    vocabulary.tokens.push(VocabularyToken::new("aaaa", TokenKind::Normal));
    vocabulary.merges =
        Merges::Listed(vec![(b"a".to_vec(), b"a".to_vec()), (b"aa".to_vec(), b"aa".to_vec())]);
    let tokenizer = Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap();
    let text = "a".repeat(1 << 20);
    let started = std::time::Instant::now();
    let ids = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
    assert_eq!(ids.len(), 1 << 18);
    // A quadratic merge would take hours.
    assert!(started.elapsed().as_secs() < 600);
}

#[test]
fn control_tokens_are_found_only_on_request() {
    let tokenizer = Tokenizer::open(Bytes::new(small().write().unwrap())).unwrap();
    let [end, user] = [b"<end>".as_slice(), b"<user>"].map(|text| tokenizer.token_to_id(text).unwrap());
    let plain = tokenizer.encode("<end><user>", EncodeOptions::default()).unwrap();
    assert!(!plain.contains(&end) && plain.contains(&user));
    let parsed =
        tokenizer.encode("<end><user>", EncodeOptions { parse_special: true, add_special: false }).unwrap();
    assert_eq!(parsed, [end, user]);
    assert_eq!(tokenizer.decode(&parsed, DecodeOptions { skip_special: true }).unwrap(), b"<user>");
    assert_eq!(tokenizer.piece(end, false).unwrap().as_ref(), b"");
    assert!(tokenizer.piece(100_000, true).is_err());
    assert!(tokenizer.encode_bytes(b"a\xff", EncodeOptions::default()).is_err());
}

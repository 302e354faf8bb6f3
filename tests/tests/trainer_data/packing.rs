//! Files of packed tokens.

use std::path::Path;

use siskin::ErrorKind;
use siskin::file::Bytes;
use siskin_trainer::data::packed::identity;
use siskin_trainer::data::{
    PackedTokenFile, PackedWriter, Records, RecordsInMemory, Sink, Subset, TokenizedDocument,
};
use siskin_trainer::random::Random;

use super::common::{folder, tokenizer};

fn random_records(count: usize, parts: usize, vocabulary: u32, labeled: bool) -> Vec<TokenizedDocument> {
    let mut random = Random::new(2, &[u64::from(vocabulary)]);
    let mut list = |max| -> Vec<u32> {
        (0..random.below(max)).map(|_| random.below(u64::from(vocabulary)) as u32).collect()
    };
    let mut records: Vec<TokenizedDocument> = (0..count)
        .map(|number| TokenizedDocument {
            parts: (0..parts).map(|_| list(50)).collect(),
            label: labeled.then_some(number as u32 % 5),
            hash: 0,
        })
        .collect();
    // A record that is read in several chunks, and the largest id.
    records[1].parts[0] = (0..40_000).map(|number| number % vocabulary).collect();
    records[0].parts[0] = vec![vocabulary - 1, 0];
    records
}

fn write(path: &Path, records: &[TokenizedDocument], vocabulary: u32) {
    let mut writer = PackedWriter::create(path, vocabulary, records[0].parts.len(), 42).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap();
}

fn assert_same(packed: &dyn Records, records: &[TokenizedDocument]) {
    assert_eq!(packed.count(), records.len());
    for (number, record) in records.iter().enumerate() {
        assert_eq!(packed.label(number), record.label);
        for (part, list) in record.parts.iter().enumerate() {
            assert_eq!(packed.length(number, part), list.len());
            assert_eq!(packed.list(number, part).unwrap(), *list);
            let some = list.len() / 3..list.len() / 2;
            let mut found = vec![9];
            packed.read(number, part, some.clone(), &mut found).unwrap();
            assert_eq!(found[1..], list[some]);
        }
    }
}

#[test]
fn packed_files_round_trip() {
    let folder = folder("packed");
    for (vocabulary, parts, labeled) in
        [(100, 1, false), (65_536, 3, true), (65_537, 2, false), (u32::MAX, 1, true)]
    {
        let path = folder.join(format!("{vocabulary}.tokens"));
        let records = random_records(200, parts, vocabulary, labeled);
        write(&path, &records, vocabulary);
        let packed = PackedTokenFile::open(&path).unwrap();
        assert_same(&packed, &records);
        let tokens = records.iter().flat_map(|record| &record.parts).map(Vec::len).sum::<usize>();
        assert_eq!(
            (packed.tokens(), packed.vocabulary(), packed.identity()),
            (tokens as u64, vocabulary, 42)
        );
        let width = if vocabulary <= 65_536 { 2 } else { 4 };
        let bytes = std::fs::read(&path).unwrap();
        let classes = if labeled { 4 * records.len() } else { 0 };
        let tables = 8 * (records.len() * parts + 1) + classes;
        assert_eq!(bytes.len(), 64 + (tokens * width).next_multiple_of(8) + tables);
        assert_same(&PackedTokenFile::from_bytes(Bytes::new(bytes)).unwrap(), &records);
        let mut memory = RecordsInMemory::new(vocabulary, parts).unwrap();
        records.iter().for_each(|record| memory.push(record).unwrap());
        assert_same(&memory, &records);
        for beyond in [records.len(), usize::MAX, usize::MAX / 2] {
            assert_eq!((packed.length(beyond, 0), packed.label(beyond)), (0, None));
        }
        assert_eq!(packed.length(0, parts), 0);
        assert!(packed.read(0, 0, 0..3, &mut Vec::new()).is_err(), "three of two tokens");
    }
    let empty = folder.join("empty.tokens");
    PackedWriter::create(&empty, 10, 1, 0).unwrap().finish().unwrap();
    assert_eq!(PackedTokenFile::open(empty).unwrap().count(), 0);
}

fn kept(records: &[TokenizedDocument], vocabulary: u32) -> RecordsInMemory {
    let mut memory = RecordsInMemory::new(vocabulary, records[0].parts.len()).unwrap();
    records.iter().for_each(|record| memory.push(record).unwrap());
    memory
}

#[test]
fn fingerprints_depend_on_the_records() {
    let records = |lists: [&[u32]; 2], label: Option<u32>| {
        lists.map(|list| TokenizedDocument { parts: vec![list.to_vec(), vec![]], label, hash: 0 })
    };
    let first = records([&[1, 2], &[3]], None);
    let all = [
        kept(&first, 300).fingerprint(),
        kept(&first[..1], 300).fingerprint(),
        kept(&records([&[3], &[1, 2]], None), 300).fingerprint(),
        kept(&records([&[1], &[2, 3]], None), 300).fingerprint(),
        kept(&records([&[1, 2], &[4]], None), 300).fingerprint(),
        kept(&records([&[1, 2], &[3]], Some(0)), 300).fingerprint(),
        kept(&records([&[1, 2], &[3]], Some(1)), 300).fingerprint(),
        Subset::new(kept(&first, 300), |_| false).unwrap().fingerprint(),
        RecordsInMemory::new(300, 2).unwrap().fingerprint(),
    ];
    for (place, one) in all.iter().enumerate() {
        assert!(!all[place + 1..].contains(one), "{place} is another");
    }
    // The same in a file; for older files without this entry, it is derived from the lengths.
    let mut bytes = bytes_of(&first, 300);
    let open = |bytes: &[u8]| PackedTokenFile::from_bytes(Bytes::new(bytes.to_vec())).unwrap().fingerprint();
    assert_eq!(open(&bytes), all[0]);
    bytes[52..60].fill(0);
    let mut other = bytes_of(&records([&[1], &[2, 3]], None), 300);
    other[52..60].fill(0);
    assert_ne!(open(&bytes), open(&other));
}

/// Checks the format byte by byte.
#[test]
fn the_file_layout_is_as_documented() {
    let path = folder("bytes").join("a.tokens");
    let records = [(vec![1, 258], 3), (vec![2], 4)].map(|(list, label)| TokenizedDocument {
        parts: vec![list],
        label: Some(label),
        hash: 0,
    });
    write(&path, &records, 300);
    let mut wanted = b"SISKINTK".to_vec();
    for word in [1_u32, 2, 300, 1, 42, 0, 2, 0, 3, 0, 1] {
        wanted.extend(word.to_le_bytes());
    }
    wanted.extend(kept(&records, 300).fingerprint().to_le_bytes());
    wanted.extend([0; 4]);
    wanted.extend([1, 0, 2, 1, 2, 0, 0, 0]);
    for start in [0_u64, 2, 3] {
        wanted.extend(start.to_le_bytes());
    }
    wanted.extend([3, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(std::fs::read(path).unwrap(), wanted);
}

#[test]
fn files_appear_only_when_complete() {
    let path = folder("atomic").join("a.tokens");
    let mut writer = PackedWriter::create(&path, 10, 1, 0).unwrap();
    writer.push(&TokenizedDocument { parts: vec![vec![1]], ..TokenizedDocument::default() }).unwrap();
    for (record, what) in [
        (
            TokenizedDocument { parts: vec![vec![10]], ..TokenizedDocument::default() },
            "record 1: contains token 10, beyond the vocabulary of 10",
        ),
        (TokenizedDocument { parts: vec![vec![1]; 2], ..TokenizedDocument::default() }, "record 1: 2 lists"),
        (TokenizedDocument { parts: vec![vec![1]], label: Some(1), hash: 0 }, "record 1: a class"),
    ] {
        let error = writer.push(&record).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    drop(writer);
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    assert!(PackedWriter::create(&path, 10, 0, 0).is_err());
    assert!(PackedWriter::create(&path, 10, 9, 0).is_err());
}

fn bytes_of(records: &[TokenizedDocument], vocabulary: u32) -> Vec<u8> {
    let path = folder("hostile").join("a.tokens");
    write(&path, records, vocabulary);
    std::fs::read(path).unwrap()
}

#[test]
fn hostile_files_are_rejected() {
    let records = [vec![1, 2, 3], vec![4, 5]].map(|list| TokenizedDocument {
        parts: vec![list],
        label: Some(1),
        hash: 0,
    });
    let good = bytes_of(&records, 10);
    for length in 0..good.len() {
        assert!(PackedTokenFile::from_bytes(Bytes::new(good[..length].to_vec())).is_err(), "{length} bytes");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(PackedTokenFile::from_bytes(Bytes::new(longer)).is_err(), "one byte more");
    let starts = 64 + 16;
    let rows: [(usize, &[u8], ErrorKind, &str); 16] = [
        (0, b"X", ErrorKind::Corrupt, "header.magic"),
        (8, &[2], ErrorKind::Version, "header.version"),
        (12, &[4], ErrorKind::Corrupt, "do not fill"),
        (12, &[3], ErrorKind::Corrupt, "header.width"),
        (12, &[0], ErrorKind::Corrupt, "header.width"),
        (20, &[0], ErrorKind::Corrupt, "header.parts"),
        (20, &[9], ErrorKind::Corrupt, "header.parts"),
        (20, &[2], ErrorKind::Corrupt, "do not fill"),
        (32, &[255; 8], ErrorKind::Corrupt, "do not fill"),
        (40, &[255; 8], ErrorKind::Corrupt, "do not fill"),
        (48, &[0], ErrorKind::Corrupt, "do not fill"),
        (48, &[2], ErrorKind::Corrupt, "header.labels"),
        (63, &[1], ErrorKind::Corrupt, "header.reserved"),
        (starts, &[1], ErrorKind::Corrupt, "starts[0]"),
        (starts + 8, &[6], ErrorKind::Corrupt, "starts[2]"),
        (starts + 16, &[4], ErrorKind::Corrupt, "starts[2]"),
    ];
    for (at, change, kind, what) in rows {
        let mut bytes = good.clone();
        bytes[at..at + change.len()].copy_from_slice(change);
        let error =
            PackedTokenFile::from_bytes(Bytes::new(bytes)).err().unwrap_or_else(|| panic!("{what} at {at}"));
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(what), "at {at}: {error}");
    }
}

#[test]
fn ids_outside_the_vocabulary_are_rejected_on_read() {
    for vocabulary in [10, 100_000] {
        let records = [vec![1, 2], vec![3, 4]]
            .map(|list| TokenizedDocument { parts: vec![list], ..TokenizedDocument::default() });
        let mut bytes = bytes_of(&records, vocabulary);
        let width = if vocabulary == 10 { 2 } else { 4 };
        bytes[64 + 3 * width..64 + 4 * width].fill(0xFF);
        let packed = PackedTokenFile::from_bytes(Bytes::new(bytes)).unwrap();
        assert_eq!(packed.list(0, 0).unwrap(), [1, 2]);
        let error = packed.list(1, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(
            error.to_string().contains("record 1, part 0") && error.to_string().contains("beyond"),
            "{error}"
        );
    }
}

#[test]
fn files_truncated_while_open_give_an_error() {
    let path = folder("cut").join("a.tokens");
    let records = random_records(20, 1, 1000, false);
    write(&path, &records, 1000);
    let packed = PackedTokenFile::open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(70).unwrap();
    let error = packed.list(1, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("a.tokens: 70 bytes, but "), "{error}");
    let folder = PackedTokenFile::open(path.parent().unwrap()).err().unwrap();
    assert_eq!(folder.kind(), ErrorKind::Unsupported, "{folder}");
}

#[test]
fn tokens_of_another_tokenizer_are_detected() {
    let tokenizer = tokenizer();
    let own = identity(&tokenizer).unwrap();
    assert_eq!(identity(&tokenizer.clone()).unwrap(), own);
    let mut vocabulary = tokenizer.vocabulary().unwrap();
    vocabulary.normalizers.clear();
    let other = siskin::tokenizer::Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap();
    assert_ne!(identity(&other).unwrap(), own, "the same tokens, made otherwise");
    let packed =
        PackedTokenFile::from_bytes(Bytes::new(bytes_of(&random_records(3, 1, 10, false), 10))).unwrap();
    assert!(packed.expect(42).is_ok());
    let error = packed.expect(own).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
}

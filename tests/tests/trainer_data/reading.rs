//! Documents from files, and their tokens.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use siskin::tokenizer::EncodeOptions;
use siskin::{Error, ErrorKind};
use siskin_trainer::data::source::{Body, DocumentSeparator, Field, JsonLines, PlainText};
use siskin_trainer::data::{
    Divider, Document, DocumentTokenizer, PackedTokenFile, PackedWriter, ReadOptions, RecordList, Records,
    RecordsInMemory, Sink, Split, SplitSide, Subset, TaskEntry, TokenizedDocument, documents,
};

use super::common::{folder, memory, random_documents, tokenizer, write_documents};

fn texts(documents: impl Iterator<Item = siskin::Result<Document>>) -> Vec<(Vec<String>, String)> {
    let texts = |document: siskin::Result<Document>| {
        let document = document.unwrap();
        let Body::Texts(texts) = document.body else { panic!("tokens") };
        (texts, document.place)
    };
    documents.map(texts).collect()
}

fn plain(text: &'static str, cut: DocumentSeparator) -> Vec<(String, String)> {
    let reading = ReadOptions { separator: cut, ..ReadOptions::default() };
    let documents = PlainText.documents(Box::new(text.as_bytes()), "f", &reading).unwrap();
    texts(documents).into_iter().map(|(mut texts, place)| (texts.remove(0), place)).collect()
}

/// A text, where it is cut, and the documents with their places.
type Cutting<'a> = (&'static str, DocumentSeparator, &'a [(&'a str, &'a str)]);

#[test]
fn plain_text_is_split_at_the_separator() {
    let owned = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(text, place)| ((*text).to_owned(), (*place).to_owned())).collect()
    };
    let bar = || DocumentSeparator::Text("|".to_owned());
    let rows: [Cutting<'_>; 10] = [
        ("", DocumentSeparator::BlankLines, &[]),
        ("a\nb\n \t\n\nc", DocumentSeparator::BlankLines, &[("a\nb", "f:1"), ("c", "f:5")]),
        ("\n\r\na\r\nb\r\n\r\nc\r\n", DocumentSeparator::BlankLines, &[("a\nb", "f:3"), ("c", "f:6")]),
        ("\u{FEFF}a\n", DocumentSeparator::BlankLines, &[("a", "f:1")]),
        ("\n\u{FEFF}a\n", DocumentSeparator::BlankLines, &[("\u{FEFF}a", "f:2")]),
        ("a|b|\nc\n\nd\n|e", bar(), &[("a", "f:1"), ("b", "f:1"), ("c\n\nd", "f:2"), ("e", "f:5")]),
        ("||\n|a|||", bar(), &[("a", "f:2")]),
        ("a\n\n|b\n", DocumentSeparator::Files, &[("a\n\n|b", "f:1")]),
        (" \n\n", DocumentSeparator::Files, &[]),
        ("  a  \n", DocumentSeparator::Files, &[("  a  ", "f:1")]),
    ];
    for (text, cut, wanted) in rows {
        assert_eq!(plain(text, cut.clone()), owned(wanted), "{text:?} {cut:?}");
    }
}

fn json(text: &'static str, reading: &ReadOptions) -> Vec<siskin::Result<Document>> {
    JsonLines.documents(Box::new(text.as_bytes()), "f", reading).unwrap().collect()
}

#[test]
fn json_lines_are_read_by_field() {
    let pairs = TaskEntry::of("contrastive").unwrap().reading();
    let lines = "{\"anchor\": \"a\\n\", \"positive\": \"b\", \"other\": [1, {\"x\": 2}]}\n\n\
                 {\"negative\": null, \"positive\": \"\\u00e9\", \"anchor\": \"c\"}\r\n\
                 {\"anchor\": \"d\", \"positive\": \"e\", \"negative\": \"g\"}";
    let wanted = [("a\n", "b", "", "f:1"), ("c", "é", "", "f:3"), ("d", "e", "g", "f:4")];
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(a, b, c, place)| ([*a, *b, *c].map(str::to_owned).to_vec(), (*place).to_owned()))
        .collect();
    assert_eq!(texts(json(lines, &pairs).into_iter()), wanted);
    let classes = ReadOptions {
        label: Some("y".to_owned()),
        classes: vec!["no".to_owned(), "yes".to_owned()],
        ..ReadOptions::default()
    };
    let found = json("{\"text\": \"a\", \"y\": \"yes\"}\n{\"text\": \"b\", \"y\": 0}", &classes);
    let labels: Vec<_> = found.into_iter().map(|document| document.unwrap().label).collect();
    assert_eq!(labels, [Some(1), Some(0)]);
}

#[test]
fn invalid_lines_are_reported_and_end_the_reading() {
    let plain = ReadOptions::default();
    let classes = ReadOptions {
        label: Some("y".to_owned()),
        classes: vec!["no".to_owned(), "yes".to_owned()],
        ..ReadOptions::default()
    };
    let rows: [(&'static str, &ReadOptions, &str); 10] = [
        ("{", &plain, "not a JSON object"),
        ("[]", &plain, "not a JSON object"),
        ("{\"text\": \"a\"} x", &plain, "not a JSON object"),
        ("{\"txt\": \"a\"}", &plain, "field text: the line has no such field; it has txt"),
        ("{\"text\": null}", &plain, "no such field"),
        ("{\"text\": 1}", &plain, "not a string"),
        ("{\"text\": \"a\"}", &classes, "field y: the line has no such field"),
        ("{\"text\": \"a\", \"y\": 2}", &classes, "class 2 is out of range for 2 classes"),
        ("{\"text\": \"a\", \"y\": \"maybe\"}", &classes, "unknown class \"maybe\""),
        ("{\"text\": \"a\", \"y\": -1}", &classes, "neither a class index nor a class name"),
    ];
    for (line, reading, what) in rows {
        let text = format!("{{\"text\": \"good\", \"y\": 1}}\n\n{line}\n{{\"text\": \"good\", \"y\": 1}}\n");
        let found: Vec<_> = JsonLines
            .documents(Box::new(std::io::Cursor::new(text.into_bytes())), "f", reading)
            .unwrap()
            .collect();
        assert_eq!(found.len(), 2, "{line}: an error is the last");
        let error = found[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.location().starts_with("f:3") && error.to_string().contains(what), "{line}: {error}");
    }
    let bytes: &[u8] = b"good\n\nb\xffd\n";
    let found: Vec<_> = PlainText.documents(Box::new(bytes), "f", &plain).unwrap().collect();
    let error = found[1].as_ref().unwrap_err();
    assert!(found.len() == 2 && error.to_string().starts_with("f:3: not UTF-8 at byte 1"), "{error}");
    let pair = ReadOptions { fields: vec![Field::new("a"), Field::new("b")], ..ReadOptions::default() };
    let error = PlainText.documents(Box::new(&b""[..]), "f", &pair).err().unwrap();
    assert!(error.to_string().contains("plain text has no fields a, b"), "{error}");
    let none = ReadOptions { separator: DocumentSeparator::Text(String::new()), ..ReadOptions::default() };
    assert!(PlainText.documents(Box::new(&b""[..]), "f", &none).is_err());
}

/// Endless text without line ends is rejected before it fills the memory.
#[test]
fn oversized_documents_are_rejected() {
    for cut in
        [DocumentSeparator::BlankLines, DocumentSeparator::Files, DocumentSeparator::Text("|".to_owned())]
    {
        let reading = ReadOptions { separator: cut, ..ReadOptions::default() };
        for end in ["x", "\n"] {
            let input = Endless("x".repeat(4000) + end);
            let error =
                PlainText.documents(Box::new(input), "f", &reading).unwrap().next().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLong, "{error}");
        }
    }
}

struct Endless(String);

impl std::io::Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let whole = out.len() / self.0.len() * self.0.len();
        out[..whole].chunks_mut(self.0.len()).for_each(|piece| piece.copy_from_slice(self.0.as_bytes()));
        Ok(whole)
    }
}

#[test]
fn folders_are_read_in_name_order() {
    let root = folder("folders");
    std::fs::create_dir_all(root.join("b/.hidden")).unwrap();
    for (name, text) in [
        ("c.TXT", "three\n\nfour"),
        ("a.jsonl", "{\"text\": \"one\"}"),
        ("b/x.md", "two"),
        ("b/.hidden/x.txt", "hidden"),
        ("b/image.png", "no text"),
        (".x.txt", "hidden"),
    ] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let read = |paths: &[PathBuf]| documents(paths, &ReadOptions::default());
    let found: Vec<String> =
        texts(read(std::slice::from_ref(&root)).unwrap()).into_iter().map(|(mut t, _)| t.remove(0)).collect();
    assert_eq!(found, ["one", "two", "three", "four"]);
    // A file that is given by name is read regardless of its extension.
    let found = texts(read(&[root.join("b/image.png"), root.join("a.jsonl")]).unwrap());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].0, ["no text"]);
    std::fs::create_dir_all(root.join("empty")).unwrap();
    let error = read(&[root.join("empty")]).err().unwrap();
    assert!(error.to_string().contains(".txt, .text, .md, .jsonl"), "{error}");
    assert_eq!(read(&[root.join("nothing")]).err().unwrap().kind(), ErrorKind::Missing);
    std::fs::write(root.join("b/x.tokens"), "no tokens").unwrap();
    let failed: Vec<_> = read(&[root]).unwrap().collect();
    assert!(failed.last().unwrap().as_ref().err().unwrap().location().contains("x.tokens"));
    assert_eq!(failed.len(), 3, "an error ends the reading");
}

/// A record sink that keeps the records.
#[derive(Default)]
struct Kept(Vec<TokenizedDocument>);

impl Sink for Kept {
    fn push(&mut self, record: &TokenizedDocument) -> siskin::Result<()> {
        self.0.push(record.clone());
        Ok(())
    }
}

fn tokenized(path: &Path, reading: &ReadOptions, threads: usize) -> Vec<TokenizedDocument> {
    let tokenizer = tokenizer();
    let mut kept = Kept::default();
    let count = DocumentTokenizer { tokenizer: &tokenizer, threads, parse_special: false }
        .run(documents(&[path.to_owned()], reading).unwrap(), &mut kept)
        .unwrap();
    assert_eq!(count, kept.0.len() as u64);
    kept.0
}

#[test]
fn tokens_do_not_depend_on_threads() {
    let kind = TaskEntry::of("contrastive").unwrap();
    let path = folder("threads").join("documents.jsonl");
    // More than two chunks.
    write_documents(kind, 700, &path);
    let one = tokenized(&path, &kind.reading(), 1);
    assert_eq!(one.len(), 700);
    for threads in [0, 3] {
        assert!(tokenized(&path, &kind.reading(), threads) == one, "{threads} threads");
    }
    let tokenizer = tokenizer();
    let found = texts(documents(&[path], &kind.reading()).unwrap());
    for ((texts, _), record) in found.iter().zip(&one) {
        let ids = texts.iter().map(|text| tokenizer.encode(text, EncodeOptions::default()).unwrap());
        assert_eq!(record.parts, ids.collect::<Vec<_>>());
    }
}

#[test]
fn spelled_out_control_tokens_are_text() {
    let path = folder("control").join("a.txt");
    std::fs::write(&path, "a [MASK] b").unwrap();
    let mask = tokenizer().mask().unwrap();
    assert!(!tokenized(&path, &ReadOptions::default(), 1)[0].parts[0].contains(&mask));
}

/// A record sink that accepts nothing.
struct Full;

impl Sink for Full {
    fn push(&mut self, _: &TokenizedDocument) -> siskin::Result<()> {
        Err(Error::argument("disk", "is full"))
    }
}

#[test]
fn read_errors_name_the_file_and_line() {
    let path = folder("fails").join("a.txt");
    std::fs::write(&path, "one\n\ntwo").unwrap();
    let tokenizer = tokenizer();
    let documents = documents(&[path], &ReadOptions::default()).unwrap();
    let tokenizing = DocumentTokenizer { tokenizer: &tokenizer, threads: 1, parse_special: false };
    let error = tokenizing.run(documents, &mut Full).unwrap_err();
    assert!(error.to_string().contains("a.txt:1: disk: is full"), "{error}");
}

#[test]
fn splits_are_disjoint_and_stable() {
    let split = Split { validation_split: 0.2, seed: 1 };
    let path = folder("split").join("a.txt");
    let text: String = (0..2000).map(|number| format!("the bird {number} sings\n\n")).collect();
    std::fs::write(&path, &text).unwrap();
    let divide = |path: &Path| {
        let (mut training, mut validation) = (Kept::default(), Kept::default());
        for record in tokenized(path, &ReadOptions::default(), 1) {
            let mut divider = Divider { split, training: &mut training, validation: &mut validation };
            divider.push(&record).unwrap();
        }
        [training.0, validation.0].map(|list| list.iter().map(|record| record.hash).collect::<HashSet<_>>())
    };
    let [training, validation] = divide(&path);
    assert!(training.is_disjoint(&validation));
    assert_eq!(training.len() + validation.len(), 2000);
    // Five standard deviations of 2000 draws of one in five.
    assert!(validation.len().abs_diff(400) < 90, "{}", validation.len());
    // The split does not depend on the other documents of the file.
    let half = path.with_file_name("b.txt");
    let lines: Vec<&str> = text.split("\n\n").collect();
    std::fs::write(&half, lines[..1000].iter().rev().copied().collect::<Vec<_>>().join("\n\n")).unwrap();
    let [fewer, kept] = divide(&half);
    assert!(fewer.is_subset(&training) && kept.is_subset(&validation));
    // Nor does it depend on the version of this program.
    let side = |number: u32| {
        let body = Body::Texts(vec![format!("document {number}")]);
        split.side(Document { body, label: None, place: String::new() }.hash())
    };
    let kept: Vec<u32> = (0..40).filter(|&number| side(number) == SplitSide::Validation).collect();
    assert_eq!(kept, KEPT);
}

/// Which of forty documents are in the validation set.
const KEPT: [u32; 12] = [1, 4, 6, 12, 14, 16, 18, 19, 20, 28, 33, 34];

#[test]
fn subsets_are_disjoint() {
    let documents = random_documents(500, 20, 0, 100);
    let all = memory(100, &documents);
    let split = Split { validation_split: 0.3, seed: 2 };
    let [training, validation] = [SplitSide::Training, SplitSide::Validation]
        .map(|side| Subset::new(all.clone(), |hash| split.side(hash) == side).unwrap());
    assert_eq!(training.count() + validation.count(), 500);
    assert!(validation.count().abs_diff(150) < 60, "{}", validation.count());
    let lists = |subset: &dyn Records| -> Vec<Vec<u32>> {
        (0..subset.count()).map(|record| subset.list(record, 0).unwrap()).collect()
    };
    let (training, validation) = (lists(&training), lists(&validation));
    assert!(validation.iter().filter(|list| list.len() > 3).all(|list| !training.contains(list)));
    let mut together = [training, validation].concat();
    let mut wanted = documents;
    together.sort();
    wanted.sort();
    assert_eq!(together, wanted);
}

#[test]
fn records_of_several_sources_are_in_order() {
    let lists = |numbers: std::ops::Range<u32>| numbers.map(|number| vec![number; number as usize % 4]);
    let push = |to: &mut dyn Sink, numbers: std::ops::Range<u32>| {
        for list in lists(numbers) {
            let record = TokenizedDocument { parts: vec![list], label: Some(7), hash: 0 };
            to.push(&record).unwrap();
        }
    };
    let path = folder("gathering").join("a.tokens");
    let mut writer = PackedWriter::create(&path, 90, 1, 7).unwrap();
    push(&mut writer, 4..9);
    writer.finish().unwrap();
    let mut all = RecordList::new(100, 1).unwrap();
    let empty = RecordsInMemory::new(100, 1).unwrap();
    all.add(std::sync::Arc::new(empty)).unwrap();
    push(&mut all, 0..4);
    all.add(std::sync::Arc::new(PackedTokenFile::open(&path).unwrap())).unwrap();
    push(&mut all, 9..12);
    for (vocabulary, parts) in [(101, 1), (100, 2)] {
        let other = RecordsInMemory::new(vocabulary, parts).unwrap();
        assert!(all.add(std::sync::Arc::new(other)).is_err(), "{vocabulary}, {parts}");
    }
    let all = all.finish().unwrap();
    assert_eq!((all.count(), all.parts(), all.vocabulary()), (12, 1, 100));
    for (record, list) in lists(0..12).enumerate() {
        assert_eq!((all.length(record, 0), all.label(record)), (list.len(), Some(7)));
        assert_eq!(all.list(record, 0).unwrap(), list);
    }
    for beyond in [12, usize::MAX] {
        assert_eq!((all.length(beyond, 0), all.label(beyond)), (0, None));
        assert!(all.read(beyond, 0, 0..0, &mut Vec::new()).is_err());
    }
}

#[test]
fn packed_tokens_are_a_source() {
    let path = folder("source").join("a.tokens");
    let mut writer = PackedWriter::create(&path, 100, 1, 7).unwrap();
    for parts in [vec![vec![1, 2]], vec![vec![]], vec![vec![3]]] {
        writer.push(&TokenizedDocument { parts, ..TokenizedDocument::default() }).unwrap();
    }
    writer.finish().unwrap();
    let read = |reading: &ReadOptions| {
        documents(std::slice::from_ref(&path), reading).unwrap().collect::<Result<Vec<_>, _>>()
    };
    let found: Vec<Body> =
        read(&ReadOptions::default()).unwrap().into_iter().map(|document| document.body).collect();
    assert_eq!(found, [vec![1, 2], vec![], vec![3]].map(|list| Body::Tokens(vec![list])));
    let rejected = |reading: ReadOptions, what: &str| {
        let error = read(&reading).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    };
    rejected(ReadOptions { identity: 8, ..ReadOptions::default() }, "different tokenizer");
    rejected(ReadOptions { label: Some("label".to_owned()), ..ReadOptions::default() }, "record 0: no class");
    rejected(TaskEntry::of("seq2seq").unwrap().reading(), "have 1 token lists, the task needs 2");
    // Tokens outside a smaller vocabulary are rejected there.
    let tokenizer = tokenizer();
    let tokenizing = DocumentTokenizer { tokenizer: &tokenizer, threads: 1, parse_special: false };
    let documents = documents(&[path], &ReadOptions::default()).unwrap();
    let error = tokenizing.run(documents, &mut RecordsInMemory::new(3, 1).unwrap()).unwrap_err();
    assert!(error.to_string().contains("token 3, beyond the vocabulary of 3"), "{error}");
}

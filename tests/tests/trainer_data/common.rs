//! Helpers of training data tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::read::GzDecoder;
use siskin::file::Bytes;
use siskin::tokenizer::{TokenKind, Tokenizer, VocabularyToken};
use siskin_convert::import::tokenizer_json;
use siskin_tests::paths;
use siskin_trainer::data::task::TaskEntry;
use siskin_trainer::data::{
    DocumentTokenizer, Records, RecordsInMemory, Sink, TaskSettings, TokenizedDocument, TrainingTask, source,
};
use siskin_trainer::random::Random;

/// Number of sentinel tokens for masked spans.
pub const SENTINELS: u32 = 30;

/// Returns a small tokenizer that every task can use: BERT's with sentinels and an end token.
pub fn tokenizer() -> Tokenizer {
    let file = std::fs::File::open(paths::data("tokenizers").join("bert-uncased.json.gz")).unwrap();
    let golden: serde_json::Value = serde_json::from_reader(GzDecoder::new(file)).unwrap();
    let mut vocabulary =
        tokenizer_json::vocabulary(golden["tokenizer"].to_string().as_bytes(), None).unwrap();
    for number in (0..SENTINELS).rev() {
        vocabulary.tokens.push(VocabularyToken::new(format!("<extra_id_{number}>"), TokenKind::Control));
    }
    vocabulary.special.eos = Some(3);
    vocabulary.special.mask = Some(4);
    Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap()
}

/// Creates an empty output folder, different for each call.
pub fn folder(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trainer-data").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Returns records of one list in memory.
pub fn memory(vocabulary: u32, documents: &[Vec<u32>]) -> Arc<RecordsInMemory> {
    let mut memory = RecordsInMemory::new(vocabulary, 1).unwrap();
    for document in documents {
        memory
            .push(&TokenizedDocument { parts: vec![document.clone()], ..TokenizedDocument::default() })
            .unwrap();
    }
    Arc::new(memory)
}

/// Returns documents of random ids from `from` up to the vocabulary, of lengths below `longest`.
pub fn random_documents(count: usize, longest: u64, from: u32, vocabulary: u32) -> Vec<Vec<u32>> {
    let mut random = Random::new(11, &[longest]);
    let mut document = || {
        let length = random.below(longest);
        (0..length).map(|_| from + random.below(u64::from(vocabulary - from)) as u32).collect()
    };
    (0..count).map(|_| document()).collect()
}

/// Returns some words in a random order.
fn words(random: &mut Random) -> String {
    const WORDS: [&str; 10] = ["the", "bird", "sings", "a", "song", "in", "green", "trees", "of", "spring"];
    let count = 1 + random.below(40);
    (0..count).map(|_| WORDS[random.below(10) as usize]).collect::<Vec<_>>().join(" ")
}

/// Writes a file of documents that a task can use.
pub fn write_documents(kind: &TaskEntry, count: usize, path: &Path) {
    let mut random = Random::new(5, &[kind.fields.len() as u64]);
    let mut text = String::new();
    for _ in 0..count {
        let mut line = serde_json::Map::new();
        for (name, optional) in kind.fields {
            if !optional || random.below(2) == 0 {
                line.insert((*name).to_owned(), words(&mut random).into());
            }
        }
        if let Some(label) = kind.label {
            line.insert(label.to_owned(), random.below(3).into());
        }
        text += &format!("{}\n", serde_json::Value::Object(line));
    }
    std::fs::write(path, text).unwrap();
}

/// Returns records of documents that a task can use.
pub fn records(kind: &TaskEntry, count: usize) -> Arc<dyn Records> {
    let path = folder(&format!("records-{}", kind.name)).join("documents.jsonl");
    write_documents(kind, count, &path);
    let tokenizer = tokenizer();
    let documents = source::documents(&[path], &kind.reading()).unwrap();
    let mut memory = RecordsInMemory::new(tokenizer.vocabulary_size(), kind.fields.len()).unwrap();
    let tokenizing = DocumentTokenizer { tokenizer: &tokenizer, threads: 1, parse_special: false };
    assert_eq!(tokenizing.run(documents, &mut memory).unwrap(), count as u64);
    Arc::new(memory)
}

/// Returns a task over documents of its kind.
pub fn task(kind: &TaskEntry, count: usize) -> Arc<dyn TrainingTask> {
    task_of(kind, count, 24)
}

/// Returns the same with another sequence length.
pub fn task_of(kind: &TaskEntry, count: usize, length: usize) -> Arc<dyn TrainingTask> {
    let settings =
        TaskSettings { max_length: length, decoder_start_token_id: Some(0), ..TaskSettings::default() };
    (kind.make)(&settings, &tokenizer(), records(kind, count)).unwrap()
}

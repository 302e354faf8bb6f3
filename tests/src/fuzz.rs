//! One function per untrusted input, and deterministic mutations of committed seeds.
//!
//! A target takes any bytes and must return: no panic, no overflow, and no more memory than a small multiple of the
//! input. `fuzz/` runs the same functions under libFuzzer.

use siskin_benches::BenchRandom;
pub use siskin_hub::fuzzing::{answer as hub_answer, name as model_name};
pub use siskin_serve::fuzzing::{event as http_event, form as http_form, infer_request, uri as http_uri};

/// A target: its name, which is also its folder under `tests/data/fuzz/`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("adapter", adapter),
    ("audio_file", audio_file),
    ("container", container),
    ("ctranslate2", ctranslate2),
    ("documents", documents),
    ("gguf", gguf),
    ("grammar", grammar),
    ("http_event", http_event),
    ("http_form", http_form),
    ("http_request", http_request),
    ("http_uri", http_uri),
    ("hub_answer", hub_answer),
    ("infer_request", infer_request),
    ("model_name", model_name),
    ("onnx", onnx),
    ("result_cache", result_cache),
    ("safetensors", safetensors),
    ("session", session),
    ("source", source),
    ("template", template),
    ("tokenizer_json", tokenizer_json),
    ("tokens", tokens),
    ("wav", wav),
];

/// Opens an untrusted adapter for the model of the first seed of `container`: as a file, unchanged and with corrected
/// hashes, and with the bytes before and after the first zero as the two PEFT files.
pub fn adapter(data: &[u8]) {
    use siskin::{Adapter, file::File};
    let Ok(base) = File::open(crate::paths::data("fuzz/container/small.bin")) else { return };
    let run = |adapter: &Adapter| {
        let _ = adapter.check_base(&base);
        let options = siskin::ModelOptions { threads: 1, ..Default::default() };
        let Ok(model) = siskin::Model::with_adapter(base.clone(), adapter, &options) else { return };
        let options = siskin::SessionOptions { context: 8, batch: 4, ..Default::default() };
        let _ = model.session(options).and_then(|mut session| session.prefill(&[1, 2, 3, 0, 1]));
    };
    for data in std::iter::once(data.to_vec()).chain(reseal(data)) {
        let Ok(adapter) = File::from_bytes(data).and_then(|file| Adapter::from_file(&file)) else { continue };
        run(&adapter);
        let out = adapter.write(None, Default::default(), std::io::Cursor::new(Vec::new()));
        let again = out.and_then(|out| Adapter::from_file(&File::from_bytes(out.into_inner())?));
        assert_eq!(again.ok().as_ref(), Some(&adapter), "what was read can be written");
    }
    let Some(zero) = data.iter().position(|byte| *byte == 0) else { return };
    let config = siskin_format::file::parse_json(&data[..zero], "adapter", 1 << 12);
    let tensors =
        siskin_convert::import::safetensors::parse(siskin::file::Bytes::new(data[zero + 1..].to_vec()));
    if let (Ok(config), Ok(tensors)) = (config, tensors)
        && let Ok(adapter) = siskin_convert::import::peft::of(&config, &tensors, &base)
    {
        run(&adapter);
    }
}

/// Opens an untrusted `.siskin` file: unchanged, and with corrected hashes, so that mutations get past the hash checks.
pub fn container(data: &[u8]) {
    open_container(data.to_vec());
    if let Some(sealed) = reseal(data) {
        open_container(sealed);
    }
}

fn open_container(data: Vec<u8>) {
    let Ok(file) = siskin::file::File::from_bytes(data) else { return };
    let _ = file.verify(&mut |_, _| true);
    run_a_little(file);
}

fn run_a_little(file: siskin::file::File) {
    let options = siskin::ModelOptions { threads: 1, ..Default::default() };
    let Ok(model) = siskin::Model::from_file(file, &options) else { return };
    if let Ok(tokenizer) = model.tokenizer() {
        let _ = tokenizer
            .encode("a b", siskin::tokenizer::EncodeOptions { add_special: true, parse_special: true });
    }
    let _ = model.template();
    let options = siskin::SessionOptions { context: 8, batch: 4, ..Default::default() };
    let text = siskin::encoder::EncoderInput::from(vec![1, 2, 3, 0, 1]);
    let reading = siskin::EncoderOptions { batch: 8, ..Default::default() };
    if let Ok(mut encoder) = model.encoder(reading) {
        let _ = encoder.encode(std::slice::from_ref(&text), siskin::OutputRows::All, &mut |_, _| Ok(()));
    }
    let Ok(mut session) = model.session(options) else { return };
    let _ = session.encode(&text);
    let _ = session.prefill(&[1, 2, 3, 0, 1]);
    let _ = session.next_token();
}

/// Corrects the length and the hashes of header and sections, if there is a header; `docs/format.md` describes their
/// offsets.
fn reseal(data: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 64;
    const ENTRY: usize = 64;
    let mut data = data.to_vec();
    let length = (data.len() as u64).to_le_bytes();
    data.get_mut(16..24)?.copy_from_slice(&length);
    let number = |data: &[u8], at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
    let count = u32::from_le_bytes(*data.get(12..)?.first_chunk()?) as usize;
    let count = count.min(data.len().saturating_sub(HEADER) / ENTRY);
    for entry in (0..count).map(|index| HEADER + index * ENTRY) {
        let start = number(&data, entry + 8)? as usize;
        let end = start.checked_add(number(&data, entry + 16)? as usize);
        let Some(section) = end.and_then(|end| data.get(start..end)) else { continue };
        let hash = blake3::hash(section);
        data[entry + 32..entry + 64].copy_from_slice(hash.as_bytes());
    }
    reseal_header(&mut data, HEADER + count * ENTRY)?;
    Some(data)
}

/// Corrects the hash of the header and the section table, which end at `end`.
fn reseal_header(data: &mut [u8], end: usize) -> Option<()> {
    data.get_mut(32..64)?.fill(0);
    let hash = blake3::hash(data.get(..end)?);
    data[32..64].copy_from_slice(hash.as_bytes());
    Some(())
}

/// Like `reseal`, with the hashes of the blocks of a `.siskin-kv` file; `docs/format-kv.md` describes their offsets.
pub fn reseal_blocks(data: &[u8]) -> Option<Vec<u8>> {
    const RECORD: usize = 48;
    let mut data = reseal(data)?;
    let word = |data: &[u8], at: usize| Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?) as usize);
    let entry = |data: &[u8], kind: usize| {
        let count = word(data, 12)?.min(data.len().saturating_sub(64) / 64);
        let entry = (1..=count).map(|index| index * 64).find(|&entry| word(data, entry) == Some(kind))?;
        let start = word(data, entry + 8)?;
        let end = start.checked_add(word(data, entry + 16)?).filter(|&end| end <= data.len())?;
        Some((entry, start..end))
    };
    let (_, layout) = entry(&data, 2)?;
    let mut words = Vec::new();
    let mut at = layout.start + 8;
    while at < layout.end {
        words.push(word(&data, at + 12)?);
        at = at.checked_add(20)?.checked_add(word(&data, at + 16)?.checked_next_multiple_of(4)?)?;
    }
    let (_, table) = entry(&data, 4)?;
    let mut all = blake3::Hasher::new();
    for record in (table.start..table.end.saturating_sub(RECORD - 1)).step_by(RECORD) {
        let (group, start) = (word(&data, record)?, word(&data, record + 8)?);
        let end = words.get(group).and_then(|words| words.checked_mul(4)?.checked_add(start));
        let block = end.and_then(|end| data.get(start..end)).unwrap_or_default();
        let hash = blake3::hash(block);
        data[record + 16..record + RECORD].copy_from_slice(hash.as_bytes());
        all.update(hash.as_bytes());
    }
    let (blocks, _) = entry(&data, 5)?;
    let mut data = reseal(&data)?;
    data[blocks + 32..blocks + 64].copy_from_slice(all.finalize().as_bytes());
    let end = 64 + 64 * word(&data, 12)?.min(data.len().saturating_sub(64) / 64);
    reseal_header(&mut data, end)?;
    Some(data)
}

/// Loads an untrusted result cache file: unchanged, and with a corrected hash.
pub fn result_cache(data: &[u8]) {
    use siskin::result_cache::{Key, ResultCache, ResultCacheOptions};
    let sealed = data.split_last_chunk::<32>().map(|(body, _)| {
        let hash = blake3::hash(body);
        [body, hash.as_bytes()].concat()
    });
    for data in std::iter::once(data).chain(sealed.as_deref()) {
        let cache = ResultCache::new(ResultCacheOptions { bytes: 4096, ..ResultCacheOptions::default() });
        if cache.load(data).is_err() {
            continue;
        }
        let bytes = |at: usize| data.get(at..).and_then(|bytes| bytes.first_chunk::<32>()).copied();
        let keys = [24, 72].map(|at| Key::from_bytes(bytes(at).unwrap_or_default()));
        for key in keys {
            let _ = (cache.get(&key), cache.similar(&key, &[1.0, 0.0, -1.0], 0.1));
        }
        let again = ResultCache::new(ResultCacheOptions { bytes: 4096, ..ResultCacheOptions::default() });
        assert!(again.load(&cache.to_bytes()).is_ok(), "what was read can be written");
        assert_eq!(again.to_bytes(), cache.to_bytes());
    }
}

/// Reads an untrusted training text: as plain text, cut in every way, and as JSON lines.
pub fn documents(data: &[u8]) {
    use siskin_trainer::data::source::{DocumentSeparator, JsonLines, PlainText};
    use siskin_trainer::data::{ReadOptions, TaskEntry};
    let input = || Box::new(std::io::Cursor::new(data.to_vec()));
    for cut in
        [DocumentSeparator::BlankLines, DocumentSeparator::Files, DocumentSeparator::Text("|".to_owned())]
    {
        let reading = ReadOptions { separator: cut, ..ReadOptions::default() };
        let Ok(documents) = PlainText.documents(input(), "text", &reading) else { continue };
        let found = documents.map(|document| usize::from(document.is_ok())).sum::<usize>();
        assert!(found <= data.len(), "documents of nothing");
    }
    for name in ["causal", "classes", "contrast"] {
        let Ok(reading) = TaskEntry::of(name).map(TaskEntry::reading) else { continue };
        let Ok(documents) = JsonLines.documents(input(), "lines", &reading) else { continue };
        documents.for_each(|document| drop(document.map(|document| document.hash())));
    }
}

/// Opens an untrusted file of packed tokens, reads it, and trains on it.
pub fn tokens(data: &[u8]) {
    use siskin_trainer::data::task::{CausalLm, Packing, SpecialTokens};
    use siskin_trainer::data::{Loader, LoaderOptions, PackedTokenFile, Position, Records};
    let Ok(packed) = PackedTokenFile::from_bytes(siskin::file::Bytes::new(data.to_vec())) else { return };
    for record in 0..packed.count() {
        for part in 0..packed.parts() {
            let Ok(list) = packed.list(record, part) else { continue };
            assert!(list.iter().all(|&id| id < packed.vocabulary()), "an id beyond the vocabulary");
        }
        let _ = packed.label(record);
    }
    let records = std::sync::Arc::new(packed);
    for packing in [Packing::PerDocument, Packing::Packed] {
        let frame = SpecialTokens { before: vec![0], after: Vec::new() };
        let Ok(task) = CausalLm::new(records.clone(), frame, 16, packing) else { continue };
        let options = LoaderOptions { max_tokens: 64, pool_size: 8, epochs: 1, ..LoaderOptions::default() };
        let Ok(loader) = Loader::new(std::sync::Arc::new(task), options, Position::default()) else {
            continue;
        };
        loader.for_each(drop);
    }
}

/// Parses an untrusted CTranslate2 `model.bin`, or its vocabulary.
pub fn ctranslate2(data: &[u8]) {
    use siskin_convert::import::ctranslate2::{Container, Names, TokenList, VocabularyRole};
    let _ = TokenList::from_json(VocabularyRole::Model, data, "vocabulary.json");
    let _ = TokenList::from_text(VocabularyRole::Model, data, "vocabulary.txt");
    let Ok(container) = Container::parse(&siskin::file::Bytes::new(data.to_vec())) else { return };
    for variable in &container.variables {
        let _ = (variable.number(), variable.text());
        let Ok(matrix) = container.matrix(&variable.name) else { continue };
        for row in [0, matrix.rows.saturating_sub(1)] {
            if matrix.row_bytes(row).is_some() {
                let _ = matrix.row_into(row, &mut vec![0.0; matrix.columns]);
            }
        }
    }
    let Ok(names) = Names::of(&container) else { return };
    let _ = names.unmapped(&container).count();
    for rule in names.rules() {
        let name = rule.name.replace("{}", "0");
        let _ = names.matrix(&container, &format!("{name}.weight"));
        let _ = names.matrix(&container, &format!("{name}.bias"));
    }
}

/// Parses an untrusted GGUF file.
pub fn gguf(data: &[u8]) {
    let Ok(part) = siskin_convert::import::gguf::GgufPart::parse(&siskin::file::Bytes::new(data.to_vec()))
    else {
        return;
    };
    for (_, value) in &part.metadata {
        let _ = (value.as_unsigned(), value.as_unsigned_array(), value.as_float_array());
    }
    for tensor in &part.tensors {
        let _ = format!("{tensor:?}");
    }
}

/// Parses an untrusted ONNX file, up to the names of its tensors and their data. tract, which may panic on the rest,
/// has its own tests.
pub fn onnx(data: &[u8]) {
    use siskin_convert::import::onnx::{ExternalData, OnnxModel, recover, weights};
    let bytes = siskin::file::Bytes::new(data.to_vec());
    let Ok(model) = OnnxModel::parse(&bytes) else { return };
    let mut store = ExternalData::of_bytes(bytes.clone(), std::path::Path::new("no such folder"));
    for named in recover(&model.graph).values() {
        let _ = store.data(named.tensor);
    }
    for tensor in weights(&model.graph) {
        let _ = (tensor.count(), tensor.integers(), tensor.bytes());
    }
}

/// Parses an untrusted safetensors file.
pub fn safetensors(data: &[u8]) {
    let _ = siskin_convert::import::safetensors::parse(siskin::file::Bytes::new(data.to_vec()));
}

/// Restores an untrusted saved session: unchanged, and with corrected hashes. If it is accepted, generation continues
/// and the session can be saved.
pub fn session(data: &[u8]) {
    let Ok(mut session) = small_session() else { return };
    let _ = session.restore(data);
    let Some(sealed) = reseal_blocks(data) else { return };
    if session.restore(&sealed).is_ok() {
        let _ = session.prefill(&[1]);
        let _ = session.next_token();
        let _ = session.save();
    }
}

/// Returns a session of the model of the first seed of `container`.
pub fn small_session() -> siskin::Result<siskin::Session> {
    static MODEL: std::sync::OnceLock<siskin::Result<siskin::Model>> = std::sync::OnceLock::new();
    let model = MODEL.get_or_init(|| {
        let options = siskin::ModelOptions { threads: 1, ..Default::default() };
        let file = siskin::file::File::open(crate::paths::data("fuzz/container/small.bin"))?;
        siskin::Model::from_file(file, &options)
    });
    let options = siskin::SessionOptions { context: 32, batch: 4, ..Default::default() };
    model.as_ref().map_err(Clone::clone)?.session(options)
}

/// Packs an untrusted model of another format, opens it and generates a token: a GGUF file, or other bytes as the
/// `model.bin` of a CTranslate2 folder.
pub fn source(data: &[u8]) {
    if let Ok(file) = open_source(data) {
        run_a_little(file);
    }
}

fn open_source(data: &[u8]) -> siskin::Result<siskin::file::File> {
    let folder = std::env::temp_dir().join(format!("siskin-fuzz-{}", std::process::id()));
    let is_gguf = data.starts_with(b"GGUF");
    let file = folder.join(if is_gguf { "model.gguf" } else { "model.bin" });
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, data))
        .and_then(|()| std::fs::write(folder.join("config.json"), CTRANSLATE2_CONFIG))
        .and_then(|()| std::fs::write(folder.join("shared_vocabulary.json"), CTRANSLATE2_VOCABULARY));
    written.map_err(|error| siskin::Error::new(siskin::ErrorKind::Io, "seed", error.to_string()))?;
    let options =
        siskin_convert::OpenOptions { cache: siskin_convert::PackedCache::Off, ..Default::default() };
    let opened = siskin_convert::open_any(if is_gguf { &file } else { &folder }, &options);
    let _ = std::fs::remove_dir_all(&folder);
    opened
}

const CTRANSLATE2_CONFIG: &str = r#"{"add_source_bos": false, "add_source_eos": false, "bos_token": "<pad>", "decoder_start_token":
"<pad>", "eos_token": "</s>", "layer_norm_epsilon": null, "multi_query_attention": false,
"unk_token": "<unk>"}"#;
const CTRANSLATE2_VOCABULARY: &str = r#"["<pad>", "<s>", "</s>", "<unk>", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10",
"t11", "t12", "t13", "t14", "t15"]"#;

/// Compiles an untrusted grammar: GBNF, Lark, a regular expression or a JSON schema, as the first byte says; and asks for
/// the tokens that a response may begin with.
pub fn grammar(data: &[u8]) {
    use siskin::constraint::{StructuredOutput, TokenMask};
    use std::sync::LazyLock;
    static MODEL: LazyLock<Option<siskin::Model>> = LazyLock::new(|| {
        let options = siskin::ModelOptions { threads: 1, ..Default::default() };
        siskin::Model::from_file(crate::texts::with_words("golden-texts/bert-classes"), &options).ok()
    });
    let Some((kind, source)) = data.split_first() else { return };
    let source = String::from_utf8_lossy(source).into_owned();
    let output = match kind % 4 {
        0 => StructuredOutput::Gbnf(source),
        1 => StructuredOutput::Lark(source),
        2 => StructuredOutput::Regex(source),
        _ => StructuredOutput::JsonSchema(source),
    };
    let Some(model) = &*MODEL else { return };
    let Ok(mut constraint) = model.constraint(&output) else { return };
    let tokens = model.tokenizer().map_or(0, |tokenizer| tokenizer.vocabulary_size() as usize);
    let _ = constraint.mask(&mut TokenMask::new(tokens));
}

/// Reads the untrusted body of a chat completion, and of a response.
pub fn http_request(data: &[u8]) {
    siskin_serve::fuzzing::chat_request(data);
    siskin_serve::fuzzing::response_request(data);
}

/// Renders an untrusted chat template.
pub fn template(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(template) = siskin::template::ChatTemplate::new(source) else { return };
    let messages =
        [siskin::template::Message::new("user", "hello"), siskin::template::Message::new("assistant", "hi")];
    let messages = siskin::template::TemplateData::from(&messages[..]);
    let _ = template.render(&messages, &siskin::template::RenderOptions::default());
}

/// Reads an untrusted `tokenizer.json`.
pub fn tokenizer_json(data: &[u8]) {
    let Ok(vocabulary) = siskin_convert::import::tokenizer_json::vocabulary(data, None) else { return };
    let Ok(section) = vocabulary.write() else { return };
    let Ok(tokenizer) = siskin::tokenizer::Tokenizer::open(siskin::file::Bytes::new(section)) else { return };
    let options = siskin::tokenizer::EncodeOptions { add_special: true, parse_special: true };
    let _ = tokenizer.encode("Hello, wörld 12!", options);
}

/// Reads an untrusted WAV file, at its own sample rate and at that of models.
pub fn wav(data: &[u8]) {
    let Ok(sound) = siskin::audio::AudioSamples::from_wav(data) else { return };
    assert!(sound.rate > 0 && sound.samples.iter().all(|sample| sample.is_finite()));
    let _ = sound.resampled();
}

/// Reads an untrusted audio file of any format.
pub fn audio_file(data: &[u8]) {
    // As many samples as fit in the memory that a target may use.
    let Ok(sound) = siskin_media::audio::decode(data.to_vec(), 8 * data.len()) else { return };
    assert!(sound.rate > 0 && sound.samples.iter().all(|sample| sample.is_finite()));
}

/// Values that break careless arithmetic on lengths, offsets and counts.
const LENGTHS: [u64; 12] = [
    0,
    1,
    0x7F,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x1_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    0xFFFF_FFFF_FFFF_FFF0,
    0xFFFF_FFFF_FFFF_FFFF,
];

/// Returns a mutated copy of `seed`: one to four mutations, each a flipped bit, a truncation, a large length, a moved,
/// repeated or foreign slice, or a rewritten decimal number. `other` provides foreign slices.
pub fn mutate(seed: &[u8], other: &[u8], random: &mut BenchRandom) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=random.below(4) {
        match random.below(7) {
            0 => flip(&mut data, random),
            1 => data.truncate(random.below(data.len() + 1)),
            2 => overwrite(&mut data, random),
            3 => splice(&mut data, seed, random),
            4 => splice(&mut data, other, random),
            5 => remove(&mut data, random),
            _ => renumber(&mut data, random),
        }
    }
    data
}

fn flip(data: &mut [u8], random: &mut BenchRandom) {
    for _ in 0..=random.below(8) {
        let at = random.below(data.len());
        if let Some(byte) = data.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
}

/// Overwrites 1, 2, 4 or 8 bytes by an extreme value, mostly near the start, where headers are.
fn overwrite(data: &mut [u8], random: &mut BenchRandom) {
    let reach = if random.below(3) == 0 { data.len() } else { data.len().min(256) };
    let (at, width) = (random.below(reach), 1 << random.below(4));
    let number = LENGTHS[random.below(LENGTHS.len())].to_le_bytes();
    for (byte, new) in data.iter_mut().skip(at).zip(&number[..width]) {
        *byte = *new;
    }
}

fn splice(data: &mut Vec<u8>, from: &[u8], random: &mut BenchRandom) {
    let start = random.below(from.len() + 1);
    let length = random.below((from.len() - start).min(64) + 1);
    let at = random.below(data.len() + 1);
    data.splice(at..at, from[start..start + length].iter().copied());
}

fn remove(data: &mut Vec<u8>, random: &mut BenchRandom) {
    let start = random.below(data.len() + 1);
    let end = start + random.below((data.len() - start).min(64) + 1);
    data.drain(start..end);
}

/// Replaces a run of decimal digits, which text formats use for lengths.
fn renumber(data: &mut Vec<u8>, random: &mut BenchRandom) {
    let from = random.below(data.len());
    let Some(offset) = data.iter().skip(from).position(u8::is_ascii_digit) else { return };
    let start = from + offset;
    let length = data[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = LENGTHS[random.below(LENGTHS.len())].to_string();
    data.splice(start..start + length, number.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_repeat_and_differ() {
        let seed: Vec<u8> = (0..=255).collect();
        let run = || {
            let mut random = BenchRandom::new(7);
            (0..500).map(|_| mutate(&seed, b"1234567", &mut random)).collect::<Vec<_>>()
        };
        let first = run();
        assert_eq!(first, run());
        assert!(first.iter().filter(|data| **data != seed).count() > 450);
        assert!(first.iter().any(|data| data.len() < seed.len()));
        assert!(first.iter().any(|data| data.len() > seed.len()));
    }

    #[test]
    fn nothing_mutates_to_something_without_panic() {
        let mut random = BenchRandom::new(1);
        (0..500).for_each(|_| drop(mutate(b"", b"", &mut random)));
    }

    #[test]
    fn seeds_of_sources_are_models() {
        for seed in ["gguf", "ctranslate2"] {
            let path = crate::paths::data("fuzz/source").join(format!("{seed}.bin"));
            let data = std::fs::read(path).expect("the seed is there");
            let file = open_source(&data).unwrap_or_else(|error| panic!("{seed}: {error}"));
            siskin::Model::from_file(file, &siskin::ModelOptions::default()).expect("the model opens");
        }
    }
}

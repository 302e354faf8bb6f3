//! Prefixes that leave memory come back from disk, with the same bits, and damaged files are not used.

use super::{Generated, alone, context, engine, generated, options};
use siskin::sample::SamplerOptions;
use siskin::serving::{
    CacheSalt, DiskCacheOptions, Drive, Engine, GenerationRequest, ModelId, PromptInput, SchedulingOptions,
    ServedModelOptions,
};
use siskin::{CpuFeatures, DeviceKind, KvBudget, Model, SessionOptions};
use siskin_tests::golden::{load, model};
use siskin_tests::temp_folder::TempFolder;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Tokens per block of the KV cache.
const BLOCK: u64 = 64;

fn open(name: &str) -> Model {
    model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE)
}

fn on_disk(model: &Model, folder: &Path) -> ServedModelOptions {
    let disk_cache = Some(DiskCacheOptions { folder: folder.to_owned(), max_bytes: 1 << 30 });
    ServedModelOptions { disk_cache, ..options(model, SchedulingOptions::default(), 64) }
}

/// A request of almost the maximum length, which begins with a token of its own.
fn request(model: &Model, first: u32) -> GenerationRequest {
    longer(model, first, 0)
}

/// The same with more tokens at the end.
fn longer(model: &Model, first: u32, more: u32) -> GenerationRequest {
    let vocabulary = model.config().vocabulary as u32;
    let rest = (1..context(model) as u32 - 10 + more).map(|index| index * 7 % vocabulary);
    GenerationRequest {
        max_tokens: 8,
        sampler: SamplerOptions { log_probabilities: true, ..SamplerOptions::greedy() },
        ..GenerationRequest::new(PromptInput::Tokens(std::iter::once(first).chain(rest).collect()))
    }
}

/// Returns what is generated, and the tokens that came from disk for it.
fn answer(engine: &Engine, id: ModelId, request: &GenerationRequest) -> (Vec<Generated>, u64) {
    let before = engine.stats(id).unwrap().prefix_restored_tokens;
    let tokens = generated(engine.submit(id, request.clone()).unwrap()).0;
    (tokens, engine.stats(id).unwrap().prefix_restored_tokens - before)
}

/// Generates for a request in an engine that keeps its prefixes in `folder`, and ends the engine.
fn once(model: &Model, folder: &Path, request: &GenerationRequest) -> (Vec<Generated>, u64) {
    let (engine, id) = engine(model, Drive::Caller, &on_disk(model, folder));
    let answer = answer(&engine, id, request);
    engine.drain(Duration::ZERO);
    answer
}

/// Returns how many tokens of `second` the prefix cache has after `first` without files: none, if RoPE frequencies
/// depend on the length.
fn hits_in_memory(model: &Model, first: &GenerationRequest, second: &GenerationRequest) -> u64 {
    let (engine, id) = engine(model, Drive::Caller, &options(model, SchedulingOptions::default(), 64));
    answer(&engine, id, first);
    answer(&engine, id, second);
    engine.stats(id).unwrap().prefix_hit_tokens
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_later_engine_continues_with_the_same_bits() {
    for name in super::SHORT {
        let (model, folder) = (open(name), TempFolder::new("prefixes"));
        let first = request(&model, 5);
        assert_eq!(once(&model, folder.path(), &first), (alone(&model, &first), 0), "{name}");
        // Recurrent states can only be continued.
        let request = longer(&model, 5, 2);
        let want = alone(&model, &request);
        let (tokens, restored) = once(&model, folder.path(), &request);
        assert!(tokens == want, "{name}: other tokens after a restore");
        assert_eq!(restored, hits_in_memory(&model, &first, &request), "{name}: tokens restored");
        // Another one computes the same bits with other instructions.
        let portable =
            siskin_tests::golden::model(&load(name).file, DeviceKind::Reference, 1, CpuFeatures::NONE);
        let (tokens, _) = once(&portable, folder.path(), &request);
        assert!(tokens == want, "{name}: other tokens on the reference");
    }
}

#[test]
fn prefixes_that_leave_memory_come_back() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let mut options = on_disk(&model, folder.path());
    let bytes = model.memory(&SessionOptions { forks: 1, ..options.session.clone() }).unwrap().cache;
    options.kv_budget = Some(KvBudget { bytes });
    let (engine, id) = engine(&model, Drive::Caller, &options);
    let requests: Vec<_> = (0..6).map(|first| request(&model, first)).collect();
    let mut restored = 0;
    for request in requests.iter().chain(&requests) {
        let (tokens, from_disk) = answer(&engine, id, request);
        assert!(tokens == alone(&model, request));
        restored += from_disk;
        // Another thread writes.
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = engine.disk_cache_stats(id).unwrap();
    assert!(stats.written > 0 && restored >= BLOCK, "{restored} tokens restored, {stats:?}");
    assert_eq!((stats.corrupt, stats.failed), (0, 0));
}

#[test]
fn what_memory_has_is_not_read() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    once(&model, folder.path(), &request);
    let (engine, id) = engine(&model, Drive::Caller, &on_disk(&model, folder.path()));
    for _ in 0..3 {
        answer(&engine, id, &request);
    }
    assert_eq!(engine.disk_cache_stats(id).unwrap().read, 1);
}

#[test]
fn salts_and_models_are_kept_apart() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    once(&model, folder.path(), &request);
    let salted = GenerationRequest { salt: CacheSalt([7; 16]), ..request.clone() };
    assert_eq!(once(&model, folder.path(), &salted).1, 0, "another salt");
    let other = open("gpt2");
    let theirs = self::request(&other, 5);
    assert_eq!(once(&other, folder.path(), &theirs).1, 0, "another model");
    assert!(once(&model, folder.path(), &request).1 >= BLOCK);
    assert!(once(&other, folder.path(), &theirs).1 >= BLOCK);
}

/// Replaces a file, which stays private.
fn overwrite(file: &Path, bytes: &[u8]) {
    fs::write(file, bytes).unwrap();
    #[cfg(unix)]
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// Returns what is generated, the tokens that came from disk, and the number of corrupt files.
fn once_checked(model: &Model, folder: &Path, request: &GenerationRequest) -> (Vec<Generated>, u64, u64) {
    let (engine, id) = engine(model, Drive::Caller, &on_disk(model, folder));
    let (tokens, restored) = answer(&engine, id, request);
    engine.drain(Duration::ZERO);
    (tokens, restored, engine.disk_cache_stats(id).unwrap().corrupt)
}

#[test]
fn a_prefix_ends_before_its_first_corrupt_block_and_is_written_again() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    let want = alone(&model, &request);
    once(&model, folder.path(), &request);
    let file = files(folder.path()).pop().unwrap();
    let intact = fs::read(&file).unwrap();
    let whole = once(&model, folder.path(), &request).1;
    let (mut partly, mut unusable) = (0, 0);
    for place in (0..intact.len()).step_by(intact.len() / 97) {
        let mut bytes = intact.clone();
        bytes[place] ^= 0x10;
        files(folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
        overwrite(&file, &bytes);
        let (tokens, restored, corrupt) = once_checked(&model, folder.path(), &request);
        assert!(tokens == want, "byte {place}");
        // Padding, and words after the end of the sequence, mean nothing.
        assert!(
            corrupt == 1 || restored == whole,
            "byte {place}: {restored} tokens, {corrupt} corrupt files"
        );
        partly += usize::from(corrupt == 1 && restored == BLOCK);
        unusable += usize::from(restored == 0);
        assert_eq!(once(&model, folder.path(), &request).1, whole, "byte {place}: not written again");
    }
    assert!(partly > 0 && unusable > 0, "{partly} used partly, {unusable} not used");
    for length in [0, 7, 64, intact.len() / 2, intact.len() - 1] {
        files(folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
        overwrite(&file, &intact[..length]);
        let (tokens, restored, corrupt) = once_checked(&model, folder.path(), &request);
        assert_eq!((tokens == want, restored, corrupt), (true, 0, 1), "{length} bytes");
    }
}

#[test]
fn other_types_of_the_cache_have_files_of_their_own() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    once(&model, folder.path(), &request);
    let with_type = || {
        let mut options = on_disk(&model, folder.path());
        options.session.cache = Some(siskin::CacheType::Int8);
        let (engine, id) = engine(&model, Drive::Thread, &options);
        let restored = answer(&engine, id, &request).1;
        engine.drain(Duration::from_secs(10));
        engine.drain(Duration::ZERO);
        assert_eq!(engine.disk_cache_stats(id).unwrap().corrupt, 0);
        restored
    };
    assert_eq!(with_type(), 0);
    assert!(with_type() >= BLOCK);
    assert!(once(&model, folder.path(), &request).1 >= BLOCK);
}

#[test]
fn requests_that_wait_share_a_file_and_unfinished_files_are_removed() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    once(&model, folder.path(), &request);
    let file = files(folder.path()).pop().unwrap();
    let unfinished = folder.path().join(format!(".{}.1-0.part", file.file_name().unwrap().to_string_lossy()));
    fs::write(&unfinished, "half").unwrap();
    let (engine, id) = engine(&model, Drive::Caller, &on_disk(&model, folder.path()));
    assert!(!unfinished.exists(), "an unfinished file stays");
    let streams: Vec<_> = (0..8).map(|_| engine.submit(id, request.clone()).unwrap()).collect();
    let want = alone(&model, &request);
    streams.into_iter().for_each(|stream| assert!(generated(stream).0 == want));
    let restored = engine.stats(id).unwrap().prefix_restored_tokens;
    assert!((BLOCK..2 * BLOCK).contains(&restored), "{restored} tokens restored for eight requests");
}

#[test]
fn the_folder_stays_within_its_size() {
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    once(&model, folder.path(), &request(&model, 0));
    let bytes = fs::metadata(&files(folder.path())[0]).unwrap().len();
    let mine = folder.path().join("mine.siskin-kv");
    fs::write(&mine, "a session of the user").unwrap();
    let mut options = on_disk(&model, folder.path());
    options.disk_cache.as_mut().unwrap().max_bytes = 3 * bytes + 100;
    for first in 1..6 {
        let (engine, id) = engine(&model, Drive::Caller, &options);
        answer(&engine, id, &request(&model, first));
        engine.drain(Duration::ZERO);
        // Modification times order the files.
        std::thread::sleep(Duration::from_millis(20));
    }
    let total: u64 = files(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(total <= 3 * bytes + 200, "{total} bytes");
    assert!(mine.exists(), "a file of the user was removed");
    assert!(once(&model, folder.path(), &request(&model, 5)).1 >= BLOCK, "the latest was removed");
    assert_eq!(once(&model, folder.path(), &request(&model, 1)).1, 0, "the oldest is there");
}

#[cfg(unix)]
#[test]
fn files_are_private_and_those_of_others_are_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let (model, folder) = (open("llama"), TempFolder::new("prefixes"));
    let request = request(&model, 5);
    once(&model, &folder.path().join("new/folder"), &request);
    let folder = folder.path().join("new/folder");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = files(&folder).pop().unwrap();
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(once(&model, &folder, &request).1, 0);
}

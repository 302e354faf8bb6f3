//! Opening any model: cache files are found, made, and made again when they are stale or broken.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Folder, data};
use siskin::ErrorKind;
use siskin::file::File;
use siskin_convert::{Cache, OpenOptions, PackOptions, Progress, open_any, pack_file};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts how often and how far packing ran.
#[derive(Default)]
struct Counter {
    packings: AtomicU64,
    total: AtomicU64,
    done: AtomicU64,
    stop: bool,
}

impl Progress for Counter {
    fn total(&self, bytes: u64) {
        self.packings.fetch_add(1, Ordering::Relaxed);
        self.total.store(bytes, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn message(&self, _text: &str) {}

    fn cancelled(&self) -> bool {
        self.stop
    }
}

fn open(path: &Path, cache: Cache, progress: &Counter) -> siskin::Result<File> {
    open_any(path, &OpenOptions { cache, recipe: None, progress })
}

fn source(folder: &Folder) -> std::path::PathBuf {
    let path = folder.join("model.gguf");
    std::fs::copy(data("gguf/tiny.gguf"), &path).unwrap();
    path
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_model_is_packed_once() {
    let folder = Folder::new("open-once");
    let (path, counter) = (source(&folder), Counter::default());
    let first = open(&path, Cache::Beside, &counter).unwrap();
    let second = open(&path, Cache::Auto, &counter).unwrap();
    assert_eq!(counter.packings.load(Ordering::Relaxed), 1);
    assert_eq!(counter.done.load(Ordering::Relaxed), counter.total.load(Ordering::Relaxed));
    assert_eq!(first.identity(), second.identity());
    assert!(folder.join("model.gguf.siskin").is_file());
    assert_eq!(
        open(&folder.join("model.gguf.siskin"), Cache::Auto, &counter).unwrap().identity(),
        first.identity()
    );
    assert_eq!(counter.packings.load(Ordering::Relaxed), 1);
    assert_eq!(entries(&folder.join("")), 2, "no temporary file is left");
}

#[test]
fn changed_sources_and_broken_caches_are_packed_again() {
    let folder = Folder::new("open-again");
    let (path, counter) = (source(&folder), Counter::default());
    let cached = folder.join("model.gguf.siskin");
    let packings = || {
        open(&path, Cache::Beside, &counter).unwrap().verify(&mut |_, _| true).unwrap();
        counter.packings.load(Ordering::Relaxed)
    };
    assert_eq!(packings(), 1);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!((packings(), packings()), (2, 2));
    let whole = std::fs::read(&cached).unwrap();
    std::fs::write(&cached, &whole[..whole.len() / 2]).unwrap();
    assert_eq!((packings(), packings()), (3, 3));
    std::fs::write(&cached, b"").unwrap();
    assert_eq!((packings(), packings()), (4, 4));
}

#[test]
fn recipes_have_their_own_caches() {
    let folder = Folder::new("open-recipe");
    let path = source(&folder);
    for _ in 0..2 {
        let recipe = Some("q4_0".parse().unwrap());
        let options = OpenOptions { cache: Cache::Beside, recipe, ..OpenOptions::default() };
        assert_eq!(open_any(&path, &options).unwrap().metadata().quantisation["recipe"], "q4_0");
        let options = OpenOptions { cache: Cache::Beside, ..OpenOptions::default() };
        assert!(open_any(&path, &options).unwrap().metadata().quantisation["recipe"].is_null());
    }
    assert!(folder.join("model.gguf.q4_0.siskin").is_file());
}

#[test]
fn a_file_that_is_not_a_cache_is_left_alone() {
    let folder = Folder::new("open-foreign");
    let (path, counter) = (source(&folder), Counter::default());
    let own = folder.join("model.gguf.siskin");
    pack_file(&path, &own, &PackOptions::default()).unwrap();
    let before = std::fs::read(&own).unwrap();
    let error = open(&path, Cache::Beside, &counter).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("model.gguf.siskin"), "{error}");
    assert_eq!(std::fs::read(&own).unwrap(), before);
}

#[test]
fn caches_in_folders_tell_same_names_apart() {
    let folder = Folder::new("open-folder");
    let (path, counter) = (source(&folder), Counter::default());
    let other = folder.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(&path, other.join("model.gguf")).unwrap();
    let caches = folder.join("deep/caches");
    for _ in 0..2 {
        open(&path, Cache::Folder(caches.clone()), &counter).unwrap();
        open(&other.join("model.gguf"), Cache::Folder(caches.clone()), &counter).unwrap();
    }
    assert_eq!((counter.packings.load(Ordering::Relaxed), entries(&caches)), (2, 2));
    std::fs::write(folder.join("file"), b"").unwrap();
    let error = open(&path, Cache::Folder(folder.join("file/below")), &counter).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("file/below"), "{error}");
}

#[test]
fn without_a_cache_nothing_is_left() {
    let folder = Folder::new("open-off");
    let (path, counter) = (source(&folder), Counter::default());
    let file = open(&path, Cache::Off, &counter).unwrap();
    file.verify(&mut |_, _| true).unwrap();
    assert_eq!(entries(&folder.join("")), 1);
}

#[test]
fn packing_can_be_stopped() {
    let folder = Folder::new("open-stop");
    let (path, counter) = (source(&folder), Counter { stop: true, ..Counter::default() });
    assert_eq!(open(&path, Cache::Beside, &counter).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(entries(&folder.join("")), 1, "no part of a file is left");
}

#[test]
fn a_bad_source_is_named_whatever_the_cache() {
    let folder = Folder::new("open-bad");
    let path = folder.join("bad.gguf");
    std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
    let error = open(&path, Cache::Auto, &Counter::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("bad.gguf"), "{error}");
    assert_eq!(entries(&folder.join("")), 1);
}

#[test]
fn many_may_open_at_once() {
    let folder = Folder::new("open-many");
    let path = source(&folder);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let file = open(&path, Cache::Beside, &Counter::default()).unwrap();
                file.verify(&mut |_, _| true).unwrap();
            });
        }
    });
    assert_eq!(entries(&folder.join("")), 2);
}

#[test]
fn a_model_is_not_packed_over_itself() {
    let folder = Folder::new("open-over");
    let path = source(&folder);
    let before = std::fs::read(&path).unwrap();
    let error = pack_file(&path, &path, &PackOptions::default()).unwrap_err();
    assert_eq!((error.kind(), std::fs::read(&path).unwrap()), (ErrorKind::Argument, before));
    let copy = folder.join("llama");
    std::fs::create_dir(&copy).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(common::golden("llama").join(name), copy.join(name)).unwrap();
    }
    let error = pack_file(&copy, &copy.join("config.json"), &PackOptions::default()).unwrap_err();
    assert_eq!((error.kind(), entries(&copy)), (ErrorKind::Argument, 2));
    pack_file(&copy, &copy.join("model.siskin"), &PackOptions::default()).unwrap();
}

//! Opening models of any format: cache files are found, created, and recreated when they are stale or corrupt.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, data};
use siskin_convert::{OpenOptions, PackOptions, PackedCache, ProgressSink, open_any, pack_file};
use siskin_format::ErrorKind;
use siskin_format::file::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the runs of packing and their progress.
#[derive(Default)]
struct Counter {
    packings: AtomicU64,
    total: AtomicU64,
    done: AtomicU64,
    stop: bool,
}

impl ProgressSink for Counter {
    fn total(&self, bytes: u64) {
        self.packings.fetch_add(1, Ordering::Relaxed);
        self.total.store(bytes, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn message(&self, _text: &str) {}

    fn canceled(&self) -> bool {
        self.stop
    }
}

fn open(path: &Path, cache: PackedCache, progress: &Counter) -> siskin_format::Result<File> {
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
    let first = open(&path, PackedCache::NextToSource, &counter).unwrap();
    let second = open(&path, PackedCache::NextToSource, &counter).unwrap();
    assert_eq!(counter.packings.load(Ordering::Relaxed), 1);
    assert_eq!(counter.done.load(Ordering::Relaxed), counter.total.load(Ordering::Relaxed));
    assert_eq!(first.identity(), second.identity());
    assert!(folder.join("model.gguf.siskin").is_file());
    assert_eq!(
        open(&folder.join("model.gguf.siskin"), PackedCache::User, &counter).unwrap().identity(),
        first.identity()
    );
    assert_eq!(counter.packings.load(Ordering::Relaxed), 1);
    assert_eq!(entries(&folder.join("")), 2, "no temporary file is left");
}

#[test]
fn changed_sources_and_broken_caches_are_packed_again() {
    let folder = Folder::new("open-again");
    let (path, counter) = (source(&folder), Counter::default());
    let caches = folder.join("caches");
    let packings = || {
        open(&path, PackedCache::Folder(caches.clone()), &counter).unwrap().verify(&mut |_, _| true).unwrap();
        counter.packings.load(Ordering::Relaxed)
    };
    let cached = || {
        let mut files = std::fs::read_dir(&caches).unwrap().map(|entry| entry.unwrap().path());
        let file = files.next().unwrap();
        assert_eq!(files.next(), None, "the stale cache file is gone");
        file
    };
    assert_eq!(packings(), 1);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!((packings(), packings()), (2, 2));
    let whole = std::fs::read(cached()).unwrap();
    std::fs::write(cached(), &whole[..whole.len() / 2]).unwrap();
    assert_eq!((packings(), packings()), (3, 3));
    std::fs::write(cached(), b"").unwrap();
    assert_eq!((packings(), packings()), (4, 4));
    assert_eq!(std::fs::metadata(cached()).unwrap().len(), whole.len() as u64);
}

#[test]
fn recipes_have_their_own_caches() {
    let folder = Folder::new("open-recipe");
    let path = source(&folder);
    for _ in 0..2 {
        let recipe = Some("q4_0".parse().unwrap());
        let options = OpenOptions { cache: PackedCache::NextToSource, recipe, ..OpenOptions::default() };
        assert_eq!(open_any(&path, &options).unwrap().metadata().quantization["recipe"], "q4_0");
        let options = OpenOptions { cache: PackedCache::NextToSource, ..OpenOptions::default() };
        assert!(open_any(&path, &options).unwrap().metadata().quantization["recipe"].is_null());
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
    let error = open(&path, PackedCache::NextToSource, &counter).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("model.gguf.siskin"), "{error}");
    assert_eq!(std::fs::read(&own).unwrap(), before);
}

/// Files that a download may contain under the name of its cache file.
#[test]
#[cfg(unix)]
fn cache_files_beside_a_model_replace_nothing_else() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("open-links");
    let (path, counter) = (source(&folder), Counter::default());
    let (beside, other) = (folder.join("model.gguf.siskin"), folder.join("authorized_keys"));
    let rejected = |what: &str| {
        let error = open(&path, PackedCache::NextToSource, &counter).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
        assert!(error.message().contains("model.gguf.siskin"), "{what}: {error}");
    };
    std::fs::write(&other, b"mine").unwrap();
    symlink(&other, &beside).unwrap();
    rejected("a link");
    assert!(beside.is_symlink() && std::fs::read(&other).unwrap() == b"mine");
    std::fs::remove_file(&other).unwrap();
    rejected("a dangling link");
    assert!(!other.exists());
    std::fs::remove_file(&beside).unwrap();
    for text in ["notes of the user", ""] {
        std::fs::write(&beside, text).unwrap();
        rejected("a file of the user");
        assert_eq!(std::fs::read_to_string(&beside).unwrap(), text);
    }
    std::fs::remove_file(&beside).unwrap();
    open(&path, PackedCache::NextToSource, &counter).unwrap();
    // In a cache folder, a symbolic link is not followed either.
    let caches = folder.join("caches");
    open(&path, PackedCache::Folder(caches.clone()), &counter).unwrap();
    let cached = std::fs::read_dir(&caches).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(&cached, &other).unwrap();
    symlink(&other, &cached).unwrap();
    assert_eq!(open(&path, PackedCache::Folder(caches), &counter).unwrap_err().kind(), ErrorKind::Io);
}

/// A source that is replaced by a file of the same size and mtime, as an archive that preserves times does.
#[test]
#[cfg(unix)]
fn a_source_is_known_by_more_than_its_size_and_time() {
    let folder = Folder::new("open-same-time");
    let (path, counter) = (source(&folder), Counter::default());
    for cache in [PackedCache::NextToSource, PackedCache::Folder(folder.join("caches"))] {
        let before = counter.packings.load(Ordering::Relaxed);
        open(&path, cache.clone(), &counter).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // In place, and as another file.
        for replace in [false, true] {
            if replace {
                std::fs::remove_file(&path).unwrap();
            }
            std::fs::write(&path, &bytes).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
            open(&path, cache.clone(), &counter).unwrap();
        }
        assert_eq!(counter.packings.load(Ordering::Relaxed), before + 3, "{cache:?}");
    }
}

#[test]
#[cfg(unix)]
fn cache_files_that_others_may_write_to_are_not_used() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = Folder::new("open-others");
    let (path, counter) = (source(&folder), Counter::default());
    let beside = folder.join("model.gguf.siskin");
    let mode = |mode| std::fs::set_permissions(&beside, PermissionsExt::from_mode(mode)).unwrap();
    open(&path, PackedCache::NextToSource, &counter).unwrap();
    assert_eq!(std::fs::metadata(&beside).unwrap().permissions().mode() & 0o022, 0);
    for writable in [0o664, 0o646] {
        mode(writable);
        assert_eq!(open(&path, PackedCache::NextToSource, &counter).unwrap_err().kind(), ErrorKind::Io);
    }
    mode(0o644);
    open(&path, PackedCache::NextToSource, &counter).unwrap();
    // Only root can change the owner of a file.
    if chown(&beside, Some(12345), None).is_ok() {
        assert_eq!(open(&path, PackedCache::NextToSource, &counter).unwrap_err().kind(), ErrorKind::Io);
    }
    assert_eq!(counter.packings.load(Ordering::Relaxed), 1);
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
        open(&path, PackedCache::Folder(caches.clone()), &counter).unwrap();
        open(&other.join("model.gguf"), PackedCache::Folder(caches.clone()), &counter).unwrap();
    }
    assert_eq!((counter.packings.load(Ordering::Relaxed), entries(&caches)), (2, 2));
    std::fs::write(folder.join("file"), b"").unwrap();
    let error = open(&path, PackedCache::Folder(folder.join("file/below")), &counter).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("file/below"), "{error}");
}

#[test]
fn without_a_cache_nothing_is_left() {
    let folder = Folder::new("open-off");
    let (path, counter) = (source(&folder), Counter::default());
    let file = open(&path, PackedCache::Off, &counter).unwrap();
    file.verify(&mut |_, _| true).unwrap();
    assert_eq!(entries(&folder.join("")), 1);
}

#[test]
fn packing_can_be_stopped() {
    let folder = Folder::new("open-stop");
    let (path, counter) = (source(&folder), Counter { stop: true, ..Counter::default() });
    assert_eq!(open(&path, PackedCache::NextToSource, &counter).unwrap_err().kind(), ErrorKind::Canceled);
    assert_eq!(entries(&folder.join("")), 1, "no part of a file is left");
}

#[test]
fn a_bad_source_is_named_whatever_the_cache() {
    let folder = Folder::new("open-bad");
    let path = folder.join("bad.gguf");
    std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
    let error = open(&path, PackedCache::Folder(folder.join("caches")), &Counter::default()).unwrap_err();
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
                let file = open(&path, PackedCache::NextToSource, &Counter::default()).unwrap();
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
        std::fs::copy(crate::common::golden("llama").join(name), copy.join(name)).unwrap();
    }
    let error = pack_file(&copy, &copy.join("config.json"), &PackOptions::default()).unwrap_err();
    assert_eq!((error.kind(), entries(&copy)), (ErrorKind::Argument, 2));
    pack_file(&copy, &copy.join("model.siskin"), &PackOptions::default()).unwrap();
}

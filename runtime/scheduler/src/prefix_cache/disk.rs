//! The disk tier of the prefix cache: prefixes that leave memory are written to files, where later requests, also those
//! of later processes, find them.
//!
//! A file is a `.siskin-kv` file (`docs/format-kv.md`) with one prefix. A thread writes the files, and the thread that
//! submits a request maps them and checks the blocks that it uses: a forward pass copies blocks at most. Files are
//! untrusted as far as their format goes; a valid file decides what the model has read, so that files which other users
//! can write are ignored. A file that cannot be used is removed, so that its prefix is written again.
//!
//! Several processes can share a folder. Each of them finds the files that were there when it opened the folder, and
//! those that it wrote.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use super::{
    ChainHash, PrefixCache, PrefixReuse, PrefixSnapshot, PrefixStore, PrefixStoreStats, StoredFile,
    StoredPrefix,
};
use crate::request::CacheSalt;
use crate::sync::lock;
use siskin_backend::block_table::BLOCK;
use siskin_format::file::{AtomicFile, Bytes, is_private, open_no_follow};
use siskin_format::kv::{KvFile, KvIdentity, KvLayout, KvPositions, MAGIC};
use siskin_format::{Error, ErrorKind, Result};

const EXTENSION: &str = "siskin-kv";
/// Prefixes that are or wait to be written. While there are more, prefixes that leave memory are dropped.
const MAX_PENDING: usize = 2;

/// Where prefixes are kept that leave memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The folder, which is created if necessary. Models and processes can share it. Its files contain the tokens of
    /// prompts and responses.
    pub folder: PathBuf,
    /// The maximum size of all its prefixes; the least recently used ones are removed.
    pub max_bytes: u64,
}

/// The files of one model in a folder. Dropping it waits until all prefixes that it took are written.
pub struct DiskPrefixCache {
    files: Arc<Files>,
    /// To the thread that writes files, which ends when this is dropped.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Files {
    options: DiskCacheOptions,
    identity: KvIdentity,
    layout: KvLayout,
    cache: CacheId,
    index: Mutex<FileIndex>,
    /// The chains that the cache in memory has, and how many of its prefixes have each.
    resident: Mutex<HashMap<ChainHash, usize>>,
    stats: Mutex<PrefixStoreStats>,
    /// Files that requests use: they are checked once.
    in_use: Mutex<Vec<(FileId, Weak<StoredFile>)>>,
}

#[derive(Default)]
struct FileIndex {
    /// Files that are there, and those that are or wait to be written.
    prefixes: PrefixCache<FileId>,
    pending: Vec<FileId>,
}

/// Identifies a file in its folder: a hash of the model, the layout, the salt, the tokens and how they can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u128);

/// A hash of the model and the layout of its KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheId(u64);

impl CacheId {
    fn of(identity: &KvIdentity, layout: &KvLayout) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&identity.model);
        identity.skipped_layers.iter().for_each(|layer| _ = hasher.update(&layer.to_le_bytes()));
        hasher.update(format!("{layout:?}").as_bytes());
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        Self(u64::from_be_bytes(hash))
    }
}

enum Job {
    /// Writes a prefix, and then removes the files that it makes superfluous.
    Write(Box<PrefixSnapshot>, FileId, Vec<FileId>),
    /// Marks a file as used.
    Touch(FileId),
    /// Answers once everything before it is done.
    Flush(Sender<()>),
}

impl DiskPrefixCache {
    /// Opens the files of the model with this identity, whose KV cache has this layout.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub fn open(options: DiskCacheOptions, identity: KvIdentity, layout: KvLayout) -> Result<Self> {
        create_folder(&options.folder)?;
        let files = Arc::new(Files {
            options,
            cache: CacheId::of(&identity, &layout),
            identity,
            layout,
            index: Mutex::default(),
            resident: Mutex::default(),
            stats: Mutex::default(),
            in_use: Mutex::default(),
        });
        remove_unfinished(&files.options.folder);
        files.index_folder();
        // Room for pending files and for touches, which are skipped if there is none.
        let (jobs, received) = sync_channel(4 * MAX_PENDING);
        let own = Arc::clone(&files);
        let thread = thread::Builder::new()
            .name("siskin-prefixes".to_owned())
            .spawn(move || own.run(&received))
            .map_err(|error| Error::new(ErrorKind::Memory, "threads", error.to_string()))?;
        Ok(Self { files, jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for DiskPrefixCache {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl PrefixStore for DiskPrefixCache {
    fn wants(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse, waits: bool) -> bool {
        let index = lock(&self.files.index);
        if let Some(file) = index.prefixes.covering(salt, tokens, reuse) {
            drop(index);
            // Only decides which files are removed first.
            let _ = self.jobs.as_ref().map(|jobs| jobs.try_send(Job::Touch(file)));
            return false;
        }
        let has_room = waits || index.pending.len() < MAX_PENDING;
        drop(index);
        lock(&self.files.stats).dropped += u64::from(!has_room);
        has_room
    }

    fn write(&self, prefix: PrefixSnapshot, waits: bool) {
        let Some(jobs) = &self.jobs else { return };
        let file = self.files.file_id(prefix.salt, &prefix.tokens, prefix.reuse);
        let mut index = lock(&self.files.index);
        let superfluous = index.prefixes.insert(prefix.salt, &prefix.tokens, file, prefix.reuse);
        if superfluous.contains(&file) {
            return;
        }
        index.pending.push(file);
        drop(index);
        let job = Job::Write(Box::new(prefix), file, superfluous);
        let is_taken = if waits { jobs.send(job).is_ok() } else { jobs.try_send(job).is_ok() };
        if !is_taken {
            self.files.settle(file, false);
            lock(&self.files.stats).dropped += 1;
        }
    }

    fn read(&self, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix> {
        let files = &self.files;
        let mut candidates = Vec::new();
        let mut index = lock(&files.index);
        index.prefixes.find(salt, tokens, |file, length| {
            candidates.push((file, length));
            None::<()>
        });
        candidates.retain(|(file, length)| *length >= BLOCK && !index.pending.contains(file));
        if candidates.is_empty() {
            return None;
        }
        let chains = index.prefixes.chains(salt, tokens);
        drop(index);
        for (file, length) in candidates {
            if lock(&files.resident).contains_key(&chains[length / BLOCK]) {
                return None;
            }
            if let Some(stored) = files.load(file, salt, &tokens[..length]) {
                lock(&files.stats).read += 1;
                return Some(stored);
            }
        }
        None
    }

    fn flush(&self) {
        let (done, wait) = channel();
        if self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job::Flush(done)).is_ok()) {
            // Fails if the thread has ended.
            let _ = wait.recv();
        }
    }

    fn add_resident(&self, chains: &[ChainHash]) {
        let mut counts = lock(&self.files.resident);
        chains.iter().for_each(|chain| *counts.entry(*chain).or_default() += 1);
    }

    fn remove_resident(&self, chains: &[ChainHash]) {
        let mut counts = lock(&self.files.resident);
        for chain in chains {
            if let Some(count) = counts.get_mut(chain) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(chain);
                }
            }
        }
    }

    fn stats(&self) -> PrefixStoreStats {
        *lock(&self.files.stats)
    }
}

impl Files {
    fn run(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Write(prefix, file, superfluous) => {
                    let outcome = self.write(*prefix, file);
                    let mut stats = lock(&self.stats);
                    stats.written += u64::from(outcome == Ok(true));
                    stats.dropped += u64::from(outcome == Ok(false));
                    stats.failed += u64::from(outcome.is_err());
                    drop(stats);
                    self.settle(file, outcome == Ok(true));
                    if outcome == Ok(true) {
                        superfluous.into_iter().for_each(|file| self.remove(file));
                    }
                }
                Job::Touch(file) => self.touch(file),
                // Fails if it no longer waits.
                Job::Flush(done) => drop(done.send(())),
            }
        }
    }

    /// Ends the time in which a file is pending.
    fn settle(&self, file: FileId, is_written: bool) {
        let mut index = lock(&self.index);
        index.pending.retain(|pending| *pending != file);
        if !is_written {
            index.prefixes.discard(file);
        }
    }

    /// Adds the existing files of the model to the index, and removes those that are damaged.
    fn index_folder(&self) {
        let mut index = lock(&self.index);
        for entry in entries(&self.options.folder).into_iter().filter(|entry| entry.cache == self.cache) {
            let Some(bytes) = mapped(&entry.path) else { continue };
            let Some((file, salt, reuse)) = self.parse(&bytes) else {
                lock(&self.stats).corrupt += 1;
                self.remove(entry.file);
                continue;
            };
            let superfluous = index.prefixes.insert(salt, &file.tokens, entry.file, reuse);
            superfluous.into_iter().for_each(|file| self.remove(file));
        }
    }

    /// Parses a file of this model and layout.
    fn parse<'a>(&self, bytes: &'a [u8]) -> Option<(KvFile<'a>, CacheSalt, PrefixReuse)> {
        let file = KvFile::parse(bytes).ok()?;
        let (salt, reuse) = read_session(file.session)?;
        let has_state = self.layout.groups.iter().any(|group| group.positions == KvPositions::RecurrentState);
        let is_ours = file.identity == self.identity
            && file.layout == self.layout
            && (reuse == PrefixReuse::Whole || !has_state);
        is_ours.then_some((file, salt, reuse))
    }

    /// Writes a prefix; false if it is too large.
    fn write(&self, prefix: PrefixSnapshot, file: FileId) -> Result<bool> {
        let PrefixSnapshot { salt, tokens, reuse, blocks } = prefix;
        let bytes = blocks.finish(&self.identity, &self.layout, &tokens, &write_session(salt, reuse))?;
        if !self.make_room(bytes.len() as u64) {
            return Ok(false);
        }
        AtomicFile::create_private(self.path(file), has_magic)?.commit_bytes(&bytes)?;
        Ok(true)
    }

    /// Removes the least recently used prefixes, so that a file of `bytes` fits; false if it cannot.
    fn make_room(&self, bytes: u64) -> bool {
        let Some(limit) = self.options.max_bytes.checked_sub(bytes) else { return false };
        let mut files = entries(&self.options.folder);
        files.sort_unstable_by_key(|file| file.used);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for entry in files {
            if total <= limit {
                break;
            }
            if let Err(error) = fs::remove_file(&entry.path)
                && error.kind() != io::ErrorKind::NotFound
            {
                continue;
            }
            total -= entry.bytes;
            if entry.cache == self.cache {
                lock(&self.index).prefixes.discard(entry.file);
            }
        }
        total <= limit
    }

    /// Maps the file of a prefix that begins with `tokens`, and checks their blocks. `None` if it cannot be used.
    fn load(&self, file: FileId, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix> {
        let known =
            lock(&self.in_use).iter().find(|(known, _)| *known == file).and_then(|(_, it)| it.upgrade());
        let known = known.filter(|known| known.verified >= tokens.len());
        let Some(bytes) =
            known.as_ref().map(|known| known.bytes.clone()).or_else(|| mapped(&self.path(file)))
        else {
            // Another process removed it.
            lock(&self.index).prefixes.discard(file);
            return None;
        };
        let parsed =
            self.parse(&bytes).filter(|(file, of, _)| *of == salt && file.tokens.starts_with(tokens));
        let Some((parsed, _, reuse)) = parsed else {
            self.discard_corrupt(file);
            return None;
        };
        let length = match &known {
            Some(_) => tokens.len(),
            None => intact_length(&parsed, tokens.len()),
        };
        if length < tokens.len() {
            self.discard_corrupt(file);
        }
        if !is_restorable(&parsed, length, reuse) {
            return None;
        }
        drop(parsed);
        let file = known.unwrap_or_else(|| self.keep(file, StoredFile { bytes, verified: length }));
        Some(StoredPrefix { file, length, reuse })
    }

    /// Remembers a file as long as requests use it, and marks it as used.
    fn keep(&self, file: FileId, stored: StoredFile) -> Arc<StoredFile> {
        self.touch(file);
        let stored = Arc::new(stored);
        let mut in_use = lock(&self.in_use);
        in_use.retain(|(known, other)| *known != file && other.strong_count() > 0);
        in_use.push((file, Arc::downgrade(&stored)));
        stored
    }

    /// Marks a file as used.
    fn touch(&self, file: FileId) {
        // It may have been removed by another process; and only decides which files are removed first.
        let _ = File::open(self.path(file)).and_then(|file| file.set_modified(SystemTime::now()));
    }

    fn discard_corrupt(&self, file: FileId) {
        lock(&self.stats).corrupt += 1;
        lock(&self.index).prefixes.discard(file);
        self.remove(file);
    }

    fn remove(&self, file: FileId) {
        // It may have been removed by another process.
        let _ = fs::remove_file(self.path(file));
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.options.folder.join(format!("{:016x}-{:032x}.{EXTENSION}", self.cache.0, file.0))
    }

    fn file_id(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> FileId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.cache.0.to_be_bytes()).update(&write_session(salt, reuse));
        tokens.iter().for_each(|token| _ = hasher.update(&token.to_le_bytes()));
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        FileId(u128::from_be_bytes(id))
    }
}

/// A file of a prefix in the folder.
struct Entry {
    path: PathBuf,
    cache: CacheId,
    file: FileId,
    bytes: u64,
    used: SystemTime,
}

/// Returns the prefixes in a folder, of all models. Other files are not touched.
fn entries(folder: &Path) -> Vec<Entry> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let entry = |found: fs::DirEntry| {
        let path = found.path();
        path.extension().filter(|extension| *extension == EXTENSION)?;
        let (cache, file) = parse_name(&path.file_stem()?.to_string_lossy())?;
        let facts = found.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Entry { path, cache, file, bytes: facts.len(), used: facts.modified().ok()? })
    };
    found.flatten().filter_map(entry).collect()
}

/// Parses the name of a file without its extension: the hash of the model and the layout, and the id.
fn parse_name(name: &str) -> Option<(CacheId, FileId)> {
    let (cache, file) = name.split_once('-')?;
    let is_hex = |text: &str| text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if cache.len() != 16 || file.len() != 32 || !is_hex(cache) || !is_hex(file) {
        return None;
    }
    let cache = CacheId(u64::from_str_radix(cache, 16).ok()?);
    Some((cache, FileId(u128::from_str_radix(file, 16).ok()?)))
}

/// Removes what killed processes left of files that they were writing.
fn remove_unfinished(folder: &Path) {
    let Ok(found) = fs::read_dir(folder) else { return };
    for name in found.flatten().map(|entry| entry.file_name()) {
        let name = name.to_string_lossy();
        let target = name.strip_prefix('.').and_then(|rest| rest.split_once(&format!(".{EXTENSION}.")));
        let Some((target, _)) = target.filter(|(target, _)| parse_name(target).is_some()) else { continue };
        // Removes unfinished files of the same target that no process writes, and itself.
        let _ = AtomicFile::create_private(folder.join(format!("{target}.{EXTENSION}")), |_| true);
    }
}

/// Maps a file of this user.
fn mapped(path: &Path) -> Option<Bytes> {
    Bytes::map(&open_no_follow(path).ok()?.filter(is_private)?).ok()
}

/// Returns how many of the first `wanted` tokens have intact blocks.
fn intact_length(file: &KvFile<'_>, wanted: usize) -> usize {
    let mut length = wanted;
    for (number, group) in file.layout.groups.iter().enumerate() {
        let mut used = file.block_numbers(number).take_while(|index| index.saturating_mul(BLOCK) < length);
        match used.find(|index| file.block(number, *index).is_err()) {
            None => {}
            Some(index) if group.positions == KvPositions::Full => length = index * BLOCK,
            // Of windows and states, later positions may need earlier ones.
            Some(_) => return 0,
        }
    }
    length
}

/// Returns whether a file has all blocks that a sequence of its first `length` tokens has.
fn is_restorable(file: &KvFile<'_>, length: usize, reuse: PrefixReuse) -> bool {
    if length < BLOCK || reuse == PrefixReuse::Whole && length < file.tokens.len() {
        return false;
    }
    file.layout.groups.iter().enumerate().all(|(number, group)| {
        let KvPositions::SlidingWindow { window, sinks } = group.positions else { return true };
        let first_visible = (length + 1).saturating_sub(window as usize) / BLOCK;
        let needed = (0..(sinks as usize).div_ceil(BLOCK)).chain(first_visible..length.div_ceil(BLOCK));
        let there: Vec<usize> = file.block_numbers(number).collect();
        needed.into_iter().all(|index| there.binary_search(&index).is_ok())
    })
}

/// Returns the session section of a prefix: the salt, and whether it can only be used whole.
fn write_session(salt: CacheSalt, reuse: PrefixReuse) -> Vec<u8> {
    let is_whole = u32::from(reuse == PrefixReuse::Whole);
    [&salt.0[..], &is_whole.to_le_bytes()].concat()
}

fn read_session(session: &[u8]) -> Option<(CacheSalt, PrefixReuse)> {
    let (salt, is_whole) = session.split_first_chunk()?;
    let reuse = match u32::from_le_bytes(is_whole.try_into().ok()?) {
        0 => PrefixReuse::Partial,
        1 => PrefixReuse::Whole,
        _ => return None,
    };
    Some((CacheSalt(*salt), reuse))
}

/// Creates a folder that only this user can read, unless it exists, and checks that files can be written there.
fn create_folder(folder: &Path) -> Result<()> {
    let failed = |error: io::Error| Error::io(folder.display().to_string(), &error);
    if !folder.is_dir() {
        folder.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder).map_err(failed)?;
    }
    AtomicFile::create_private(folder.join(format!("new.{EXTENSION}")), |_| true).map(drop)
}

/// Returns whether a file is a `.siskin-kv` file.
fn has_magic(mut file: File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).is_ok() && magic == MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin_format::kv::{KvFileWriter, KvGroup};

    /// A file of 200 tokens, whose second group has a window of 70 positions.
    fn windowed() -> Vec<u8> {
        let window = KvPositions::SlidingWindow { window: 70, sinks: 0 };
        let group = |positions| KvGroup { positions, block_words: 1, block_format: "F32 1".to_owned() };
        let groups = vec![group(KvPositions::Full), group(window)];
        let layout = KvLayout { block_positions: BLOCK as u32, groups };
        let mut writer = KvFileWriter::default();
        for (group, index) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3)] {
            let fill = |out: &mut Vec<u8>| {
                out.extend([1, 2, 3, index as u8]);
                Ok(())
            };
            assert_eq!(writer.block(group, index, fill), Ok(()));
        }
        let identity = KvIdentity { model: [7; 32], skipped_layers: Vec::new() };
        let tokens: Vec<u32> = (0..200).collect();
        let session = write_session(CacheSalt::default(), PrefixReuse::Partial);
        writer.finish(&identity, &layout, &tokens, &session).unwrap_or_default()
    }

    #[test]
    fn a_window_is_only_restored_where_its_blocks_are() {
        let bytes = windowed();
        let file = KvFile::parse(&bytes);
        assert!(file.is_ok());
        let Ok(file) = file else { return };
        let restorable = |length| is_restorable(&file, length, PrefixReuse::Partial);
        // After 197 tokens, the next one sees position 128.
        assert_eq!([200, 197, 196, 130, 63].map(restorable), [true, true, false, false, false]);
        assert!(is_restorable(&file, 200, PrefixReuse::Whole));
        assert!(!is_restorable(&file, 199, PrefixReuse::Whole));
        assert_eq!(read_session(file.session), Some((CacheSalt::default(), PrefixReuse::Partial)));
    }

    #[test]
    fn names_of_files_are_recognized() {
        let name = format!("{}-{}", "0123456789abcdef", "00".repeat(15) + "ff");
        assert_eq!(parse_name(&name), Some((CacheId(0x0123_4567_89ab_cdef), FileId(255))));
        for other in ["notes", "a-b", &name.to_uppercase(), &name[1..], &format!("{name}0")] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}

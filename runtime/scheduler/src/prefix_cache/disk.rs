//! The disk tier of the prefix cache: prefixes that leave memory are written to files, where later requests, also those
//! of later processes, find them.
//!
//! A file is a `.siskin-kv` file (`docs/format-kv.md`) with one prefix. A thread writes and indexes the files, and the
//! thread that submits a request reads them, so that no forward pass waits for the disk: a pass copies blocks at most.
//! Files are untrusted as far as their format goes, and a prefix ends before its first damaged block. A valid file
//! decides what the model has read, so that files which other users can write are ignored.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use super::{
    PrefixCache, PrefixReuse, PrefixSnapshot, PrefixStore, PrefixStoreStats, ResidentChains, StoredPrefix,
};
use crate::request::CacheSalt;
use siskin_backend::block_table::BLOCK;
use siskin_format::file::{AtomicFile, Bytes, is_private, open_no_follow};
use siskin_format::kv::{KvFile, KvIdentity, KvPositions, MAGIC};
use siskin_format::{Error, ErrorKind, Result};

const EXTENSION: &str = "siskin-kv";
/// Prefixes that wait to be written. While there are more, prefixes that leave memory are lost.
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
    index: Mutex<PrefixCache<FileId>>,
    /// The chains of whole blocks of prefixes in memory.
    resident: Arc<ResidentChains>,
    stats: Mutex<PrefixStoreStats>,
}

/// Identifies a file in its folder: a hash of the model, the salt, the tokens and how they can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId([u8; 16]);

enum Job {
    Write(Box<PrefixSnapshot>),
    /// Answers once everything before it is done.
    Flush(Sender<()>),
}

impl DiskPrefixCache {
    /// Opens the files of the model with this identity.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub fn open(options: DiskCacheOptions, identity: KvIdentity) -> Result<Self> {
        create_folder(&options.folder)?;
        let files = Arc::new(Files {
            options,
            identity,
            index: Mutex::default(),
            resident: Arc::default(),
            stats: Mutex::default(),
        });
        files.index_folder();
        let (jobs, received) = sync_channel(MAX_PENDING);
        let own = Arc::clone(&files);
        let thread = thread::Builder::new()
            .name("siskin-prefixes".to_owned())
            .spawn(move || own.write_all(&received))
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
    fn covers(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> bool {
        lock(&self.files.index).covers(salt, tokens, reuse)
    }

    fn write(&self, prefix: PrefixSnapshot, waits: bool) {
        let Some(jobs) = &self.jobs else { return };
        let job = Job::Write(Box::new(prefix));
        let is_lost = match waits {
            true => jobs.send(job).is_err(),
            false => matches!(jobs.try_send(job), Err(TrySendError::Full(_) | TrySendError::Disconnected(_))),
        };
        lock(&self.files.stats).lost += u64::from(is_lost);
    }

    fn read(&self, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix> {
        let files = &self.files;
        let mut index = lock(&files.index);
        let (file, common) = index.find(salt, tokens, |file, _| Some(file))?;
        let chains = index.chains(salt, &tokens[..common / BLOCK * BLOCK]);
        drop(index);
        if common < BLOCK || chains.last().is_some_and(|chain| files.resident.contains(chain)) {
            return None;
        }
        let stored = files.load(file, salt, tokens);
        if stored.is_none() {
            lock(&files.index).discard(file);
        }
        let mut stats = lock(&files.stats);
        stats.read += u64::from(stored.is_some());
        stats.damaged += u64::from(stored.as_ref().is_none_or(|stored| stored.length < common));
        drop(stats);
        stored
    }

    fn flush(&self) {
        let (done, wait) = channel();
        if self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job::Flush(done)).is_ok()) {
            // Fails if the thread has ended.
            let _ = wait.recv();
        }
    }

    fn resident(&self) -> Arc<ResidentChains> {
        Arc::clone(&self.files.resident)
    }

    fn stats(&self) -> PrefixStoreStats {
        *lock(&self.files.stats)
    }
}

impl Files {
    fn write_all(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Write(prefix) => {
                    let outcome = self.write(*prefix);
                    let mut stats = lock(&self.stats);
                    stats.written += u64::from(outcome == Ok(true));
                    stats.lost += u64::from(outcome.is_err());
                }
                // Fails if it no longer waits.
                Job::Flush(done) => drop(done.send(())),
            }
        }
    }

    /// Adds the existing files of the model to the index.
    fn index_folder(&self) {
        let name = hex(&self.identity_hash());
        for entry in entries(&self.options.folder) {
            if !entry.path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name)) {
                continue;
            }
            let read = || -> Option<(CacheSalt, PrefixReuse, Vec<u32>)> {
                let file = open_no_follow(&entry.path).ok()??;
                let bytes = Bytes::map(&Some(file).filter(is_private)?).ok()?;
                let file = KvFile::parse(&bytes).ok()?;
                let (salt, reuse) = read_session(file.session)?;
                (file.identity == self.identity).then_some((salt, reuse, file.tokens))
            };
            match read() {
                Some((salt, reuse, tokens)) => self.add(salt, &tokens, reuse),
                None => lock(&self.stats).damaged += 1,
            }
        }
    }

    /// Adds a file that was written to the index, and removes those that it makes superfluous.
    fn add(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) {
        let file = self.file_id(salt, tokens, reuse);
        for superfluous in lock(&self.index).insert(salt, tokens, file, reuse) {
            self.remove(superfluous);
        }
    }

    /// Writes a prefix unless a file has it or it is too large; returns whether it did.
    fn write(&self, prefix: PrefixSnapshot) -> Result<bool> {
        let PrefixSnapshot { salt, tokens, reuse, layout, blocks } = prefix;
        if lock(&self.index).covers(salt, &tokens, reuse) {
            return Ok(false);
        }
        let bytes = blocks.finish(&self.identity, &layout, &tokens, &write_session(salt, reuse))?;
        if !self.make_room(bytes.len() as u64) {
            return Ok(false);
        }
        let path = self.path(self.file_id(salt, &tokens, reuse));
        AtomicFile::create_private(path, has_magic)?.commit_bytes(&bytes)?;
        self.add(salt, &tokens, reuse);
        Ok(true)
    }

    /// Removes the least recently used prefixes, so that a file of `bytes` fits; false if it cannot.
    fn make_room(&self, bytes: u64) -> bool {
        let Some(limit) = self.options.max_bytes.checked_sub(bytes) else { return false };
        let mut files = entries(&self.options.folder);
        files.sort_unstable_by_key(|file| file.used);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if total <= limit {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                total -= file.bytes;
            }
            let removed = file.path.file_stem().and_then(|name| parse_name(&name.to_string_lossy()));
            removed.into_iter().for_each(|file| lock(&self.index).discard(file));
        }
        total <= limit
    }

    /// Reads a file and checks its blocks; `None` if it has none of the tokens.
    fn load(&self, file: FileId, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix> {
        let path = self.path(file);
        let mut handle = open_no_follow(&path).ok()?.filter(is_private)?;
        let size = handle.metadata().ok()?.len();
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(usize::try_from(size).ok().filter(|_| size <= self.options.max_bytes)?)
            .ok()?;
        (&mut handle).take(size).read_to_end(&mut bytes).ok()?;
        let parsed = KvFile::parse(&bytes).ok()?;
        let (found_salt, reuse) = read_session(parsed.session)?;
        if parsed.identity != self.identity || found_salt != salt {
            return None;
        }
        let limit = tokens.len().checked_sub(1)?;
        let common = parsed.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count();
        let length = intact_length(&parsed, common, reuse).filter(|&length| length >= BLOCK)?;
        // Only decides which files are removed first.
        let _ = handle.set_modified(SystemTime::now());
        Some(StoredPrefix { bytes, length, reuse })
    }

    fn remove(&self, file: FileId) {
        // It may have been removed by another process.
        let _ = fs::remove_file(self.path(file));
    }

    fn path(&self, file: FileId) -> PathBuf {
        let name = format!("{}-{}.{EXTENSION}", hex(&self.identity_hash()), hex(&file.0));
        self.options.folder.join(name)
    }

    fn identity_hash(&self) -> [u8; 8] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.identity.model);
        self.identity.skipped_layers.iter().for_each(|layer| _ = hasher.update(&layer.to_le_bytes()));
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }

    fn file_id(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> FileId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.identity.model).update(&write_session(salt, reuse));
        tokens.iter().for_each(|token| _ = hasher.update(&token.to_le_bytes()));
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        FileId(id)
    }
}

/// A file of a prefix in the folder.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Returns the prefixes in a folder, of all models. Other files are not touched.
fn entries(folder: &Path) -> Vec<Entry> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let entry = |found: fs::DirEntry| {
        let path = found.path();
        path.extension().filter(|extension| *extension == EXTENSION)?;
        parse_name(&path.file_stem()?.to_string_lossy())?;
        let facts = found.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Entry { path, bytes: facts.len(), used: facts.modified().ok()? })
    };
    found.flatten().filter_map(entry).collect()
}

/// Parses the name of a file without its extension: a hash of the model and the id.
fn parse_name(name: &str) -> Option<FileId> {
    let (model, id) = name.split_once('-')?;
    let is_hex = |text: &str| text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if model.len() != 16 || id.len() != 32 || !is_hex(model) || !is_hex(id) {
        return None;
    }
    u128::from_str_radix(id, 16).ok().map(|number| FileId(number.to_be_bytes()))
}

/// Returns how many of the first `common` tokens have intact blocks; `None` if they cannot be used.
fn intact_length(file: &KvFile<'_>, common: usize, reuse: PrefixReuse) -> Option<usize> {
    let mut length = common;
    for (number, group) in file.layout.groups.iter().enumerate() {
        let has_all_positions = group.positions == KvPositions::Full;
        for index in file.block_numbers(number) {
            let start = index.saturating_mul(BLOCK);
            if start >= length || file.block(number, index).is_ok() {
                continue;
            }
            if !has_all_positions {
                return None;
            }
            length = start;
        }
    }
    match reuse {
        PrefixReuse::Partial => Some(length),
        PrefixReuse::Whole => (length == file.tokens.len()).then_some(length),
    }
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
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
    AtomicFile::create_private(folder.join(format!("new.{EXTENSION}")), |_| true).map(drop)
}

/// Returns whether a file is a `.siskin-kv` file.
fn has_magic(mut file: File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).is_ok() && magic == MAGIC
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

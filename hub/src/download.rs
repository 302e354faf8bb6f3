//! Downloads of files: in ranges over several connections, continued after failures, and verified.

use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

use siskin_format::{Error, ErrorKind, Result};
use ureq::Body;
use ureq::http::Response;

use crate::digest::{FileDigest, FileHasher};
use crate::disk;
use crate::journal::{Journal, arrived_bytes};
use crate::store::RepositoryFolder;
use crate::transport::{GetRequest, Transport, refused};

/// The bytes of a request.
pub(crate) const PIECE: u64 = 16 << 20;
const CONNECTIONS: usize = 4;
/// How many requests in a row may bring nothing.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The bytes of a write, and of an entry of the journal.
const BUFFER: usize = 256 << 10;

/// A file on a server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFile {
    pub(crate) url: String,
    /// A token for the server of the URL.
    pub(crate) token: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) content: RemoteContent,
}

/// What is known about the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteContent {
    /// The digest that its source publishes.
    Digest(FileDigest),
    /// The entity tag of a web server, if it has one: responses with another one are of other bytes.
    Tag(Option<String>),
}

/// Called with the bytes that have arrived, and all bytes; `Break` ends the download, which can be continued later.
pub type DownloadProgress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Downloads a file to the blobs of a repository unless it is there, and returns its digest. The repository is locked.
pub(crate) fn download(
    transport: &Transport,
    remote: &RemoteFile,
    folder: &RepositoryFolder,
    progress: &mut DownloadProgress<'_>,
) -> Result<FileDigest> {
    let target = folder.blob(&remote.content.blob_name())?;
    if let RemoteContent::Digest(digest) = remote.content
        && target.exists()
    {
        return Ok(digest);
    }
    let journal = Journal::open(&target, &remote.identity(), remote.bytes)?;
    if remote.content == RemoteContent::Tag(None) {
        // Nothing says that the parts would be of the same file.
        journal.restart()?;
    }
    disk::check_space(&target, remote.bytes - journal.arrived().count())?;
    let found = Transfer::new(transport, remote, &journal).run(progress)?;
    match remote.content {
        RemoteContent::Digest(digest) if found != digest => {
            // No range of it can be trusted.
            journal.discard();
            let message =
                format!("the digest of the bytes is {found} instead of {digest}; download it again");
            Err(Error::new(ErrorKind::Integrity, remote.place(), message))
        }
        _ => journal.commit(&folder.blob(&found.to_string())?).map(|()| found),
    }
}

impl RemoteContent {
    /// Returns the name of the blob, which is that of the digest in the end.
    pub(crate) fn blob_name(&self) -> String {
        match self {
            Self::Digest(digest) => digest.to_string(),
            Self::Tag(_) => "unverified".to_owned(),
        }
    }

    /// Returns a digest of the kind that is computed.
    fn kind(&self) -> FileDigest {
        match self {
            Self::Digest(digest) => *digest,
            Self::Tag(_) => FileDigest::Sha256([0; 32]),
        }
    }
}

impl RemoteFile {
    /// Returns whether the file, or a part of it, is in a repository.
    pub(crate) fn has_begun(&self, folder: &RepositoryFolder) -> bool {
        let name = self.content.blob_name();
        ["", ".siskin-part"].iter().any(|end| folder.has_blob(&format!("{name}{end}")))
    }

    /// Returns how many of its bytes are in a repository.
    pub(crate) fn arrived_bytes(&self, folder: &RepositoryFolder) -> u64 {
        let name = self.content.blob_name();
        match folder.has_blob(&name) {
            true => self.bytes,
            false => arrived_bytes(&folder.blob_path(&name), &self.identity(), self.bytes),
        }
    }

    /// Returns what must not change between two parts of a download.
    pub(crate) fn identity(&self) -> String {
        match &self.content {
            RemoteContent::Digest(digest) => digest.to_string(),
            RemoteContent::Tag(tag) => format!("{} {}", self.url, tag.as_deref().unwrap_or_default()),
        }
    }

    /// The URL without its query, which may hold a signature.
    fn place(&self) -> String {
        self.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}

/// What the connections of a download share.
pub(crate) struct Transfer<'a> {
    transport: &'a Transport,
    remote: &'a RemoteFile,
    journal: &'a Journal,
    /// Whether the whole file is not taken from a server without ranges.
    needs_ranges: bool,
    state: Mutex<TransferState>,
    /// Signaled when bytes have arrived, and when a connection ends.
    arrived: Condvar,
}

struct TransferState {
    /// What no connection has taken yet, the first range last.
    missing: Vec<Range<u64>>,
    /// The connection that receives the whole file, from a server without ranges.
    stream: Option<ThreadId>,
    running: usize,
    error: Option<Error>,
    is_canceled: bool,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(transport: &'a Transport, remote: &'a RemoteFile, journal: &'a Journal) -> Self {
        // What nothing identifies must come in one piece.
        let piece = if remote.content == RemoteContent::Tag(None) { remote.bytes } else { PIECE };
        let mut missing = journal.arrived().missing(remote.bytes, piece);
        missing.reverse();
        let state =
            TransferState { missing, stream: None, running: CONNECTIONS, error: None, is_canceled: false };
        Self {
            transport,
            remote,
            journal,
            needs_ranges: false,
            state: Mutex::new(state),
            arrived: Condvar::new(),
        }
    }

    /// Fails instead of taking the whole file from a server without ranges.
    pub(crate) fn of_ranges_only(self) -> Self {
        Self { needs_ranges: true, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Downloads what is missing, and returns the digest of the file.
    fn run(&self, progress: &mut DownloadProgress<'_>) -> Result<FileDigest> {
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| self.connection());
            }
            let hashed = self.hash(progress);
            // Ends connections that wait, whether the digest is there or failed.
            self.lock().is_canceled = true;
            hashed
        })
    }

    /// Computes the digest while ranges arrive.
    fn hash(&self, progress: &mut DownloadProgress<'_>) -> Result<FileDigest> {
        let mut hasher = FileHasher::new(&self.remote.content.kind(), self.remote.bytes);
        let (mut hashed, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            let arrived = self.journal.arrived();
            if progress(arrived.count(), self.remote.bytes).is_break() {
                return Err(Error::new(
                    ErrorKind::Canceled,
                    self.remote.place(),
                    "canceled; run the command again to resume",
                ));
            }
            let end = arrived.prefix().min(hashed + buffer.len() as u64);
            let piece = &mut buffer[..(end - hashed) as usize];
            self.journal.read(hashed, piece)?;
            hasher.update(piece);
            hashed = end;
            if hashed == self.remote.bytes {
                return Ok(hasher.finish());
            }
            if piece.is_empty() {
                self.wait()?;
            }
        }
    }

    /// Waits for bytes; fails if none will arrive.
    fn wait(&self) -> Result<()> {
        let mut state = self.lock();
        if state.running > 0 && state.error.is_none() {
            let timeout = Duration::from_millis(100);
            state =
                self.arrived.wait_timeout(state, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Downloads one range after the other.
    fn connection(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                let is_over = state.is_canceled || state.error.is_some();
                if is_over { None } else { state.missing.pop() }
            };
            let Some(range) = next else { break };
            if let Err(error) = self.fetch(range) {
                self.lock().error.get_or_insert(error);
                break;
            }
        }
        self.lock().running -= 1;
        self.arrived.notify_all();
    }

    /// Downloads a range, with as many requests as it takes.
    pub(crate) fn fetch(&self, mut range: Range<u64>) -> Result<()> {
        let (mut attempts, mut pause) = (0, FIRST_PAUSE);
        while !range.is_empty() {
            let before = range.start;
            let failure = match self.request(&mut range) {
                Ok(()) if range.is_empty() => return Ok(()),
                Ok(()) => Retry { error: self.cut_off(), after: None },
                Err(Failure::Retry(retry)) => retry,
                Err(Failure::Final(error)) => return Err(error),
            };
            if range.start > before {
                (attempts, pause) = (0, FIRST_PAUSE);
            }
            attempts += 1;
            // The rest could be of another file.
            let is_over = self.remote.content == RemoteContent::Tag(None) && range.start > 0;
            if attempts >= MAX_ATTEMPTS || is_over {
                return Err(failure.error);
            }
            self.sleep(failure.after.unwrap_or(pause));
            pause = (pause * 2).min(MAX_PAUSE);
            if self.lock().is_canceled {
                return Ok(());
            }
        }
        Ok(())
    }

    fn cut_off(&self) -> Error {
        Error::new(ErrorKind::Io, self.remote.place(), "the connection was closed before the end of the file")
    }

    /// Sleeps, unless the download ends.
    fn sleep(&self, duration: Duration) {
        let end = std::time::Instant::now() + duration;
        while !self.lock().is_canceled {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Sends one request, and removes what arrived from the range.
    fn request(&self, range: &mut Range<u64>) -> std::result::Result<(), Failure> {
        let request = GetRequest {
            token: self.remote.token.as_deref(),
            range: Some(range.clone()),
            ..GetRequest::new(&self.remote.url)
        };
        let response = self.transport.get(&request).map_err(Failure::retry)?;
        match response.status().as_u16() {
            200 | 206 if self.has_changed(&response) => {
                let message = "the file has changed while it was downloaded; download it again";
                Err(Failure::Final(Error::new(ErrorKind::Integrity, self.remote.place(), message)))
            }
            206 if !self.covers(&response, range) => {
                let message = "the server sent another range, or the file has changed; download it again";
                Err(Failure::Final(Error::new(ErrorKind::Integrity, self.remote.place(), message)))
            }
            206 => self.read(response, range, 0),
            200 if self.has_other_length(&response) => {
                let message = "the file has another length now; download it again";
                Err(Failure::Final(Error::new(ErrorKind::Integrity, self.remote.place(), message)))
            }
            200 if self.needs_ranges => {
                Err(Failure::Final(Error::unsupported(self.remote.place(), "the server sends no ranges")))
            }
            // A server without ranges sends all: what has arrived is skipped.
            200 => match self.take_stream(range) {
                true => self.read(response, range, range.start),
                false => Ok(()),
            },
            429 | 500 | 502 | 503 | 504 => {
                let after = retry_after(&response);
                Err(Failure::Retry(Retry { error: refused(&self.remote.url, &response), after }))
            }
            _ => Err(Failure::Final(refused(&self.remote.url, &response))),
        }
    }

    /// Returns true if a response is of another file than the first one.
    fn has_changed(&self, response: &Response<Body>) -> bool {
        let RemoteContent::Tag(Some(expected)) = &self.remote.content else { return false };
        let found = response.headers().get("etag").and_then(|value| value.to_str().ok());
        found != Some(expected.as_str())
    }

    fn has_other_length(&self, response: &Response<Body>) -> bool {
        let length = response.headers().get("content-length").and_then(|value| value.to_str().ok());
        length.is_some_and(|length| length.parse() != Ok(self.remote.bytes))
    }

    /// Makes the range all that is missing, if this is the connection that receives the whole file; otherwise empties it.
    fn take_stream(&self, range: &mut Range<u64>) -> bool {
        let mut state = self.lock();
        state.missing.clear();
        let this = std::thread::current().id();
        if *state.stream.get_or_insert(this) != this {
            range.start = range.end;
            return false;
        }
        *range = self.journal.arrived().prefix()..self.remote.bytes;
        true
    }

    /// Returns true if a response has the range of a file of the expected length.
    fn covers(&self, response: &Response<Body>, range: &Range<u64>) -> bool {
        let header = response.headers().get("content-range").and_then(|value| value.to_str().ok());
        let parsed = header.and_then(|header| {
            let (bytes, length) = header.strip_prefix("bytes ")?.split_once('/')?;
            let (start, end) = bytes.split_once('-')?;
            Some((start.parse::<u64>().ok()?, end.parse::<u64>().ok()?, length.parse::<u64>().ok()?))
        });
        parsed.is_some_and(|(start, end, length)| {
            start == range.start && end < range.end && end >= start && length == self.remote.bytes
        })
    }

    /// Writes the bytes of a response behind the first `skipped`.
    fn read(
        &self,
        response: Response<Body>,
        range: &mut Range<u64>,
        mut skipped: u64,
    ) -> std::result::Result<(), Failure> {
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; BUFFER];
        let mut filled = 0;
        let ended = loop {
            let wanted = if skipped > 0 { skipped } else { range.end - range.start - filled as u64 };
            let wanted = wanted.min((BUFFER - filled) as u64) as usize;
            if wanted == 0 || self.lock().is_canceled {
                break Ok(());
            }
            match body.read(&mut buffer[filled..filled + wanted]) {
                Ok(0) => break Ok(()),
                Ok(count) if skipped > 0 => skipped -= count as u64,
                Ok(count) => filled += count,
                Err(error) => break Err(Failure::retry(Error::io(self.remote.place(), &error))),
            }
            if filled == BUFFER {
                self.write(range, &buffer).map_err(Failure::Final)?;
                filled = 0;
            }
        };
        // What arrived before a failure is kept.
        self.write(range, &buffer[..filled]).map_err(Failure::Final)?;
        ended
    }

    fn write(&self, range: &mut Range<u64>, bytes: &[u8]) -> Result<()> {
        if !bytes.is_empty() {
            self.journal.write(range.start, bytes)?;
            range.start += bytes.len() as u64;
            self.arrived.notify_all();
        }
        Ok(())
    }
}

/// A request that may succeed later.
struct Retry {
    error: Error,
    /// The pause that the server asked for.
    after: Option<Duration>,
}

enum Failure {
    Retry(Retry),
    Final(Error),
}

impl Failure {
    fn retry(error: Error) -> Self {
        // Retrying cannot fix an untrusted URL.
        match error.kind() {
            ErrorKind::Io => Self::Retry(Retry { error, after: None }),
            _ => Self::Final(error),
        }
    }
}

/// Returns the pause that a server asks for: in `Retry-After`, or until its window ends (`RateLimit: …;t=SECONDS`).
fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let seconds = header("retry-after").and_then(|value| value.trim().parse::<u64>().ok());
    let window = || {
        let fields = header("ratelimit")?.split(';');
        fields.filter_map(|field| field.trim().strip_prefix("t=")).find_map(|value| value.parse::<u64>().ok())
    };
    seconds.or_else(window).map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

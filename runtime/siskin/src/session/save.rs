//! Saving a session to a `.siskin-kv` file and restoring it.
//!
//! `docs/format-kv.md` specifies the session section, which [`SessionState`] reads.

use std::path::Path;

use super::conversation::ConversationMessage;
use super::saved_bytes::{Reader, put, put_all};
use super::saved_message::{put_message, read_message};
use super::{Generation, Session};
use crate::{Error, ErrorKind, Result};
use siskin_backend::block_table::SavedSequence;
use siskin_format::file::AtomicFile;
use siskin_format::kv::{self, KvFile, KvFileWriter};

/// The first bytes of sessions that were saved before the format `.siskin-kv`.
const OLD_MAGIC: [u8; 8] = *b"SISKSESS";
const NO_TOKEN: u32 = u32::MAX;

/// The maximum size of a saved session, in bytes.
const MAX_BYTES: u64 = 1 << 40;

impl Session {
    /// Serializes the session: tokens, messages, KV cache and the state of its random number generator. Mirostat
    /// restarts after a restore.
    ///
    /// The bytes contain the conversation in plain text.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for sessions with encoder input and for external models.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        self.recover()?;
        let mut file = KvFileWriter::default();
        let context = self.context.lock();
        let saved = context.save(self.sequence, &mut file)?;
        drop(context);
        let mut state = Vec::new();
        put(&mut state, saved.bidirectional_prefix)?;
        put(&mut state, saved.expected_length)?;
        state.extend(self.pending_token.unwrap_or(NO_TOKEN).to_le_bytes());
        self.sampler.chance().iter().for_each(|word| state.extend(word.to_le_bytes()));
        let bits: Vec<u32> = self.logits.iter().map(|logit| logit.to_bits()).collect();
        put_all(&mut state, &bits)?;
        put(&mut state, self.turns.len())?;
        self.turns.iter().try_for_each(|turn| put_message(&mut state, turn))?;
        file.finish(&self.model.kv_identity(self.adapter), &saved.layout, &self.tokens, &state)
    }

    /// Writes [`Session::save`] to a file atomically: it appears only when complete.
    pub fn save_to(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.save()?;
        write(path.as_ref(), &bytes)
    }

    /// Like [`Session::save`] during a generation, which can continue afterwards. The saved state is that of a session
    /// whose generation ended here.
    pub fn save_during(&mut self, generation: &Generation) -> Result<Vec<u8>> {
        let (said, pending_token) = (self.turns.len(), self.pending_token);
        generation.keep(self);
        let saved = self.save();
        self.turns.truncate(said);
        self.pending_token = pending_token;
        saved
    }

    /// Like [`save_during`](Self::save_during), to a file that appears only when complete.
    pub fn save_during_to(&mut self, generation: &Generation, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.save_during(generation)?;
        write(path.as_ref(), &bytes)
    }

    /// Restores what [`Session::save`] returned, replacing the current state. It must come from the same model, and
    /// from a session with the same cache type and window. Generation continues exactly as it would have in the saved
    /// session.
    ///
    /// On an error the session is unchanged, or empty if forks have taken its memory.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.starts_with(&OLD_MAGIC) {
            let message = "saved by an earlier version of Siskin; save the session again";
            return Err(Error::new(ErrorKind::Version, "saved.version", message));
        }
        let file = KvFile::parse(bytes).map_err(|error| error.within("saved"))?;
        if file.identity != self.model.kv_identity(self.adapter) {
            let message = "saved with a different model or other skipped layers; open that model";
            return Err(Error::new(ErrorKind::Unsupported, "saved.model", message));
        }
        let state = SessionState::read(file.session)?;
        let vocabulary = self.logits.len();
        let known = |id: &u32| (*id as usize) < vocabulary;
        if state.logits.len() != vocabulary
            || !file.tokens.iter().chain(&state.pending_token).chain(state.generated()).all(known)
            || !state.logits.iter().all(|logit| logit.is_finite())
        {
            return Err(Error::corrupt("saved.tokens", "not tokens of the model's vocabulary"));
        }
        if state.prefix > self.limits.batch {
            let message = format!(
                "its bidirectional prefix has {} tokens, which must be in one batch; open the session with a larger batch",
                state.prefix
            );
            return Err(Error::unsupported("saved.prefix", message));
        }
        self.make_room(file.tokens.len(), None);
        let mut context = self.context.lock();
        let (bidirectional_prefix, expected_length) = (state.prefix, state.expected);
        let saved = SavedSequence { bidirectional_prefix, expected_length, length: usize::MAX, file: &file };
        match context.restore(self.sequence, &saved) {
            Ok(sequence) => self.sequence = sequence,
            Err(error) => {
                let gone = context.length(self.sequence).is_err();
                if gone {
                    // Before others can take its id.
                    self.sequence = context.create();
                }
                drop(context);
                if gone {
                    self.reset();
                }
                return Err(error);
            }
        }
        drop(context);
        self.tokens.clear();
        self.tokens.extend_from_slice(&file.tokens);
        self.sampler.reset();
        self.sampler.set_history(&self.tokens);
        self.sampler.set_chance(state.chance);
        self.logits.copy_from_slice(&state.logits);
        (self.turns, self.pending_token, self.source) = (state.turns, state.pending_token, None);
        self.is_stale = false;
        Ok(())
    }

    /// Restores the session from a file.
    pub fn restore_from(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let place = path.as_ref().display().to_string();
        let facts = std::fs::metadata(&path).map_err(|error| Error::io(&place, &error))?;
        if !facts.is_file() || facts.len() > MAX_BYTES {
            return Err(Error::corrupt(place, "not a saved session: not a regular file, or too large"));
        }
        let bytes = std::fs::read(path).map_err(|error| Error::io(&place, &error))?;
        self.restore(&bytes).map_err(|error| error.within(&place))
    }
}

/// Writes a saved session. Overwrites a non-empty file only if that is a saved session, of this format or the one before:
/// a model's file is easily passed by mistake.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    AtomicFile::create_over(path, &[], &[kv::MAGIC, OLD_MAGIC])?.commit_bytes(bytes)
}

/// What a session keeps beside its tokens and its KV cache, not yet validated against a session.
struct SessionState {
    prefix: usize,
    expected: usize,
    pending_token: Option<u32>,
    chance: [u64; 4],
    logits: Vec<f32>,
    turns: Vec<ConversationMessage>,
}

impl SessionState {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut rest = Reader { rest: bytes };
        let (prefix, expected) = (rest.word()? as usize, rest.word()? as usize);
        let pending_token = Some(rest.word()?).filter(|&id| id != NO_TOKEN);
        let mut chance = [0; 4];
        for word in &mut chance {
            *word = u64::from_le_bytes(*rest.array()?);
        }
        let logits = rest.words()?.into_iter().map(f32::from_bits).collect();
        let mut turns = Vec::new();
        for _ in 0..rest.word()? {
            turns.push(read_message(&mut rest)?);
        }
        match rest.rest.is_empty() {
            true => Ok(Self { prefix, expected, pending_token, chance, logits, turns }),
            false => Err(Error::corrupt("saved.session", "trailing bytes")),
        }
    }

    fn generated(&self) -> impl Iterator<Item = &u32> {
        self.turns.iter().filter_map(|turn| turn.generated.as_ref()).flat_map(|generated| &generated.ids)
    }
}

//! Saving a session to bytes and restoring it.
//!
//! Little-endian: the magic, the version (u32), the model's identity (32 bytes); the skipped layers (a count, then u32
//! each); the tokens, likewise; the messages, as in `saved_message.rs`; the logits (f32 bits); the token that was returned
//! but not processed (u32; all ones: none); the state of the random number generator (four u64); the prefix and the
//! expected length (u32); the KV cache; and at the end the BLAKE3 hash of all of that.

use std::path::Path;

use super::conversation::ConversationMessage;
use super::saved_bytes::{Reader, put, put_all};
use super::saved_message::{put_message, read_message};
use super::{Generation, Session, locked};
use crate::{Error, ErrorKind, Result};
use siskin_backend::block_table::SavedSequence;
use siskin_format::file::AtomicFile;

const MAGIC: [u8; 8] = *b"SISKSESS";
const VERSION: u32 = 3;
const HASH_BYTES: usize = 32;
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
        let mut out = Vec::from(MAGIC);
        put(&mut out, VERSION as usize)?;
        out.extend(self.model.identity());
        let skipped: Vec<u32> = self.model.skipped().numbers().map(|number| number as u32).collect();
        put_all(&mut out, &skipped)?;
        put_all(&mut out, &self.tokens)?;
        put(&mut out, self.turns.len())?;
        self.turns.iter().try_for_each(|turn| put_message(&mut out, turn))?;
        let bits: Vec<u32> = self.logits.iter().map(|logit| logit.to_bits()).collect();
        put_all(&mut out, &bits)?;
        out.extend(self.pending_token.unwrap_or(NO_TOKEN).to_le_bytes());
        self.sampler.chance().iter().for_each(|word| out.extend(word.to_le_bytes()));
        let mut cache = Vec::new();
        let (prefix, expected) = locked(&self.context).save(self.sequence, &mut cache)?;
        put(&mut out, prefix)?;
        put(&mut out, expected)?;
        out.append(&mut cache);
        let hash = blake3::hash(&out);
        out.extend(hash.as_bytes());
        Ok(out)
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
        let parts = Parts::read(bytes)?;
        if parts.identity != self.model.identity() || !parts.skips(self) {
            let message = "saved with a different model; open that model";
            return Err(Error::new(ErrorKind::Unsupported, "saved.model", message));
        }
        let vocabulary = self.logits.len();
        let known = |id: &u32| (*id as usize) < vocabulary;
        if parts.logits.len() != vocabulary
            || !parts.tokens.iter().chain(&parts.pending_token).chain(parts.generated()).all(known)
            || !parts.logits.iter().all(|logit| logit.is_finite())
        {
            return Err(Error::corrupt("saved.tokens", "not tokens of the model's vocabulary"));
        }
        let mut context = locked(&self.context);
        let saved = SavedSequence::new((parts.tokens.len(), parts.prefix, parts.expected), parts.cache);
        match context.restore(self.sequence, &saved) {
            Ok(sequence) => self.sequence = sequence,
            Err(error) => {
                let gone = context.length(self.sequence).is_err();
                drop(context);
                if gone {
                    self.reset();
                }
                return Err(error);
            }
        }
        drop(context);
        self.tokens.clear();
        self.tokens.extend_from_slice(&parts.tokens);
        self.sampler.reset();
        self.sampler.set_history(&self.tokens);
        self.sampler.set_chance(parts.chance);
        self.logits.copy_from_slice(&parts.logits);
        (self.turns, self.pending_token, self.source) = (parts.turns, parts.pending_token, None);
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

/// Writes a saved session. Overwrites a non-empty file only if that is a saved session: a model's file is easily passed
/// by mistake.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    AtomicFile::create_over(path, &[], &MAGIC)?.commit_bytes(bytes)
}

/// The parsed contents of a saved session, not yet validated against a session.
struct Parts<'a> {
    identity: [u8; 32],
    skipped: Vec<u32>,
    tokens: Vec<u32>,
    turns: Vec<ConversationMessage>,
    logits: Vec<f32>,
    pending_token: Option<u32>,
    chance: [u64; 4],
    prefix: usize,
    expected: usize,
    cache: &'a [[u8; 4]],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let cut = || Error::corrupt("saved", "truncated");
        let (body, hash) = bytes.split_at_checked(bytes.len().wrapping_sub(HASH_BYTES)).ok_or_else(cut)?;
        if body.get(..8) != Some(&MAGIC) {
            return Err(Error::corrupt("saved.magic", "not a saved session"));
        }
        if blake3::hash(body).as_bytes() != hash {
            return Err(Error::new(
                ErrorKind::Integrity,
                "saved",
                "the hash does not match: it was changed or damaged",
            ));
        }
        let mut rest = Reader { rest: &body[8..] };
        match rest.word()? {
            VERSION => {}
            other => {
                let message = format!("unknown version {other}; save the session again");
                return Err(Error::new(ErrorKind::Version, "saved.version", message));
            }
        }
        let identity = *rest.array()?;
        let (skipped, tokens) = (rest.words()?, rest.words()?);
        let mut turns = Vec::new();
        for _ in 0..rest.word()? {
            turns.push(read_message(&mut rest)?);
        }
        let logits = rest.words()?.into_iter().map(f32::from_bits).collect();
        let pending_token = Some(rest.word()?).filter(|&id| id != NO_TOKEN);
        let mut chance = [0; 4];
        for word in &mut chance {
            *word = u64::from_le_bytes(*rest.array()?);
        }
        let (prefix, expected) = (rest.word()? as usize, rest.word()? as usize);
        let (cache, odd) = rest.rest.as_chunks::<4>();
        if !odd.is_empty() {
            return Err(cut());
        }
        Ok(Self { identity, skipped, tokens, turns, logits, pending_token, chance, prefix, expected, cache })
    }

    fn generated(&self) -> impl Iterator<Item = &u32> {
        self.turns.iter().filter_map(|turn| turn.generated.as_ref()).flat_map(|generated| &generated.ids)
    }

    /// Returns whether the same layers are skipped.
    fn skips(&self, session: &Session) -> bool {
        session.model.skipped().numbers().eq(self.skipped.iter().map(|&number| number as usize))
    }
}

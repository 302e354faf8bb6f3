//! What a result depends on, as one hash.

use crate::model::Model;

/// A hash of everything that a result depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of the result of `operation` on `parts`. The same bytes cut otherwise make another key, and so does
    /// another version of this library.
    pub fn of(operation: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [env!("CARGO_PKG_VERSION").as_bytes(), operation.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// What a model is: its file, and how it was opened as far as that changes results.
    pub fn of_model(model: &Model) -> Self {
        let skipped = format!("{:?}", model.skipped());
        Self::of("model", &[&model.identity(), skipped.as_bytes()])
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:02x}{:02x}{:02x}{:02x}…)", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

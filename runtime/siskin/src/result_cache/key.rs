//! Keys: everything that a result depends on, as one hash.

use crate::model::Model;
use siskin_graph::AdapterSlot;

/// A hash of everything that a result depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// Returns the key of the result of `operation` on `parts`. The parts are length-delimited: other boundaries in the
    /// same bytes give a different key, and so does a different version of this library.
    pub fn of(operation: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [env!("CARGO_PKG_VERSION").as_bytes(), operation.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the key of a model: its file, its adapter, and the options of opening it that affect results.
    pub fn of_model(model: &Model, adapter: AdapterSlot) -> Self {
        let skipped: Vec<u8> =
            model.skipped().numbers().flat_map(|layer| (layer as u64).to_le_bytes()).collect();
        Self::of("model", &[&model.identity_with(adapter), &skipped])
    }

    /// Creates a key from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:02x}{:02x}{:02x}{:02x}…)", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

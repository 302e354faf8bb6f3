//! The rules of the code base, as functions over its source text.
//!
//! Each rule takes a [`Tree`] and returns one line per violation, starting with `file:line`. The tests run every rule
//! over the workspace, and over small artificial trees that violate it.

mod api;
mod commits;
mod crates;
mod dependencies;
mod diagram;
mod docs;
mod facade;
mod forbidden_calls;
mod functions;
mod import_cycles;
mod imports;
mod language;
mod licenses;
mod named_paths;
mod rust;
mod size;
mod tree;
mod unsafety;

pub use api::{library_apis, public_api, snapshot_path};
pub use commits::subjects_fit;
pub use crates::{Manifest, crate_directions, manifests};
pub use dependencies::{declared_where_allowed, used_where_allowed};
pub use diagram::{DIAGRAM_PATH, document_with_diagram};
pub use docs::{adding_guides_exist, links_exist};
pub use facade::facade_exports_items;
pub use forbidden_calls::calls_in_their_place;
pub use functions::{functions_flat, functions_short};
pub use import_cycles::import_cycles;
pub use imports::module_directions;
pub use language::{phrases_absent, type_names_unique};
pub use licenses::{license_allowed, packages_allowed};
pub use named_paths::{named_paths_exist, script_paths_exist, table_paths_exist};
pub use rust::{Line, RustFile};
pub use size::{context_small, files_short};
pub use tree::{SourceFile, Tree};
pub use unsafety::unsafe_listed;

/// Panics with every violation of `rule` on its own line.
///
/// # Panics
/// If `breaches` is not empty.
pub fn assert_clean(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{rule}\n  {}\n", breaches.join("\n  "));
}

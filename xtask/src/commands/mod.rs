//! One file per command.

pub(crate) mod android;
pub(crate) mod api;
pub(crate) mod arm;
pub(crate) mod bench_kernels;
pub(crate) mod bench_peers;
pub(crate) mod c;
pub(crate) mod cli_help;
pub(crate) mod counts;
pub(crate) mod cuda;
pub(crate) mod deb;
pub(crate) mod demo;
pub(crate) mod diagram;
pub(crate) mod export;
pub(crate) mod fuzz;
pub(crate) mod header;
pub(crate) mod ios;
mod ios_libraries;
mod ios_root;
pub(crate) mod model;
mod model_folders;
pub(crate) mod quality;
mod schemas;
mod serve;
pub(crate) mod size;
pub(crate) mod soak;
pub(crate) mod test;
mod wheels;

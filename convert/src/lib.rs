//! Brings models from other formats into the packed `.siskin` file.

pub mod import;

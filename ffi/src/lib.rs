//! The C API of Siskin. `include/siskin.h` is generated from this crate; Rust programs use `siskin`.
//!
//! One file for each handle. Every function goes through `guard.rs`, which checks handles, rejects concurrent calls
//! that are not allowed, and catches panics.
#![allow(non_camel_case_types, reason = "the names are those of the C header")]
#![allow(unreachable_pub, reason = "public items are those of the header")]

mod arguments;
mod callback;
mod cancel_handle;
mod encoder;
mod error;
mod governor;
mod guard;
mod log;
mod memory_usage;
mod model;
mod model_options;
mod predictions;
mod sampler;
mod seq2seq;
mod seq2seq_options;
mod session;
mod session_options;
mod session_state;
mod strings;
#[cfg(feature = "ffi-testing")]
mod testing;
#[cfg(test)]
mod tests;
mod transcriber;
mod version;

//! The C interface of Siskin: `include/siskin.h` is generated from this crate, which is not meant for Rust programs.
//!
//! One file for each handle. Every function goes through `guard.rs`: handles are validated before use, concurrent calls
//! on a handle are rejected as busy, and panics are caught.
#![allow(non_camel_case_types, reason = "the names are those of the C header")]
#![allow(unreachable_pub, reason = "what the header shows is public; nothing else is")]

mod arguments;
mod callback;
mod encoder;
mod error;
mod governor;
mod guard;
mod log;
mod memory;
mod model;
mod model_options;
mod predictions;
mod sampler;
mod seq2seq_options;
mod session;
mod session_options;
mod session_state;
mod stop;
mod strings;
#[cfg(feature = "ffi-testing")]
mod testing;
#[cfg(test)]
mod tests;
mod transcriber;
mod version;
mod writer;

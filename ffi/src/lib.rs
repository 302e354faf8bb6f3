//! The C interface of Siskin: `include/siskin.h` is made of this crate, which is of no use to Rust programs.
//!
//! One file for each handle. Every function goes through `guard.rs`: a handle is looked at before it is used, whoever
//! comes while somebody else is at work is told so, and panics end there.
#![allow(non_camel_case_types, reason = "the names are those of the C header")]
#![allow(unreachable_pub, reason = "what the header shows is public; nothing else is")]

mod arguments;
mod callback;
mod encoder;
mod error;
mod found;
mod governor;
mod guard;
mod log;
mod memory;
mod model;
mod model_options;
mod sampler;
mod session;
mod session_options;
mod session_state;
mod stop;
#[cfg(feature = "ffi-testing")]
mod testing;
#[cfg(test)]
mod tests;
mod texts;
mod transcriber;
mod version;
mod writer;
mod writing;

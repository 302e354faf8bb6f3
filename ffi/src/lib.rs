//! The C API of Siskin. `include/siskin.h` is generated from this crate; Rust programs use `siskin`.
//!
//! One file for each handle. Every function goes through `guard.rs`, which checks handles, rejects concurrent calls
//! that are not allowed, and catches panics.
//!
//! # Pointer contract
//!
//! A pointer that cannot be used, such as null, is an error where the library can see that. The rest is up to the host;
//! breaking it is undefined behavior. `# Safety` sections and `SAFETY` comments use these terms:
//!
//! - A handle or error is *live* if it is an object that this library returned and that has not been freed. It stays
//!   live until the call returns. The library checks its type.
//! - A parameter through which a result is returned is *writable*: it has room for one value. If it is a struct, it is
//!   *sized*: it begins with an initialized `struct_size`, and has room for that many bytes. Such memory is *disjoint*
//!   from all other arguments, and nothing else accesses it until the call returns.
//! - An array is *readable* (or writable) for a number of values, which nothing modifies until the call returns. If the
//!   number is 0, the pointer is ignored.
//! - A *text* of n bytes is readable for n bytes; with `SISKIN_NUL_TERMINATED`, up to and including its first zero
//!   byte.
//! - A callback may be called with its `user` pointer from any thread until `release` is called. `release` may be
//!   called once with `user`, from any thread.
//!
//! Each of these pointers may also be null.
#![allow(non_camel_case_types, reason = "the names are those of the C header")]
#![allow(unreachable_pub, reason = "public items are those of the header")]

mod arguments;
mod callback;
mod cancel_handle;
mod chat;
mod chat_response;
mod encoder;
mod engine;
mod engine_options;
mod error;
mod generation;
mod governor;
mod guard;
mod log;
mod memory_usage;
mod model;
mod model_options;
mod predictions;
mod request_options;
mod sampler;
mod seq2seq;
mod seq2seq_options;
mod session;
mod session_options;
mod session_state;
mod strings;
mod structured_output;
#[cfg(feature = "ffi-testing")]
mod testing;
#[cfg(test)]
mod tests;
mod transcriber;
mod version;

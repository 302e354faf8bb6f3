//! Source formats: each reads its own container and hands over plain values.

pub mod gguf;
mod map;
pub mod tokenizer_gguf;
pub mod tokenizer_json;

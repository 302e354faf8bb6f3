//! Importing, packing and exporting models.

mod calibrate;
mod common;
mod ctranslate2;
mod ctranslate2_models;
mod export;
mod gguf;
mod hugging_face;
mod open;
mod packed;

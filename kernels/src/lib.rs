//! Pure compute for transformers: no allocation, no threads, no state, no operating system.
//!
//! - [`quant`]: how the blocks of each GGUF weight type become numbers, and back.
//! - [`panel`]: the packed layout in which a `.siskin` file holds weight matrices.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod panel;
pub mod quant;

//! Tests that emulate AMX where the CPU lacks it. Emulation holds for the whole process and is slow, so that tests of
//! large models are in another program.

mod attention_masks;
mod texts;

//! Training data: sources, tokens, tasks and batches.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unreachable_pub, reason = "what the files of this test share")]

#[path = "trainer_data/common.rs"]
mod common;
#[path = "trainer_data/loading.rs"]
mod loading;
#[path = "trainer_data/packing.rs"]
mod packing;
#[path = "trainer_data/reading.rs"]
mod reading;
#[path = "trainer_data/tasks.rs"]
mod tasks;

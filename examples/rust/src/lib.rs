//! What the example programs share.

use siskin::{Model, ModelOptions, Result};
use siskin_convert::OpenOptions;

/// Opens a model of any format. Other formats than `.siskin` are packed once, into the user's cache.
pub fn open(path: &str) -> Result<Model> {
    let loaded = siskin_convert::open_model(path, &OpenOptions::default(), &ModelOptions::default())?;
    Model::new(loaded)
}

/// Returns the arguments of the program, at least `count`.
pub fn arguments(count: usize, usage: &str) -> Vec<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() < count {
        eprintln!("usage: {usage}");
        std::process::exit(2);
    }
    arguments
}

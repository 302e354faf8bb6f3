//! The model that is part of the program, so that it writes without any other file.

use siskin::Result;
use siskin::file::File;
use std::path::Path;

/// What it is called where a model's path is wanted.
pub(crate) const NAME: &str = "shakespeare";

/// Bytes that begin where tensors may.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

/// `examples/train/shakespeare.toml` says how it was made.
static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../models/shakespeare.siskin"));

/// Whether a path means the model that is part of the program: its name, where no file has that.
pub(crate) fn is_meant(path: &Path) -> bool {
    path == Path::new(NAME) && !path.exists()
}

/// The model.
pub(crate) fn file() -> Result<File> {
    File::from_bytes(&MODEL.0)
}

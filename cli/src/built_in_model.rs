//! The built-in model, which needs no other file.

use siskin::Result;
use siskin::file::File;
use std::path::Path;

/// Its name in place of a model path.
pub(crate) const NAME: &str = "shakespeare";

/// Bytes aligned like tensor data.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

/// The training config is `examples/train/shakespeare.toml`.
static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../models/shakespeare.siskin"));

/// Returns true if the path is the name of the built-in model and no such file exists.
pub(crate) fn is_meant(path: &Path) -> bool {
    path == Path::new(NAME) && !path.exists()
}

/// Opens the built-in model.
pub(crate) fn file() -> Result<File> {
    File::from_bytes(&MODEL.0)
}

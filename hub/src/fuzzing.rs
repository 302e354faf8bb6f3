//! What reads untrusted bytes, for the fuzz targets: each takes any bytes and returns.

use crate::name::ModelName;
use crate::source::{hugging_face, oci, pypi};
use crate::{alias, journal};

/// The name of a model.
///
/// # Panics
/// If a name does not mean the same after it was written.
pub fn name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = text.parse::<ModelName>() {
        assert_eq!(name.to_string().parse::<ModelName>().ok(), Some(name), "{text:?}");
    }
}

/// An answer of a source: its kind is the first byte.
pub fn answer(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'h' => hugging_face::read_untrusted(rest),
        b'o' => oci::read_untrusted(rest),
        b'p' => pypi::read_untrusted(rest),
        b'w' => pypi::read_untrusted_wheel(rest),
        b'a' => alias::read_untrusted(rest),
        _ => journal::read_untrusted(rest),
    }
}

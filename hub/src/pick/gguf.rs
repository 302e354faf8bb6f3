//! GGUF files: their types, and the parts that they are split into.

use siskin_format::Result;

use super::{PickedFiles, ambiguous};

/// The order in which types of GGUF files are taken if none is asked for: small, and close to the original.
const PREFERRED_TYPES: [&str; 3] = ["q4_k_m", "q4_0", "q8_0"];

/// Picks the GGUF file of the preferred type.
pub(super) fn preferred(paths: &[String]) -> Result<PickedFiles> {
    let all: Vec<&String> = paths
        .iter()
        .filter(|path| path.ends_with(".gguf") && is_first_part(path) && !is_projector(path))
        .collect();
    if let [one] = all.as_slice() {
        return Ok(PickedFiles::File(with_parts(paths, one)));
    }
    for kind in PREFERRED_TYPES {
        let of_kind: Vec<&String> = all.iter().copied().filter(|path| has_type(path, kind)).collect();
        match of_kind.as_slice() {
            [] => {}
            [one] => return Ok(PickedFiles::File(with_parts(paths, one))),
            several => return Err(ambiguous(several)),
        }
    }
    Err(ambiguous(&all))
}

/// Returns true if a file's name has a type as one of its parts.
pub(super) fn has_type(path: &str, kind: &str) -> bool {
    let (path, kind) = (path.to_lowercase(), kind.to_lowercase());
    let is_boundary = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    path.match_indices(&kind).any(|(at, _)| {
        is_boundary(path[..at].chars().next_back()) && is_boundary(path[at + kind.len()..].chars().next())
    })
}

/// Returns true for the image tower that multimodal models keep in a file of its own.
pub(super) fn is_projector(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.to_lowercase().contains("mmproj"))
}

/// Returns the start of the name, the part and the number of parts of a file that is split.
fn parts_of(path: &str) -> Option<(&str, u32, u32)> {
    let (start, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (start, part) = start.rsplit_once('-')?;
    (part.len() == 5 && count.len() == 5).then_some(())?;
    Some((start, part.parse().ok()?, count.parse().ok()?))
}

pub(super) fn is_first_part(path: &str) -> bool {
    parts_of(path).is_none_or(|(_, part, _)| part == 1)
}

/// Returns a file and those that it is split into, in order.
pub(super) fn with_parts(paths: &[String], path: &str) -> Vec<String> {
    let Some((start, _, count)) = parts_of(path) else { return vec![path.to_owned()] };
    let mut all: Vec<&String> = paths
        .iter()
        .filter(|other| parts_of(other).is_some_and(|(name, _, parts)| name == start && parts == count))
        .collect();
    all.sort_by_key(|other| parts_of(other).map(|(_, part, _)| part));
    all.into_iter().cloned().collect()
}

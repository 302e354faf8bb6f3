//! Models split into files named `…-00001-of-0000N.gguf`.

use super::{Gguf, GgufPart};
use crate::import::map::map;
use siskin_format::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

const MAX_PARTS: u64 = 10_000;

pub(super) fn open(path: &Path) -> Result<Gguf> {
    let first = parse(path)?;
    let count = number(&first, "split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(Gguf { metadata: first.metadata, tensors: first.tensors });
    }
    if count > MAX_PARTS {
        return Err(Error::corrupt("split.count", format!("{count} parts are too many")).within(&name(path)));
    }
    if number(&first, "split.no")? != Some(0) {
        return Err(Error::argument(
            name(path),
            format!(
                "this is a later part of a split model; open the part that ends in -00001-of-{count:05}.gguf"
            ),
        ));
    }
    let wanted = number(&first, "split.tensors.count")?;
    let mut names: HashSet<String> = first.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    let mut tensors = first.tensors;
    for index in 1..count {
        let sibling = sibling(path, index, count)?;
        for tensor in
            check(parse(&sibling)?, index, count).map_err(|error| error.within(&name(&sibling)))?.tensors
        {
            if !names.insert(tensor.name.clone()) {
                let location = format!("tensors.{}", tensor.name);
                return Err(
                    Error::corrupt(location, "the tensor occurs in two parts").within(&name(&sibling))
                );
            }
            tensors.push(tensor);
        }
    }
    if let Some(wanted) = wanted
        && wanted != tensors.len() as u64
    {
        let message = format!("claims {wanted} tensors, but the parts hold {}", tensors.len());
        return Err(Error::corrupt("split.tensors.count", message).within(&name(path)));
    }
    Ok(Gguf { metadata: first.metadata, tensors })
}

fn parse(path: &Path) -> Result<GgufPart> {
    if !path.exists() {
        return Err(Error::new(
            ErrorKind::Missing,
            name(path),
            "the file does not exist; a split model needs every part",
        ));
    }
    GgufPart::parse(&map(path)?).map_err(|error| error.within(&name(path)))
}

fn number(part: &GgufPart, key: &str) -> Result<Option<u64>> {
    match part.get(key) {
        None => Ok(None),
        Some(value) => {
            value.as_unsigned().map(Some).ok_or_else(|| Error::corrupt(key, "expected an unsigned integer"))
        }
    }
}

fn check(part: GgufPart, index: u64, count: u64) -> Result<GgufPart> {
    let known =
        |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    match (number(&part, "split.no")?, number(&part, "split.count")?) {
        (Some(no), Some(of)) if no == index && of == count => Ok(part),
        (no, of) => Err(Error::corrupt(
            "split.no",
            format!(
                "the metadata says part {} of {}, but the file name part {index} of {count}",
                known(no),
                known(of)
            ),
        )),
    }
}

/// Returns the path of part `index` (from 0) next to the first part.
fn sibling(first: &Path, index: u64, count: u64) -> Result<PathBuf> {
    let suffix = format!("-00001-of-{count:05}.gguf");
    let file = first.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    let stem = file.strip_suffix(&suffix).ok_or_else(|| {
        Error::argument(name(first), format!("a model split in {count} parts must be named …{suffix}"))
    })?;
    Ok(first.with_file_name(format!("{stem}-{:05}-of-{count:05}.gguf", index + 1)))
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

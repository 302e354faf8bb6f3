//! Paths of models and of other input files: errors for those that do not exist, with a suggestion.

use crate::{built_in_model, model_name, output};
use siskin::{Error, ErrorKind, Result};
use siskin_hub::ModelName;
use std::borrow::Cow;
use std::path::Path;

/// Fails if there is neither a file nor a folder at `path`, and it is not the name of a model. Downloads nothing.
pub(crate) fn check_model(path: &Path) -> Result<()> {
    match path.exists() || built_in_model::is_meant(path) || model_name::parse(path)?.is_some() {
        true => Ok(()),
        false => Err(missing(path, true)),
    }
}

/// Returns the path of a model, which is downloaded if it is named and not in the cache; that of the built-in model is its name.
pub(crate) fn model(path: &Path, quiet: bool) -> Result<Cow<'_, Path>> {
    if path.exists() || built_in_model::is_meant(path) {
        return Ok(Cow::Borrowed(path));
    }
    match model_name::parse(path)? {
        Some(name) => Ok(Cow::Owned(model_name::pull(&model_name::hub(), &name, quiet)?.path)),
        None => Err(missing(path, true)),
    }
}

/// Fails if `path` is missing or a folder.
pub(crate) fn check_file(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            Err(Error::argument(path.display().to_string(), "expected a file, found a folder"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(path, false)),
        // Other errors are reported when it is opened.
        _ => Ok(()),
    }
}

/// Reads an input file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    check_file(path)?;
    std::fs::read(path).map_err(|error| Error::io(path.display().to_string(), &error))
}

/// Reads an input file of text.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|error| {
        let message = format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to());
        Error::argument(path.display().to_string(), message)
    })
}

/// Fails if there is neither a file nor a folder at the path of an adapter.
pub(crate) fn check_adapter(path: &Path) -> Result<()> {
    match path.exists() {
        true => Ok(()),
        false => Err(missing(path, false)),
    }
}

fn missing(path: &Path, is_model: bool) -> Error {
    let mut message = "no such file or directory".to_owned();
    let repository = path.to_str().filter(|_| is_model).map(|text| format!("hf:{text}"));
    let is_folder = path.parent().is_some_and(Path::exists);
    let repository = repository.filter(|name| !is_folder && name.parse::<ModelName>().is_ok());
    if let Some(name) = nearest(path, is_model).or(repository) {
        message.push_str(&format!("; did you mean `{name}`?"));
    }
    Error::new(ErrorKind::Missing, path.display().to_string(), message)
}

/// Returns an existing path with a similar name in the same folder, or for a model the built-in one or an alias.
fn nearest(path: &Path, is_model: bool) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    if is_model && folder.is_none() {
        names.push(built_in_model::NAME.to_owned());
        names.extend(model_name::aliases());
    }
    let near = output::nearest(name, names.iter().map(String::as_str))?;
    Some(match folder {
        Some(folder) => folder.join(near).display().to_string(),
        None => near.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_models_are_named_with_the_nearest_match() {
        let folder = std::env::temp_dir().join(format!("siskin-input-path-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("smollm2-q4.gguf"), b"").unwrap();
        let message = |path: &Path| check_model(path).unwrap_err().message().to_owned();
        assert!(message(&folder.join("smollm-q4.gguf")).contains("smollm2-q4.gguf`?"));
        assert_eq!(message(&folder.join("other.gguf")), "no such file or directory");
        assert!(message(Path::new("shakespear")).contains("`shakespeare`"));
        assert!(check_model(Path::new("shakespeare")).is_ok() && check_model(&folder).is_ok());
        let message = |path: &Path| check_file(path).unwrap_err().message().to_owned();
        assert!(message(&folder.join("smolm2-q4.gguf")).contains("no such file or directory; did you mean"));
        assert_eq!(message(&folder), "expected a file, found a folder");
        std::fs::write(folder.join("latin1.txt"), b"caf\xe9").unwrap();
        let error = read_text(&folder.join("latin1.txt")).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.message().contains("byte 3"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Paths of models: errors for those that do not exist, with a suggestion.

use crate::embedded;
use siskin::{Error, ErrorKind, Result};
use std::path::Path;

/// Fails if there is neither a file nor a folder at `path`, and it is not the name of the embedded model.
pub(crate) fn check(path: &Path) -> Result<()> {
    if path.exists() || embedded::is_meant(path) {
        return Ok(());
    }
    let place = path.display().to_string();
    let message = match nearest(path) {
        Some(name) => format!("no such file or folder; did you mean `{name}`?"),
        None => "no such file or folder".to_owned(),
    };
    Err(Error::new(ErrorKind::Missing, place, message))
}

/// Returns an existing path with a similar name in the same folder, or the name of the embedded model.
fn nearest(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let beside = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let shown = |name: String| match folder {
        Some(folder) => folder.join(name).display().to_string(),
        None => name,
    };
    let names = beside.map(|name| (name.clone(), shown(name)));
    let embedded = folder.is_none().then(|| (embedded::NAME.to_owned(), embedded::NAME.to_owned()));
    let distances = names.chain(embedded).map(|(known, shown)| (strsim::levenshtein(name, &known), shown));
    let limit = name.chars().count() / 3;
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, shown)| shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_models_are_named_with_the_nearest_match() {
        let folder = std::env::temp_dir().join(format!("siskin-model-path-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("smollm2-q4.gguf"), b"").unwrap();
        let message = |path: &Path| check(path).unwrap_err().message().to_owned();
        assert!(message(&folder.join("smollm-q4.gguf")).contains("smollm2-q4.gguf`?"));
        assert_eq!(message(&folder.join("other.gguf")), "no such file or folder");
        assert!(message(Path::new("shakespear")).contains("`shakespeare`"));
        assert!(check(Path::new("shakespeare")).is_ok() && check(&folder).is_ok());
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! Conversations in files: saved sessions, and exports as Markdown and JSON.
//!
//! A file is only replaced if Siskin wrote it in the same format, and symbolic links are not followed.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use siskin::file::AtomicFile;
use siskin::template::Message;
use siskin::{Error, ErrorKind, Result, Session};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The first line of a Markdown export.
const MARKDOWN_MARK: &str = "<!-- siskin chat -->\n";
/// The value of `format` in a JSON export.
const JSON_FORMAT: &str = "siskin-chat";
/// The start of a JSON export.
const JSON_MARK: &str = "{\n  \"format\": \"siskin-chat\"";
/// Maximum size of an exported conversation in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Saves a session. Fails if the path is one of the model's files, or another file that is not a saved session.
pub(super) fn save(session: &mut Session, path: &Path, inputs: &[PathBuf]) -> Result<()> {
    AtomicFile::check(path, inputs)?;
    let bytes = session.save()?;
    let mark = &bytes[..8.min(bytes.len())];
    AtomicFile::create_own(path, |file| starts_with(file, mark))?.commit_bytes(&bytes)
}

/// Replaces the state of the session by that of a saved session, or its messages by those of a JSON export.
pub(super) fn load(session: &mut Session, path: &Path) -> Result<()> {
    crate::input_path::check_file(path)?;
    let io = |error| Error::io(path.display().to_string(), &error);
    let metadata = std::fs::metadata(path).map_err(io)?;
    // A FIFO would block.
    if !metadata.is_file() {
        return Err(Error::argument(path.display().to_string(), "not a regular file"));
    }
    let is_json = starts_with(File::open(path).map_err(io)?, b"{");
    if !is_json {
        return session.restore_from(path);
    }
    if metadata.len() > MAX_BYTES {
        return Err(Error::new(ErrorKind::TooLong, path.display().to_string(), "larger than 64 MiB"));
    }
    let messages = read_json(&std::fs::read_to_string(path).map_err(io)?)
        .map_err(|error| error.within(&path.display().to_string()))?;
    session.reset();
    messages.into_iter().for_each(|message| session.push_message(message));
    Ok(())
}

/// Writes a conversation as Markdown or JSON, by the extension of the path.
pub(super) fn export(messages: &[Message], model: &Path, path: &Path) -> Result<()> {
    let (mark, text) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => (MARKDOWN_MARK, markdown(messages, model)),
        Some("json") => (JSON_MARK, as_json(messages, model)?),
        _ => {
            let message = "unknown extension; use .md or .json";
            return Err(Error::argument(path.display().to_string(), message));
        }
    };
    AtomicFile::create_own(path, |file| starts_with(file, mark.as_bytes()))?.commit_bytes(text.as_bytes())
}

fn starts_with(file: File, mark: &[u8]) -> bool {
    let mut start = Vec::new();
    file.take(mark.len() as u64).read_to_end(&mut start).is_ok() && start == mark
}

fn markdown(messages: &[Message], model: &Path) -> String {
    let mut text = format!("{MARKDOWN_MARK}# Chat with {}\n", model.display());
    for message in messages {
        let mut title = message.role.clone();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        text.push_str(&format!("\n## {title}\n\n{}\n", message.text().trim_end()));
    }
    text
}

fn as_json(messages: &[Message], model: &Path) -> Result<String> {
    let messages: Vec<_> = messages.iter().map(Message::to_json).collect();
    let value = json!({"format": JSON_FORMAT, "model": model.display().to_string(), "messages": messages});
    let text = serde_json::to_string_pretty(&value).map_err(|error| Error::io("export", &error.into()))?;
    Ok(text + "\n")
}

/// An exported conversation. Other fields, such as those of other programs, are ignored.
#[derive(Deserialize)]
struct ExportedChat<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
}

fn read_json(text: &str) -> Result<Vec<Message>> {
    let chat: ExportedChat<'_> = serde_json::from_str(text)
        .map_err(|error| Error::argument("messages", format!("cannot be read: {error}")))?;
    Message::list_from_json("messages", chat.messages.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> [Message; 2] {
        [Message::new("user", "Hi **you**\n"), Message::new("assistant", "\"Hello\"")]
    }

    #[test]
    fn exports_are_read_back() {
        let text = as_json(&messages(), Path::new("a.gguf")).unwrap();
        assert!(text.starts_with(JSON_MARK), "{text}");
        assert_eq!(read_json(&text).unwrap(), messages());
        assert!(read_json("{\"messages\": 5}").is_err());
        let expected = "<!-- siskin chat -->\n# Chat with a.gguf\n\n## User\n\nHi **you**\n\n## Assistant\n\n\"Hello\"\n";
        assert_eq!(markdown(&messages(), Path::new("a.gguf")), expected);
    }

    #[test]
    fn only_own_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("siskin-transcript-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for extension in ["md", "json"] {
            let path = folder.join(format!("chat.{extension}"));
            let write = |path: &Path| export(&messages(), Path::new("a.gguf"), path);
            write(&path).unwrap();
            write(&path).unwrap();
            std::fs::write(&path, "{}").unwrap();
            assert_eq!(write(&path).unwrap_err().kind(), ErrorKind::Argument);
            assert_eq!(std::fs::read(&path).unwrap(), b"{}");
            #[cfg(unix)]
            {
                let link = folder.join(format!("link.{extension}"));
                std::os::unix::fs::symlink(folder.join("elsewhere"), &link).unwrap();
                assert_eq!(write(&link).unwrap_err().kind(), ErrorKind::Argument);
                assert!(!folder.join("elsewhere").exists());
            }
        }
        assert!(export(&[], Path::new("a"), &folder.join("chat.txt")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}

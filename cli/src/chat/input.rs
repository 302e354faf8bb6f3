//! Input from a terminal: line editing, completion, messages of several lines, and a history.

use super::commands;
use crate::env;
use crate::terminal::{CYAN, Palette, printable};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History as _, MemHistory};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use siskin::file::{append_no_follow, open_no_follow};
use siskin::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

const PROMPT: &str = "> ";

/// Encloses a message of several lines.
const QUOTES: &str = "\"\"\"";

/// Number of entries of the history.
const MAX_ENTRIES: usize = 1000;

/// Reads messages and commands from the terminal.
pub(super) struct ChatInput {
    editor: Editor<ChatHelper, MemHistory>,
    history: Option<PathBuf>,
}

impl ChatInput {
    /// Opens the terminal. With `keeps_history` the user's history is loaded, and entries are added to it.
    pub(super) fn open(keeps_history: bool) -> Result<Self> {
        let config = Config::builder().max_history_size(MAX_ENTRIES).map_err(failed)?;
        let mut editor = Editor::with_history(config.build(), MemHistory::new()).map_err(failed)?;
        editor
            .set_helper(Some(ChatHelper { files: FilenameCompleter::new(), palette: Palette::of_stdout() }));
        let history = env::user_state().filter(|_| keeps_history).map(|folder| folder.join("chat_history"));
        // A history that cannot be read is not worth an error; a new one begins.
        for entry in history.iter().flat_map(|path| read_history(path).unwrap_or_default()) {
            let _ = editor.history_mut().add_owned(entry);
        }
        Ok(Self { editor, history })
    }

    /// Returns the next message or command, with `draft` to begin with; `None` when the user leaves: at the end of
    /// input, or with Ctrl-C twice.
    pub(super) fn next(&mut self, draft: &str) -> Result<Option<InputText>> {
        let mut draft = draft;
        let mut interrupted = false;
        loop {
            match self.editor.readline_with_initial(PROMPT, (draft, "")) {
                Ok(text) => {
                    self.remember(&text);
                    return Ok(Some(InputText::of(&text)));
                }
                Err(ReadlineError::Interrupted) if interrupted => return Ok(None),
                Err(ReadlineError::Interrupted) => {
                    (interrupted, draft) = (true, "");
                    crate::output::to_stderr("press Ctrl-C again or type /exit to leave");
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Adds an entry to the history, unless it is empty or begins with a space.
    fn remember(&mut self, text: &str) {
        if text.trim().is_empty() || text.starts_with(' ') {
            return;
        }
        let is_new = self.editor.history_mut().add(text).unwrap_or(false);
        if let Some(path) = self.history.as_ref().filter(|_| is_new) {
            // The conversation goes on without a history.
            if add_to_history(path, text).is_err() {
                self.history = None;
            }
        }
    }
}

fn failed(error: ReadlineError) -> Error {
    Error::new(ErrorKind::Io, "terminal", error.to_string())
}

/// Returns the last entries of a history: one JSON string per line, as entries may have several lines.
fn read_history(path: &Path) -> Result<Vec<String>> {
    let Some(file) = open_no_follow(path)? else { return Ok(Vec::new()) };
    let lines = BufReader::new(file).lines().map_while(std::result::Result::ok);
    let mut entries: Vec<String> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    entries.drain(..entries.len().saturating_sub(MAX_ENTRIES));
    Ok(entries)
}

/// Appends to a history that only this user can read.
fn add_to_history(path: &Path, entry: &str) -> Result<()> {
    let io = |error| Error::io(path.display().to_string(), &error);
    if let Some(folder) = path.parent() {
        create_private(folder).map_err(io)?;
    }
    let mut file = append_no_follow(path)?;
    make_private(&file).map_err(io)?;
    let line = serde_json::to_string(entry).map_err(|error| io(error.into()))?;
    writeln!(file, "{line}").map_err(io)
}

#[cfg(unix)]
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(unix)]
fn make_private(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

#[cfg(not(unix))]
fn make_private(_: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

/// Returns whether a message is complete: a trailing backslash continues it on the next line, and so do quotes that are
/// not closed.
pub(super) fn is_complete(text: &str) -> bool {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(rest) => rest.contains(QUOTES),
        None => !text.ends_with('\\'),
    }
}

/// A message or a command.
pub(super) struct InputText {
    pub(super) text: String,
    /// Whether it begins with quotes: then it is a message, whatever they contain.
    pub(super) is_quoted: bool,
}

impl InputText {
    /// Reads a complete input.
    pub(super) fn of(input: &str) -> Self {
        Self { text: message(input), is_quoted: input.trim_start().starts_with(QUOTES) }
    }
}

/// Returns the input that gives a message again, to edit it on a terminal.
pub(super) fn draft_of(text: &str) -> String {
    let plain = printable(text).into_owned();
    let again = InputText::of(&plain);
    match is_complete(&plain) && again.text == plain && !again.is_quoted && !plain.starts_with('/') {
        true => plain,
        false => format!("{QUOTES}\n{plain}\n{QUOTES}"),
    }
}

/// Returns the message of an input, without the marks of its lines.
fn message(text: &str) -> String {
    match text.trim_start().strip_prefix(QUOTES).and_then(|rest| rest.split_once(QUOTES)) {
        Some((inside, rest)) => {
            let inside = inside.strip_prefix('\n').unwrap_or(inside);
            format!("{}{rest}", inside.strip_suffix('\n').unwrap_or(inside))
        }
        None => text.replace("\\\n", "\n"),
    }
}

struct ChatHelper {
    files: FilenameCompleter,
    palette: Palette,
}

impl Helper for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Highlighter for ChatHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _default: bool) -> Cow<'b, str> {
        Cow::Owned(self.palette.paint(CYAN, prompt))
    }
}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_complete(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        match commands::completions(&line[..position]) {
            commands::CompletionKind::Words(start, words) => {
                let pair = |word: String| Pair { display: word.clone(), replacement: word };
                Ok((start, words.into_iter().map(pair).collect()))
            }
            commands::CompletionKind::File => self.files.complete_path(line, position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_several_lines_are_joined() {
        for (text, complete, sent) in [
            ("a", true, "a"),
            ("a\\", false, "a\\"),
            ("a\\\nb", true, "a\nb"),
            ("a\nb", true, "a\nb"),
            ("\"\"\"", false, "\"\"\""),
            ("\"\"\"a\n\nb", false, "\"\"\"a\n\nb"),
            ("\"\"\"\na\n\nb\\\n\"\"\"", true, "a\n\nb\\"),
            ("\"\"\"a\"\"\" b", true, "a b"),
        ] {
            assert_eq!((is_complete(text), message(text).as_str()), (complete, sent), "{text}");
        }
    }

    #[test]
    fn drafts_give_their_messages_again() {
        for text in ["a", "/exit", "a\nb", "a\\", "a\\\nb"] {
            let draft = draft_of(text);
            assert!(is_complete(&draft), "{text:?}");
            let InputText { text: again, is_quoted } = InputText::of(&draft);
            assert_eq!((again.as_str(), is_quoted || !text.starts_with('/')), (text, true));
        }
    }

    #[test]
    fn the_history_is_private_and_follows_no_link() {
        let folder = std::env::temp_dir().join(format!("siskin-history-{}", std::process::id()));
        let path = folder.join("state/chat_history");
        for entry in ["first", "second\nline"] {
            add_to_history(&path, entry).unwrap();
        }
        assert_eq!(read_history(&path).unwrap(), ["first", "second\nline"]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(&folder.join("state"))), (0o600, 0o700));
            let link = folder.join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            assert!(add_to_history(&link, "third").is_err() && read_history(&link).is_err());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

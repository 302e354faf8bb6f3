//! The commands of a conversation: one table of name, argument, help and function.

use super::{Chat, input, settings, transcript};
use crate::output;
use crate::terminal::{CYAN, Palette};
use siskin::{Error, Result};
use std::ops::ControlFlow;
use std::path::Path;

/// A command of the conversation.
pub(super) struct ChatCommand {
    pub(super) name: &'static str,
    argument: &'static str,
    help: &'static str,
    completion: ArgumentKind,
    run: fn(&mut Chat<'_>, &str) -> Result<ControlFlow<()>>,
}

/// How the argument of a command is completed.
#[derive(Clone, Copy, PartialEq)]
enum ArgumentKind {
    Text,
    File,
    Setting,
}

pub(super) const COMMANDS: &[ChatCommand] = &[
    command("help", "", "list the commands", ArgumentKind::Text, help),
    command("exit", "", "leave, as Ctrl-D does", ArgumentKind::Text, |_, _| Ok(ControlFlow::Break(()))),
    command("clear", "", "clear the conversation; the system prompt stays", ArgumentKind::Text, clear),
    command("system", "TEXT", "set the system prompt and clear the conversation", ArgumentKind::Text, system),
    command("set", "OPTION VALUE", "set an option; without arguments, list all", ArgumentKind::Setting, set),
    command("model", "PATH", "continue the conversation with a different model", ArgumentKind::File, model),
    command("undo", "", "remove the last message and its response", ArgumentKind::Text, undo),
    command("retry", "", "regenerate the last response", ArgumentKind::Text, retry),
    command("edit", "TEXT", "edit the last message and regenerate the response", ArgumentKind::Text, edit),
    command("save", "FILE", "save the session for /load, with its KV cache", ArgumentKind::File, save),
    command("load", "FILE", "load a saved session or an exported .json file", ArgumentKind::File, load),
    command("export", "FILE", "write the conversation to a .md or .json file", ArgumentKind::File, export),
    command("context", "", "show how much of the context is used", ArgumentKind::Text, context),
    command("stats", "", "show memory usage and the speed of the last response", ArgumentKind::Text, stats),
];

const fn command(
    name: &'static str,
    argument: &'static str,
    help: &'static str,
    completion: ArgumentKind,
    run: fn(&mut Chat<'_>, &str) -> Result<ControlFlow<()>>,
) -> ChatCommand {
    ChatCommand { name, argument, help, completion, run }
}

/// Returns the command that a line names and its argument; `None` for a message. A path at the beginning of a message
/// is not a command.
pub(super) fn parse(line: &str) -> Option<(&str, &str)> {
    let line = line.trim().strip_prefix('/')?;
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    is_name.then(|| (name, argument.trim()))
}

/// Runs a command.
pub(super) fn run(chat: &mut Chat<'_>, name: &str, argument: &str) -> Result<ControlFlow<()>> {
    let command = COMMANDS.iter().find(|command| command.name == name).ok_or_else(|| unknown(name))?;
    if command.argument.is_empty() && !argument.is_empty() {
        return Err(Error::argument(format!("/{name}"), "takes no argument"));
    }
    (command.run)(chat, argument)
}

fn unknown(name: &str) -> Error {
    let near = output::nearest(name, COMMANDS.iter().map(|command| command.name));
    let message = match near {
        Some(near) => format!("unknown command; did you mean `/{near}`?"),
        None => "unknown command; /help lists the commands".to_owned(),
    };
    Error::argument(format!("/{name}"), message)
}

/// What the end of a line can be completed to.
pub(super) enum CompletionKind {
    /// These words, in place of the text from this byte on.
    Words(usize, Vec<String>),
    File,
}

/// Returns the completions of a line.
pub(super) fn completions(line: &str) -> CompletionKind {
    let nothing = CompletionKind::Words(line.len(), Vec::new());
    let Some(rest) = line.strip_prefix('/') else { return nothing };
    let Some((name, argument)) = rest.split_once(' ') else {
        let names = COMMANDS.iter().filter(|command| command.name.starts_with(rest));
        return CompletionKind::Words(0, names.map(|command| format!("/{} ", command.name)).collect());
    };
    let command = COMMANDS.iter().find(|command| command.name == name);
    match command.map(|command| command.completion) {
        Some(ArgumentKind::File) => CompletionKind::File,
        Some(ArgumentKind::Setting) => {
            let names = settings::names().into_iter().filter(|name| name.starts_with(argument));
            CompletionKind::Words(line.len() - argument.len(), names.map(|name| name + " ").collect())
        }
        _ => nothing,
    }
}

fn help(_: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    let palette = Palette::of_stdout();
    let usage = |command: &ChatCommand| format!("/{} {}", command.name, command.argument);
    let width = COMMANDS.iter().map(|command| usage(command).len()).max().unwrap_or(0);
    for command in COMMANDS {
        let usage = format!("{:<width$}", usage(command));
        output::line(format!("{}  {}", palette.paint(CYAN, usage), command.help))?;
    }
    output::line(
        "\nEnd a line with \\, or enclose it in \"\"\", to write several lines. Ctrl-C stops the response.",
    )?;
    Ok(ControlFlow::Continue(()))
}

/// Returns a required argument.
fn required<'a>(command: &str, argument: &'a str, what: &str) -> Result<&'a str> {
    match argument.is_empty() {
        true => Err(Error::argument(format!("/{command}"), format!("needs {what}"))),
        false => Ok(argument),
    }
}

fn clear(chat: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    chat.begin();
    chat.note("conversation cleared");
    Ok(ControlFlow::Continue(()))
}

fn system(chat: &mut Chat<'_>, text: &str) -> Result<ControlFlow<()>> {
    chat.system = Some(text.to_owned()).filter(|text| !text.is_empty());
    chat.begin();
    let done = if text.is_empty() { "system prompt removed" } else { "system prompt set" };
    chat.note(format!("{done}, conversation cleared"));
    Ok(ControlFlow::Continue(()))
}

fn set(chat: &mut Chat<'_>, argument: &str) -> Result<ControlFlow<()>> {
    if argument.is_empty() {
        chat.settings.list()?.into_iter().try_for_each(output::line)?;
        return Ok(ControlFlow::Continue(()));
    }
    let (name, value) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
    let settings = chat.settings.with(name, value.trim())?;
    chat.apply(settings)?;
    Ok(ControlFlow::Continue(()))
}

fn model(chat: &mut Chat<'_>, path: &str) -> Result<ControlFlow<()>> {
    match path.is_empty() {
        true => output::line(chat.path.display())?,
        false => chat.switch_model(Path::new(path))?,
    }
    Ok(ControlFlow::Continue(()))
}

fn undo(chat: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    chat.undo("undo")?;
    chat.note("removed the last message and its response");
    Ok(ControlFlow::Continue(()))
}

fn retry(chat: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    chat.replace("retry", None)?;
    Ok(ControlFlow::Continue(()))
}

fn edit(chat: &mut Chat<'_>, text: &str) -> Result<ControlFlow<()>> {
    if text.is_empty() && !chat.is_interactive {
        required("edit", text, "the new text of the message")?;
    }
    match text.is_empty() {
        true => (chat.draft, chat.is_editing) = (input::draft_of(&chat.last_message("edit")?.1), true),
        false => chat.replace("edit", Some(text))?,
    }
    Ok(ControlFlow::Continue(()))
}

fn save(chat: &mut Chat<'_>, path: &str) -> Result<ControlFlow<()>> {
    let path = required("save", path, "the path of the file to write")?;
    transcript::save(&mut chat.session, Path::new(path), &chat.inputs)?;
    chat.note(format!("saved to {path}"));
    Ok(ControlFlow::Continue(()))
}

fn load(chat: &mut Chat<'_>, path: &str) -> Result<ControlFlow<()>> {
    let path = required("load", path, "the path of a saved session or an exported .json file")?;
    transcript::load(&mut chat.session, Path::new(path))?;
    chat.loaded();
    chat.note(format!("loaded {} messages from {path}", chat.session.messages().len()));
    Ok(ControlFlow::Continue(()))
}

fn export(chat: &mut Chat<'_>, path: &str) -> Result<ControlFlow<()>> {
    let path = required("export", path, "the path of a .md or .json file to write")?;
    let messages: Vec<_> = chat.session.messages().cloned().collect();
    transcript::export(&messages, &chat.path, Path::new(path))?;
    chat.note(format!("wrote {path}"));
    Ok(ControlFlow::Continue(()))
}

fn context(chat: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    let (used, max) = (chat.session.position(), chat.session.context_length());
    let part = 100.0 * used as f64 / max.max(1) as f64;
    output::line(format!(
        "{used} of {max} tokens ({part:.0} %), {} messages",
        chat.session.messages().len()
    ))?;
    Ok(ControlFlow::Continue(()))
}

fn stats(chat: &mut Chat<'_>, _: &str) -> Result<ControlFlow<()>> {
    let memory = chat.session.memory();
    let [arena, cache, mapped] =
        [memory.arena, memory.cache, memory.mapped].map(|count| output::bytes(count as u64));
    let last = chat.last.as_deref().unwrap_or("none yet");
    for (name, value) in [
        ("model", chat.path.display().to_string()),
        ("activations", arena),
        ("KV cache", format!("{cache} reserved")),
        ("weights", format!("{mapped} mapped")),
        ("last response", last.to_owned()),
    ] {
        output::line(format!("{name:<13}  {value}"))?;
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        for (line, command) in [
            ("/help", Some(("help", ""))),
            ("  /set top_k  5 ", Some(("set", "top_k  5"))),
            ("/system a\nb", Some(("system", "a\nb"))),
            ("/usr/bin/ls is what?", None),
            ("/", None),
            ("a /help", None),
        ] {
            assert_eq!(parse(line), command, "{line}");
        }
    }

    #[test]
    fn unknown_commands_name_the_nearest() {
        assert!(unknown("sav").message().contains("`/save`"));
        assert!(unknown("quit").message().contains("/help"), "{}", unknown("quit"));
        assert!(unknown("ext").message().contains("`/exit`"));
    }

    #[test]
    fn commands_settings_and_files_are_completed() {
        let words = |line| match completions(line) {
            CompletionKind::Words(start, words) => (start, words),
            CompletionKind::File => panic!("{line}"),
        };
        assert_eq!(words("/ex"), (0, vec!["/exit ".to_owned(), "/export ".to_owned()]));
        assert_eq!(words("/set temp"), (5, vec!["temperature ".to_owned()]));
        assert_eq!(words("hello /ex").1, Vec::<String>::new());
        assert!(matches!(completions("/save a"), CompletionKind::File));
    }
}

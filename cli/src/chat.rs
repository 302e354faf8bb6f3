//! `siskin chat`: an interactive conversation.

mod commands;
mod input;
mod markdown;
mod settings;
mod transcript;

use crate::answer::TimedAnswer;
use crate::options::{ModelArgs, OpenArgs, TextArgs, files_of};
use crate::template_args::TemplateArgs;
use crate::terminal::{DIM, Palette, RED, printable};
use crate::{interrupt, output};
use input::{ChatInput, InputText};
use markdown::MarkdownStream;
use settings::ChatSettings;
use siskin::template::Message;
use siskin::{Error, ErrorKind, GenerateOptions, Model, Result, Session};
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Chat with a model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Do not load or save the input history
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
}

struct Chat<'a> {
    args: &'a Args,
    open: &'a OpenArgs,
    session: Session,
    /// The path of the model.
    path: PathBuf,
    /// The files of the model, which must not be overwritten.
    inputs: Vec<PathBuf>,
    settings: ChatSettings,
    system: Option<String>,
    /// The number of messages and of tokens before each user message.
    marks: Vec<(usize, usize)>,
    /// The text that the next input begins with.
    draft: String,
    /// Whether the next message replaces the last one.
    is_editing: bool,
    /// The summary of the last response.
    last: Option<String>,
    is_interactive: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let settings = ChatSettings {
        sampler: args.text.sampler().clone(),
        stop: args.text.stop().to_vec(),
        max_tokens: args.text.max_tokens,
    };
    let session = open_session(args, open, &args.model, &args.model_args, &settings)?;
    let mut chat = Chat {
        args,
        open,
        session,
        path: args.model.clone(),
        inputs: [Some(args.model.as_path()), args.model_args.adapter()]
            .into_iter()
            .flatten()
            .flat_map(files_of)
            .collect(),
        settings,
        system: args.system.clone(),
        marks: Vec::new(),
        draft: String::new(),
        is_editing: false,
        last: None,
        is_interactive: std::io::stdin().is_terminal(),
    };
    interrupt::listen()?;
    chat.begin();
    match chat.is_interactive {
        true => chat.converse(),
        false => chat.read_lines(),
    }
}

/// Opens a model that can chat, and a session.
fn open_session(
    args: &Args,
    open: &OpenArgs,
    path: &Path,
    model_args: &ModelArgs,
    settings: &ChatSettings,
) -> Result<Session> {
    let mut options = args.text.context().session(model_args, &settings.sampler, &settings.stop)?;
    let model: Model = open.model(path, model_args)?;
    if model.template()?.is_none() {
        let message = "the model has no chat template; use `siskin run` for text completion";
        return Err(Error::new(ErrorKind::Missing, "chat template", message));
    }
    options.template = args.template.options(&model)?;
    model.session(options)
}

impl Chat<'_> {
    /// Reads messages and commands from the terminal.
    fn converse(&mut self) -> Result<()> {
        let mut input = ChatInput::open(!self.args.no_history)?;
        self.note("/help lists the commands");
        while let Some(text) = input.next(&std::mem::take(&mut self.draft))? {
            if self.take(&text)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads messages and commands from standard input: one from each line, unless it continues as on a terminal.
    fn read_lines(&mut self) -> Result<()> {
        let mut text = String::new();
        for line in std::io::stdin().lines() {
            text += &line.map_err(|error| Error::io("standard input", &error))?;
            if !input::is_complete(&text) {
                text.push('\n');
                continue;
            }
            if self.take(&InputText::of(&std::mem::take(&mut text)))?.is_break() {
                return Ok(());
            }
        }
        if !text.is_empty() {
            let _ = self.take(&InputText::of(&text))?;
        }
        Ok(())
    }

    /// Executes a command or responds to a message. Errors of commands and messages do not end the conversation.
    fn take(&mut self, InputText { text, is_quoted }: &InputText) -> Result<ControlFlow<()>> {
        let is_editing = std::mem::take(&mut self.is_editing);
        let command = if *is_quoted { None } else { commands::parse(text) };
        let outcome = match command {
            Some((name, argument)) => commands::run(self, name, argument),
            None if text.trim().is_empty() => return Ok(ControlFlow::Continue(())),
            None if is_editing => self.replace("edit", Some(text.trim())).map(ControlFlow::Continue),
            None => self.answer(text.trim()).map(ControlFlow::Continue),
        };
        match outcome {
            Err(error) if output::is_of_stdout(&error) => Err(error),
            Err(error) => {
                let label = Palette::of_stderr().paint(RED, "error:");
                output::to_stderr(format!("{label} {}", printable(&error.to_string())));
                Ok(ControlFlow::Continue(()))
            }
            flow => flow,
        }
    }

    /// Begins a new conversation.
    fn begin(&mut self) {
        self.session.reset();
        self.marks.clear();
        if let Some(system) = &self.system {
            self.session.add_message("system", system);
        }
    }

    /// Adjusts to the messages of a loaded conversation.
    fn loaded(&mut self) {
        self.marks.clear();
        let first = self.session.messages().next();
        self.system = first.filter(|first| first.role == "system").map(|first| first.text().into_owned());
    }

    /// Applies other settings to the session.
    fn apply(&mut self, settings: ChatSettings) -> Result<()> {
        let context = self.args.text.context();
        let options = context.session(&self.args.model_args, &settings.sampler, &settings.stop)?;
        self.session.set_stop(options.stop)?;
        self.session.set_sampler(options.sampler, options.dry_breakers)?;
        self.settings = settings;
        Ok(())
    }

    /// Continues the conversation with the model at `path`. The adapter is not applied to it.
    fn switch_model(&mut self, path: &Path) -> Result<()> {
        let model_args = self.args.model_args.alone();
        let mut session = open_session(self.args, self.open, path, &model_args, &self.settings)?;
        for message in self.session.messages() {
            session.push_message(message.clone());
        }
        self.session = session;
        self.marks.clear();
        self.path = path.to_owned();
        self.inputs.extend(files_of(path));
        self.note(format!("the next response comes from {}", path.display()));
        Ok(())
    }

    /// Returns the user's last message, and the number of messages before it.
    fn last_message(&self, command: &str) -> Result<(usize, String)> {
        let last = self.session.messages().enumerate().filter(|(_, message)| message.role == "user").last();
        last.map(|(count, message)| (count, message.text().into_owned()))
            .ok_or_else(|| Error::new(ErrorKind::State, format!("/{command}"), "there is no message yet"))
    }

    /// Removes the user's last message and what follows.
    fn undo(&mut self, command: &str) -> Result<()> {
        let (count, _) = self.last_message(command)?;
        self.remove_from(count);
        Ok(())
    }

    /// Removes all but the first `count` messages, and their tokens.
    fn remove_from(&mut self, count: usize) {
        self.session.truncate_messages(count);
        while let Some((messages, tokens)) = self.marks.pop_if(|(messages, _)| *messages >= count) {
            // Otherwise, as with a sliding window, the next prompt is processed from its beginning.
            if messages == count {
                let _ = self.session.truncate(tokens);
            }
        }
    }

    /// Responds to the user's last message again, or to `text` in its place. If there is no response, the messages
    /// stay.
    fn replace(&mut self, command: &str, text: Option<&str>) -> Result<()> {
        let (count, prompt) = self.last_message(command)?;
        let removed: Vec<Message> = self.session.messages().skip(count).cloned().collect();
        self.remove_from(count);
        let outcome = self.answer(text.unwrap_or(&prompt));
        if outcome.is_err() && self.session.messages().len() == count {
            removed.into_iter().for_each(|message| self.session.push_message(message));
        }
        outcome
    }

    fn answer(&mut self, prompt: &str) -> Result<()> {
        let max_tokens = self.settings.max_tokens.unwrap_or(usize::MAX);
        let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
        self.marks.push((self.session.messages().len(), self.session.position()));
        let mut markdown = MarkdownStream::for_stdout(Palette::of_stdout());
        let mut print = |text: &str| output::write(&markdown.push(text));
        match TimedAnswer::generate(&mut self.session, prompt, options, &mut print, &mut |_, _| Ok(())) {
            Ok(answer) => {
                output::line(markdown.finish())?;
                self.note(answer.summary());
                self.last = Some(answer.summary());
                Ok(())
            }
            Err(error) => {
                // A response that fails in the middle may have printed styles and no line break.
                let rest = markdown.finish();
                if !rest.is_empty() {
                    output::line(rest)?;
                }
                self.marks.pop();
                Err(match error.kind() {
                    ErrorKind::TooLong => Error::new(
                        error.kind(),
                        error.location(),
                        format!("{}; /undo or /clear makes room", error.message()),
                    ),
                    ErrorKind::Canceled => Error::new(error.kind(), "chat", "stopped before the response"),
                    _ => error,
                })
            }
        }
    }

    /// Prints a note to standard error.
    fn note(&self, text: impl std::fmt::Display) {
        output::note(self.open.quiet, Palette::of_stderr().paint(DIM, text));
    }
}

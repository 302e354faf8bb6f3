//! `siskin chat`: an interactive conversation.

use crate::answer::TimedAnswer;
use crate::options::{ModelArgs, OpenArgs, TextArgs, files_of};
use crate::{interrupt, output};
use rustyline::error::ReadlineError;
use rustyline::{DefaultEditor, history::History as _};
use siskin::file::AtomicFile;
use siskin::{Error, ErrorKind, GenerateOptions, Result, Session};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

const HELP: &str = "/help          this list
/system TEXT   begin again with this system prompt
/reset         begin again
/save FILE     write the conversation to a file
/stats         memory, tokens in context, speed of the last answer
/exit          end (as Ctrl-D does)";

/// Chat with a model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    model_args: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
}

struct Chat<'a> {
    session: Session,
    system: Option<String>,
    transcript: String,
    last: Option<String>,
    max_tokens: usize,
    open: &'a OpenArgs,
    /// The files of the model, which a transcript must not overwrite.
    inputs: Vec<PathBuf>,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let options = args.text.session(&args.model_args)?;
    let model = open.model(&args.model, &args.model_args)?;
    if model.template()?.is_none() {
        let message = "the model has none and cannot chat; `siskin run` continues texts";
        return Err(Error::new(ErrorKind::Missing, "chat template", message));
    }
    let paths = [Some(args.model.as_path()), args.model_args.adapter()];
    let mut chat = Chat {
        session: model.session(options)?,
        system: args.system.clone(),
        transcript: String::new(),
        last: None,
        max_tokens: args.text.max_tokens.unwrap_or(usize::MAX),
        open,
        inputs: paths.into_iter().flatten().flat_map(files_of).collect(),
    };
    interrupt::listen()?;
    chat.begin();
    if std::io::stdin().is_terminal() {
        output::note(open, "/help lists the commands");
        return chat.interactive();
    }
    for line in std::io::stdin().lines() {
        if !chat.hear(&line.map_err(|error| Error::io("standard input", &error))?)? {
            break;
        }
    }
    Ok(())
}

impl Chat<'_> {
    fn interactive(&mut self) -> Result<()> {
        let failed = |error: ReadlineError| Error::new(ErrorKind::Io, "terminal", error.to_string());
        let mut editor = DefaultEditor::new().map_err(failed)?;
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    // A failure to add to the line history is not fatal.
                    let _ = editor.history_mut().add(&line);
                    if !self.hear(&line)? {
                        return Ok(());
                    }
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn begin(&mut self) {
        self.session.reset();
        self.transcript.clear();
        if let Some(system) = &self.system {
            self.session.add_message("system", system);
            self.transcript = format!("system: {system}\n");
        }
    }

    /// Writes the transcript.
    fn save(&self, path: &Path) -> Result<()> {
        AtomicFile::create_from(path, &self.inputs)?.commit_bytes(self.transcript.as_bytes())
    }

    /// Executes an input line. Returns false when the conversation ends.
    fn hear(&mut self, line: &str) -> Result<bool> {
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => {}
            "/exit" | "/quit" => return Ok(false),
            "/help" => output::line(HELP)?,
            "/reset" => self.begin(),
            "/system" => {
                self.system = Some(rest.trim().to_owned()).filter(|text| !text.is_empty());
                self.begin();
            }
            "/stats" => self.stats()?,
            "/save" => match self.save(Path::new(rest.trim())) {
                Ok(()) => output::note(self.open, format!("saved to {}", rest.trim())),
                Err(error) => output::line(format!("cannot write: {error}"))?,
            },
            _ if word.starts_with('/') => output::line(format!("no command {word}; /help lists them"))?,
            _ => self.answer(line)?,
        }
        Ok(true)
    }

    fn answer(&mut self, prompt: &str) -> Result<()> {
        let options = GenerateOptions { max_tokens: self.max_tokens, ..GenerateOptions::default() };
        match TimedAnswer::generate(&mut self.session, prompt, options, true) {
            Ok(answer) => {
                output::line("")?;
                self.transcript += &format!("user: {prompt}\nassistant: {}\n", answer.text);
                output::note(self.open, answer.summary());
                self.last = Some(answer.summary());
                Ok(())
            }
            // The conversation can continue in a new context.
            Err(error) if error.kind() == ErrorKind::TooLong => {
                output::line(format!("\n{error}; /reset begins again"))
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => output::line("\nstopped before the answer"),
            Err(error) => Err(error),
        }
    }

    fn stats(&self) -> Result<()> {
        let memory = self.session.memory();
        let [arena, cache, mapped] =
            [memory.arena, memory.cache, memory.mapped].map(|count| output::bytes(count as u64));
        output::line(format!("tokens in context: {}", self.session.position()))?;
        output::line(format!("memory: work {arena}, cache {cache} reserved, model {mapped} mapped"))?;
        self.last.as_ref().map_or(Ok(()), output::line)
    }
}

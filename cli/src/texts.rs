//! Texts from arguments, files and standard input.

use crate::options::OpenArgs;
use crate::output::Bar;
use siskin::encoder::Long;
use siskin::{Error, Result};
use siskin_convert::Progress;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;

/// Where texts come from.
#[derive(clap::Args)]
pub(crate) struct TextArgs {
    /// The texts
    #[arg(required_unless_present_any = ["file", "stdin"])]
    texts: Vec<String>,
    /// Read texts from this file, one on each line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["texts", "stdin"])]
    file: Option<PathBuf>,
    /// Read texts from standard input, one on each line
    #[arg(long, conflicts_with = "texts")]
    stdin: bool,
}

/// Texts that are worked on at once: results come while there is more to read.
const AT_ONCE: usize = 256;

impl TextArgs {
    /// Calls `each` with some texts at a time, and the number of the first of them. A bar shows how far it is.
    pub(crate) fn each(
        &self,
        open: &OpenArgs,
        each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        // Lines on the terminal show how far it is.
        self.walk(open, !std::io::stdout().is_terminal(), each)
    }

    /// The same for results that come when all is done.
    pub(crate) fn gather(
        &self,
        open: &OpenArgs,
        each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        self.walk(open, true, each)
    }

    /// The same without a bar, for those that show one of their own.
    pub(crate) fn each_in_silence(
        &self,
        open: &OpenArgs,
        each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        self.walk(open, false, each)
    }

    fn walk(
        &self,
        open: &OpenArgs,
        shows: bool,
        mut each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        let mut first = 0;
        let mut each = |texts: &[String]| {
            let outcome = if texts.is_empty() { Ok(()) } else { each(first, texts) };
            first += texts.len();
            outcome
        };
        let (reader, total) = match (&self.file, self.stdin) {
            (Some(path), _) => {
                let io = |error| Error::io(path.display().to_string(), &error);
                let file = std::fs::File::open(path).map_err(io)?;
                let total = file.metadata().map_err(io)?.len();
                (Box::new(BufReader::new(file)) as Box<dyn BufRead>, Some(total))
            }
            (None, true) => (Box::new(std::io::stdin().lock()) as Box<dyn BufRead>, None),
            (None, false) => return self.texts.chunks(AT_ONCE).try_for_each(each),
        };
        let bar = shows.then(|| Bar::of_texts(open, total));
        let mut texts = Vec::with_capacity(AT_ONCE);
        let mut bytes = 0;
        for line in reader.lines() {
            let line = line.map_err(|error| Error::io("input", &error))?;
            bytes += line.len() as u64 + 1;
            texts.push(line);
            if texts.len() == AT_ONCE {
                each(&texts)?;
                let done = if total.is_some() { bytes } else { texts.len() as u64 };
                bar.iter().for_each(|bar| bar.advance(done));
                (bytes, texts) = (0, Vec::with_capacity(AT_ONCE));
            }
        }
        each(&texts)
    }
}

/// What is done with texts that are too long.
#[derive(Clone, Copy, Default, PartialEq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LongText {
    /// They are refused
    #[default]
    Refuse,
    /// They are read as far as the model can
    Cut,
    /// They are read in parts
    Window,
}

impl LongText {
    /// The same for the library, with parts that share `overlap` tokens.
    fn with(self, overlap: usize) -> Long {
        match self {
            Self::Refuse => Long::Refuse,
            Self::Cut => Long::Cut,
            Self::Window => Long::Window { overlap },
        }
    }

    /// The same of commands that read no text in parts.
    pub(crate) fn whole(self) -> Result<Long> {
        match self {
            Self::Window => {
                Err(Error::argument("--long", "parts have no answer of their own here; cut texts"))
            }
            other => Ok(other.with(0)),
        }
    }
}

/// Tokens that parts of a text share where nothing is said and each part is read for itself.
pub(crate) const OVERLAP: usize = 32;

/// What is done with texts that are too long, where they may be read in parts.
#[derive(clap::Args, serde::Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LongArgs {
    /// What is done with texts that are too long for the model
    #[arg(long, value_enum, default_value_t)]
    long: LongText,
    /// With `--long window`, tokens that parts of a long text share [default: 32; 0 where texts are written]
    #[arg(long, value_name = "N")]
    overlap: Option<usize>,
}

impl LongArgs {
    /// The same for the library; parts share `usual` tokens where nothing is said.
    pub(crate) fn read(&self, usual: usize) -> Result<Long> {
        if self.overlap.is_some() && self.long != LongText::Window {
            return Err(Error::argument(
                "--overlap",
                "parts share tokens with `--long window` alone; add it",
            ));
        }
        Ok(self.long.with(self.overlap.unwrap_or(usual)))
    }
}

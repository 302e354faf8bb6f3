//! Texts from arguments, files and standard input.

use crate::input_path;
use crate::options::OpenArgs;
use crate::output::Bar;
use siskin::encoder::OverflowMode;
use siskin::{Error, Result};
use siskin_convert::ProgressSink;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;

/// The sources of the texts.
#[derive(clap::Args)]
pub(crate) struct TextSourceArgs {
    /// The texts
    #[arg(value_name = "TEXT", required_unless_present_any = ["file", "stdin"])]
    texts: Vec<String>,
    /// Read texts from this file, one per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["texts", "stdin"])]
    file: Option<PathBuf>,
    /// Read texts from standard input, one per line
    #[arg(long, conflicts_with = "texts")]
    stdin: bool,
}

/// Number of texts per call: results are printed while input is still being read.
const AT_ONCE: usize = 256;

impl TextSourceArgs {
    /// Calls `each` with a group of texts and the index of the first of them. A progress bar is shown.
    pub(crate) fn each(
        &self,
        open: &OpenArgs,
        each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        // Lines printed to the terminal already show the progress.
        self.walk(open, !std::io::stdout().is_terminal(), each)
    }

    /// Same as above, for results that are printed at the end.
    pub(crate) fn gather(
        &self,
        open: &OpenArgs,
        each: impl FnMut(usize, &[String]) -> Result<()>,
    ) -> Result<()> {
        self.walk(open, true, each)
    }

    /// Same as above without a progress bar, for callers that show their own.
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
                input_path::check_file(path)?;
                let file = std::fs::File::open(path).map_err(io)?;
                let total = file.metadata().map_err(io)?.len();
                (Box::new(BufReader::new(file)) as Box<dyn BufRead>, Some(total))
            }
            (None, true) => (Box::new(std::io::stdin().lock()) as Box<dyn BufRead>, None),
            (None, false) => return self.texts.chunks(AT_ONCE).try_for_each(each),
        };
        let bar = shows.then(|| Bar::of_texts(open.quiet, total));
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

/// Handling of texts that are too long, for commands that need one result for a whole text.
#[derive(Clone, Copy, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WholeOverflow {
    /// Fail with an error
    #[default]
    Error,
    /// Truncate to the model's maximum length
    Truncate,
}

impl WholeOverflow {
    /// Returns the library's value.
    pub(crate) fn mode(self) -> OverflowMode {
        match self {
            Self::Error => OverflowMode::Error,
            Self::Truncate => OverflowMode::Truncate,
        }
    }
}

/// Handling of texts that are too long, for commands that support windows.
#[derive(Clone, Copy, Default, PartialEq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum WindowOverflow {
    /// Fail with an error
    #[default]
    Error,
    /// Truncate to the model's maximum length
    Truncate,
    /// Split into overlapping windows
    Window,
}

/// Default overlap of windows in tokens, for commands that encode each window on its own.
pub(crate) const OVERLAP: usize = 32;

/// Options for texts that are too long.
#[derive(clap::Args, serde::Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OverflowArgs {
    /// What to do with a text that is too long for the model
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    overflow: WindowOverflow,
    /// With --overflow window, the number of tokens that neighboring windows share [default: 32; 0 for generation]
    #[arg(long, value_name = "N")]
    overlap: Option<usize>,
}

impl OverflowArgs {
    /// Returns the library's value; `usual` is the default overlap.
    pub(crate) fn mode(&self, usual: usize) -> Result<OverflowMode> {
        if self.overlap.is_some() && self.overflow != WindowOverflow::Window {
            return Err(Error::argument("--overlap", "no effect without --overflow window"));
        }
        Ok(match self.overflow {
            WindowOverflow::Error => OverflowMode::Error,
            WindowOverflow::Truncate => OverflowMode::Truncate,
            WindowOverflow::Window => OverflowMode::Window { overlap: self.overlap.unwrap_or(usual) },
        })
    }
}

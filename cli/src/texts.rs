//! Texts from arguments, files and standard input.

use siskin::{Error, Result};
use std::io::{BufRead, BufReader};
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
    /// Calls `each` with some texts at a time, and the number of the first of them.
    pub(crate) fn each(&self, mut each: impl FnMut(usize, &[String]) -> Result<()>) -> Result<()> {
        let mut first = 0;
        let mut each = |texts: &[String]| {
            let outcome = if texts.is_empty() { Ok(()) } else { each(first, texts) };
            first += texts.len();
            outcome
        };
        let reader: Box<dyn BufRead> = match (&self.file, self.stdin) {
            (Some(path), _) => {
                let file = std::fs::File::open(path);
                Box::new(BufReader::new(file.map_err(|error| Error::io(path.display().to_string(), &error))?))
            }
            (None, true) => Box::new(std::io::stdin().lock()),
            (None, false) => return self.texts.chunks(AT_ONCE).try_for_each(each),
        };
        let mut texts = Vec::with_capacity(AT_ONCE);
        for line in reader.lines() {
            texts.push(line.map_err(|error| Error::io("input", &error))?);
            if texts.len() == AT_ONCE {
                each(&texts)?;
                texts.clear();
            }
        }
        each(&texts)
    }
}

/// What is done with texts that are too long.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
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
    pub(crate) fn with(self, overlap: usize) -> siskin::encoder::Long {
        match self {
            Self::Refuse => siskin::encoder::Long::Refuse,
            Self::Cut => siskin::encoder::Long::Cut,
            Self::Window => siskin::encoder::Long::Window { overlap },
        }
    }
}

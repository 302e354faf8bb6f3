//! `siskin tokenize`: text to token ids.

use crate::options::{NoPackedFiles, OpenArgs};
use crate::{built_in_model, input_path, output};
use siskin::tokenizer::{EncodeOptions, Tokenizer};
use siskin::{Error, Result};
use std::io::Read;
use std::path::PathBuf;

/// Ids detokenized at a time: bounds memory, which is many times that of the text.
const AT_ONCE: usize = 1 << 16;

/// Convert text to token ids
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file (a vocabulary-only file is enough), a Hugging Face folder or a tokenizer.json
    model: PathBuf,
    /// The text
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin", allow_hyphen_values = true)]
    text: Option<String>,
    /// Read the text verbatim from standard input
    #[arg(long)]
    stdin: bool,
    /// Add no special tokens and parse none in the text
    #[arg(long)]
    no_special: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = &*input_path::model(&args.model, open.quiet)?;
    let tokenizer = match built_in_model::is_meant(model) {
        true => Tokenizer::open(built_in_model::file()?.tokenizer().unwrap_or_default())?,
        false => siskin_convert::open_tokenizer(model)?,
    };
    let text = match &args.text {
        Some(text) => text.clone().into_bytes(),
        None => {
            let mut text = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut text)
                .map_err(|error| Error::io("standard input", &error))?;
            text
        }
    };
    let special = !args.no_special;
    let options = EncodeOptions { add_special: special, parse_special: special };
    let ids = tokenizer.encode_bytes(&text, options)?;
    let (start, separator, end) = if args.json { ("{\"ids\":[", ",", "]}\n") } else { ("", " ", "\n") };
    output::write(start)?;
    for (index, part) in ids.chunks(AT_ONCE).enumerate() {
        let part: Vec<_> = part.iter().map(u32::to_string).collect();
        output::write(if index == 0 { "" } else { separator })?;
        output::write(&part.join(separator))?;
    }
    output::write(end)
}

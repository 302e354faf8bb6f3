//! `siskin tokenize`: text to ids.

use crate::output;
use serde_json::json;
use siskin::file::{Bytes, File};
use siskin::tokenizer::{EncodeOptions, Tokenizer};
use siskin::{Error, ErrorKind, Result};
use siskin_convert::import::gguf::Gguf;
use siskin_convert::import::{tokenizer_gguf, tokenizer_json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Turn text into token ids
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file (one with a vocabulary alone will do), a Hugging Face folder or a tokenizer.json
    model: PathBuf,
    /// The text
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin", allow_hyphen_values = true)]
    text: Option<String>,
    /// Read the text from standard input, byte for byte
    #[arg(long)]
    stdin: bool,
    /// Add no special token and read none out of the text
    #[arg(long)]
    no_special: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args) -> Result<()> {
    let tokenizer = tokenizer_of(&args.model)?;
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
    if args.json {
        return output::json(&json!({ "ids": ids }));
    }
    let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
    output::line(ids.join(" "))
}

/// The tokenizer at `path`, without packing anything else.
fn tokenizer_of(path: &Path) -> Result<Tokenizer> {
    let place = path.display().to_string();
    open(path).map_err(|error| error.within(&place))
}

fn open(path: &Path) -> Result<Tokenizer> {
    let has_extension = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    if path.is_dir() {
        let (tokenizer, config) = (path.join("tokenizer.json"), path.join("tokenizer_config.json"));
        if !tokenizer.exists() {
            return Err(Error::new(ErrorKind::Missing, "tokenizer.json", "the folder has none"));
        }
        let config = if config.exists() { Some(read(&config)?) } else { None };
        return section(&tokenizer_json::vocabulary(&read(&tokenizer)?, config.as_deref())?);
    }
    if has_extension("json") {
        return section(&tokenizer_json::vocabulary(&read(path)?, None)?);
    }
    if has_extension("siskin") {
        let bytes = File::open(path)?.tokenizer();
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::Missing, "tokenizer", "the file has none"))?;
        return Tokenizer::open(bytes);
    }
    section(&tokenizer_gguf::vocabulary(&Gguf::open(path)?)?)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(path.display().to_string(), &error))
}

fn section(vocabulary: &siskin::tokenizer::Vocabulary) -> Result<Tokenizer> {
    Tokenizer::open(Bytes::new(vocabulary.write()?))
}

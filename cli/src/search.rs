//! `siskin search`: finds passages in a folder by their meaning.

mod passages;

use crate::input_path;
use crate::options::{ModelArgs, OpenArgs};
use crate::output::{self, Bar};
use passages::{Passage, Passages};
use serde_json::json;
use siskin::encoder::{EmbedOptions, OverflowMode, Prompt};
use siskin::{Encoder, EncoderOptions, Model, Result};
use std::path::PathBuf;

/// How many passages are embedded between two reports of progress.
const BATCH: usize = 64;
/// How many characters of a passage are printed.
const EXCERPT: usize = 160;

/// Find passages in the text files of a folder by their meaning
///
/// Every passage is embedded at each call, with an embedding model; there is no index. Hidden files, binary files and files
/// above 4 MiB are skipped.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with text files, or one file
    folder: PathBuf,
    /// What to look for
    query: String,
    /// Embedding model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    #[arg(short, long, value_name = "MODEL")]
    model: PathBuf,
    /// Number of passages to print
    #[arg(short = 'n', long, default_value_t = 5, value_name = "N")]
    top: usize,
    /// Print a JSON object for each passage
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    input_path::check_model(&args.model)?;
    let Passages { list: passages, unreadable, skipped } = Passages::read(&args.folder)?;
    if unreadable + skipped > 0 {
        let note = format!(
            "[{skipped} files that are not text or too large, and {unreadable} unreadable ones, are skipped]"
        );
        output::note(open.quiet, note);
    }
    let options = EncoderOptions { head: false, ..EncoderOptions::default() };
    let mut encoder = open.encoder(&args.model, &args.model_args, options)?;
    let query = embed_options(encoder.model(), "query")?;
    let document = embed_options(encoder.model(), "document")?;
    let query = encoder.embed(&[&args.query], &query)?.concat();
    let mut scored = scores(&mut encoder, &passages, &document, &query, open)?;
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (score, passage) in scored.into_iter().take(args.top) {
        print(score, passage, args.json)?;
    }
    Ok(())
}

/// Returns the options for texts of a kind: with its prompt if the model has one.
fn embed_options(model: &Model, kind: &str) -> Result<EmbedOptions> {
    let options = EmbedOptions::of(model)?;
    let prompt = Prompt::named(model, kind).unwrap_or(Prompt::Default);
    Ok(EmbedOptions { normalize: true, overflow: OverflowMode::Truncate, prompt, ..options })
}

/// Returns the cosine similarity of each passage to the query.
fn scores<'p>(
    encoder: &mut Encoder,
    passages: &'p [Passage],
    options: &EmbedOptions,
    query: &[f32],
    open: &OpenArgs,
) -> Result<Vec<(f32, &'p Passage)>> {
    let bar = Bar::of_texts(open.quiet, Some(passages.len() as u64));
    let mut scored = Vec::with_capacity(passages.len());
    for batch in passages.chunks(BATCH) {
        bar.set(scored.len() as u64, passages.len() as u64);
        let texts: Vec<&str> = batch.iter().map(|passage| passage.text.as_str()).collect();
        for (vector, passage) in encoder.embed(&texts, options)?.iter().zip(batch) {
            scored.push((vector.iter().zip(query).map(|(x, y)| x * y).sum(), passage));
        }
    }
    Ok(scored)
}

fn print(score: f32, passage: &Passage, as_json: bool) -> Result<()> {
    let path = passage.path.display().to_string();
    if as_json {
        return output::json(
            &json!({"score": score, "path": path, "line": passage.line, "text": passage.text}),
        );
    }
    let words: Vec<&str> = passage.text.split_whitespace().collect();
    let text = words.join(" ").replace(char::is_control, "\u{fffd}");
    let end = text.char_indices().nth(EXCERPT).map(|(end, _)| end);
    let dots = if end.is_some() { "…" } else { "" };
    output::line(format_args!(
        "{score:.3}  {path}:{}\n       {}{dots}",
        passage.line,
        &text[..end.unwrap_or(text.len())]
    ))
}

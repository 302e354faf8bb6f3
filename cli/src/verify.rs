//! `siskin verify`: checks a file against its hashes.

use crate::options::{NoPackedFiles, OpenArgs};
use crate::output::{self, Bar};
use crate::{built_in_model, input_path};
use serde_json::json;
use siskin::Result;
use siskin::file::File;
use std::fmt::Write;
use std::path::PathBuf;

/// Verify every byte of a .siskin file against its hashes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The .siskin file
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let path = &*input_path::model(&args.file, open.quiet)?;
    let location = args.file.display().to_string();
    let file = match built_in_model::is_meant(path) {
        true => built_in_model::file()?,
        false => File::open(path)?,
    };
    {
        let bar = Bar::new(open.quiet);
        file.verify(&mut |done, total| {
            bar.set(done, total);
            true
        })
        .map_err(|error| error.within(&location))?;
    }
    let size = file.bytes().len() as u64;
    let identity = identity(&file);
    match args.json {
        true => output::json(&json!({"file": location, "bytes": size, "identity": identity, "intact": true})),
        false => output::line(format!("{location}: intact, {}, {identity}", output::bytes(size))),
    }
}

/// Returns the file's identity in hexadecimal.
pub(crate) fn identity(file: &File) -> String {
    file.identity().iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

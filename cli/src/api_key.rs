//! `siskin api-key`: makes an API key for `siskin serve`.

use crate::output;
use siskin::Result;
use siskin_serve::ApiKeys;

/// Make an API key for `siskin serve --api-key-file`
///
/// Prints lines to append to the file, which have the hash of the key, and to standard error the key itself: it is stored
/// nowhere.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the client, which shares the compute time with other clients
    name: String,
    /// Let the client load and unload models, and drain the server
    #[arg(long)]
    admin: bool,
}

pub(crate) fn command(args: &Args) -> Result<()> {
    let made = ApiKeys::generate(&args.name, args.admin)?;
    output::write(&made.entry)?;
    output::to_stderr(format!("the key of {}, shown only now: {}", args.name, made.key));
    Ok(())
}

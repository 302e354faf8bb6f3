//! `siskin serve`: the HTTP server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Args;
use crate::options::{OpenArgs, SamplerArgs};
use crate::{interrupt, output};
use siskin::serving::{Admission, SchedulingOptions, ServedModelOptions};
use siskin::{Error, KvBudget, Result};
use siskin_serve::{ServedModel, Server, ServerOptions};

/// Answers requests until the program is interrupted.
pub(super) fn run(paths: &[PathBuf], args: &Args, open: &OpenArgs) -> Result<()> {
    let options = ServerOptions {
        address: SocketAddr::new(args.host, args.port),
        threads: args.model_args.threads,
        max_tokens: args.max_tokens.unwrap_or(usize::MAX),
        ..ServerOptions::default()
    };
    options.check()?;
    let mut models = Vec::new();
    for path in paths {
        models.push(ServedModel {
            name: name(path)?,
            model: open.model(path, &args.model_args)?,
            options: served_model_options(args)?,
        });
    }
    let names: Vec<_> = models.iter().map(|model| model.name.clone()).collect();
    let server = Server::bind(&options, models)?;
    let shutdown = server.shutdown_handle();
    interrupt::listen_with(move || shutdown.shut_down())?;
    let note = format!("serving {} on http://{}", names.join(", "), server.address());
    output::note(open.quiet, note);
    server.run()
}

fn served_model_options(args: &Args) -> Result<ServedModelOptions> {
    if args.parallel == 0 {
        return Err(Error::argument("--parallel", "must be at least 1"));
    }
    let kv_budget = args.kv_memory.map(|megabytes| KvBudget { bytes: megabytes.saturating_mul(1 << 20) });
    Ok(ServedModelOptions {
        session: args.context.session(&args.model_args, &SamplerArgs::default(), &[])?,
        kv_budget,
        scheduling: SchedulingOptions {
            max_running: args.parallel,
            max_waiting: args.max_waiting,
            admission: Admission::Overcommit,
            ..SchedulingOptions::default()
        },
    })
}

/// Returns the name under which requests select a model: that of its file or folder.
fn name(path: &Path) -> Result<String> {
    // `.` and `..` have no name of their own.
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let named = if path.file_name().is_some() { path } else { &absolute };
    let name = if named.is_dir() { named.file_name() } else { named.file_stem() };
    let name = name.and_then(|name| name.to_str()).filter(|name| !name.is_empty());
    let message = "its file name is not UTF-8, so that no request can select it; rename it";
    name.map(str::to_owned).ok_or_else(|| Error::argument(path.display().to_string(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_names_of_their_files() {
        assert_eq!(name(Path::new("a/smollm2-q4_0.gguf")).unwrap(), "smollm2-q4_0");
        assert_eq!(name(Path::new("shakespeare")).unwrap(), "shakespeare");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(name(&folder.join("src/..")).unwrap(), name(folder).unwrap());
    }
}

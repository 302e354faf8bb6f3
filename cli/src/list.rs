//! `siskin list`: the models in the cache, and the aliases.

use crate::model_name;
use crate::options::NoPackedFiles;
use crate::output;
use serde_json::{Value, json};
use siskin::Result;
use siskin_hub::{Alias, CachedModel, FileDigest, Hub};
use std::time::{SystemTime, UNIX_EPOCH};

/// List the models in the cache, or the aliases
#[derive(clap::Args)]
pub(crate) struct Args {
    /// List the aliases: short names that `siskin pull` and all commands with a model take
    #[arg(long)]
    aliases: bool,
    /// Print a JSON object per model
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args) -> Result<()> {
    let hub = model_name::hub();
    match args.aliases {
        true => aliases(&hub, args.json),
        false => list_models(&hub, args.json),
    }
}

fn list_models(hub: &Hub, as_json: bool) -> Result<()> {
    let (models, aliases) = (hub.list(), hub.aliases()?);
    let alias_of = |model: &CachedModel| {
        aliases.iter().find(|alias| alias.model == model.name).map(|alias| alias.name.clone())
    };
    if as_json {
        let object = |model: &CachedModel| {
            json!({
                "name": model.name.to_string(),
                "alias": alias_of(model),
                "bytes": model.bytes,
                "path": model.path.display().to_string(),
                "downloaded": model.modified.and_then(seconds),
            })
        };
        return models.iter().map(object).try_for_each(|object| output::json(&object));
    }
    if models.is_empty() {
        output::to_stderr("no models in the cache");
    }
    let rows = models.iter().map(|model| {
        let alias = alias_of(model).unwrap_or_default();
        let age = model.modified.map(age).unwrap_or_default();
        [model.name.to_string(), alias, output::bytes(model.bytes), age]
    });
    print(["MODEL", "ALIAS", "SIZE", "DOWNLOADED"], rows.collect())
}

/// Lists the aliases.
pub(crate) fn aliases(hub: &Hub, as_json: bool) -> Result<()> {
    let all = hub.aliases()?;
    if as_json {
        let object = |alias: &Alias| -> Value {
            json!({
                "alias": alias.name,
                "name": alias.model.to_string(),
                "sha256": alias.sha256.as_ref().map(FileDigest::to_string),
                "license": alias.license,
            })
        };
        return all.iter().map(object).try_for_each(|object| output::json(&object));
    }
    let rows =
        all.into_iter().map(|alias| [alias.name, alias.model.to_string(), alias.license.unwrap_or_default()]);
    print(["ALIAS", "MODEL", "LICENSE"], rows.collect())
}

/// Prints a table with a header; nothing if it has no rows.
fn print<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let all: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in &all {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        output::line(cells.join("  ").trim_end())?;
    }
    Ok(())
}

fn seconds(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Returns how long ago a time was.
fn age(time: SystemTime) -> String {
    let seconds = time.elapsed().unwrap_or_default().as_secs();
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86400 => (seconds / 3600, "hour"),
        _ => (seconds / 86400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ages_are_rounded_down() {
        let ago = |seconds| age(SystemTime::now() - Duration::from_secs(seconds));
        for (seconds, text) in [
            (5, "just now"),
            (60, "1 minute ago"),
            (7300, "2 hours ago"),
            (90_000, "1 day ago"),
            (864_000, "10 days ago"),
        ] {
            assert_eq!(ago(seconds), text);
        }
        assert_eq!(age(SystemTime::now() + Duration::from_secs(100)), "just now");
    }
}

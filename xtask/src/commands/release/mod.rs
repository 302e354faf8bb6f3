//! `release`: the files of a version, built twice from clean clones, compared, checked, listed and signed.

mod command;
mod crates;
mod debian;
mod install;
mod listing;
mod passes;
mod sbom;
mod targets;
mod wheels;

use crate::Subcommand;
use crate::shell::{self, Result, output, program};
use listing::Signing;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "release",
    usage: "VERSION --to DIR (--key FILE | --unsigned) [--once] [PART]…",
    about: "build the files of a release from clean clones of HEAD, twice, and compare, check, list and sign them; \
            parts: command, wheels, debian, crates",
    run: release,
};
const USAGE: &str = "usage: cargo xtask release VERSION --to DIR (--key FILE | --unsigned) [--once] [PART]…";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A part of a release.
struct Part {
    name: &'static str,
    need_tools: fn() -> Result,
    /// Builds its files into a folder.
    build: fn(&Path) -> Result,
    /// Checks its files in that folder.
    check: fn(&Path) -> Result,
}

const PARTS: [Part; 4] = [command::PART, wheels::PART, debian::PART, crates::PART];

/// What the command line asks for.
struct Options {
    to: PathBuf,
    /// The secret key; without it, the release is not signed.
    key: Option<PathBuf>,
    /// Whether the second build is left out.
    once: bool,
    parts: Vec<&'static Part>,
}

fn release(arguments: &[String]) -> Result {
    if let [version, flag, to, names @ ..] = arguments
        && flag == passes::FLAG
    {
        of_workspace(version)?;
        return parts(names)?.iter().try_for_each(|part| (part.build)(Path::new(to)));
    }
    let options = options(arguments)?;
    ready(&options)?;
    for part in &options.parts {
        (part.need_tools)()?;
    }
    sbom::need_tools()?;
    listing::need_tools()?;
    install::need_tools()?;
    let commit = passes::commit()?;
    let signing = options.key.map_or(Ok(Signing::Without), Signing::with)?;
    let built = passes::build(&options.parts, if options.once { 1 } else { 2 })?;
    for part in &options.parts {
        (part.check)(built.files())?;
    }
    fs::create_dir_all(&options.to).map_err(|error| format!("{}: {error}", options.to.display()))?;
    for file in files(built.files())? {
        copy(&file, &options.to)?;
    }
    sbom::write(&options.parts, &built.source(), &options.to)?;
    install::write(&options.to, &signing)?;
    listing::write(&options.to, &commit)?;
    if options.parts.iter().any(|part| part.name == command::PART.name) {
        install::check(&options.to)?;
    }
    match passes::commit()? == commit {
        true => listing::sign(&options.to, &signing)?,
        false => return Err(format!("HEAD is no longer {commit}; release again")),
    }
    listing::print(&options.to)
}

/// Returns the parts with these names, or all.
fn parts(names: &[String]) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|part| part.name != name.as_str())) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        return Err(format!("no part `{unknown}`; there are {}", known.join(", ")));
    }
    let wanted = |part: &&Part| names.is_empty() || names.iter().any(|name| name == part.name);
    Ok(PARTS.iter().filter(wanted).collect())
}

fn options(arguments: &[String]) -> Result<Options> {
    let (mut to, mut key, mut is_unsigned, mut once, mut words) = (None, None, false, false, Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let mut value = || {
            let value = rest.next().filter(|value| !value.starts_with('-'));
            value.map(PathBuf::from).ok_or_else(|| format!("{word} needs a value. {USAGE}"))
        };
        match word.as_str() {
            "--to" => to = Some(value()?),
            "--key" => key = Some(value()?),
            "--unsigned" => is_unsigned = true,
            "--once" => once = true,
            option if option.starts_with('-') => return Err(format!("no option `{option}`. {USAGE}")),
            _ => words.push(word.clone()),
        }
    }
    let (Some((version, names)), Some(to)) = (words.split_first(), to) else {
        return Err(USAGE.to_owned());
    };
    if is_unsigned == key.is_some() || once && key.is_some() {
        return Err(format!("give either --key, or --unsigned with or without --once. {USAGE}"));
    }
    of_workspace(version)?;
    let here = std::env::current_dir().map_err(|error| format!("the working folder: {error}"))?;
    let key = key.map(|key| here.join(key));
    Ok(Options { to: here.join(to), key, once, parts: parts(names)? })
}

fn of_workspace(version: &str) -> Result {
    match version {
        VERSION => Ok(()),
        _ => Err(format!("the workspace has version {VERSION}; set `version` in Cargo.toml to {version}")),
    }
}

/// Checks what a release requires of the checkout and of its target folder.
fn ready(options: &Options) -> Result {
    let to = &options.to;
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{} is not empty; give a new folder with --to", to.display()));
    }
    if options.key.is_none() {
        return Ok(());
    }
    let changed = output(&mut program("git", &["status", "--porcelain"]))?;
    if !changed.is_empty() {
        return Err(format!("a signed release needs a clean checkout; uncommitted:\n{}", changed.trim_end()));
    }
    let heading = format!("## [{VERSION}]");
    let changelog = shell::root().join("CHANGELOG.md");
    let text = fs::read_to_string(&changelog).map_err(|error| format!("CHANGELOG.md: {error}"))?;
    match text.lines().any(|line| line.starts_with(&heading)) {
        true => Ok(()),
        false => Err(format!("CHANGELOG.md has no section `{heading}`; rename `## [Unreleased]`")),
    }
}

/// Returns the files in a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// Copies a file into a folder.
fn copy(file: &Path, folder: &Path) -> Result {
    let to = folder.join(file.file_name().unwrap_or_default());
    fs::copy(file, &to).map(drop).map_err(|error| format!("{}: {error}", file.display()))
}

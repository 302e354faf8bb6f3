//! The list of a release's files with their hashes, and its signature.

use super::{VERSION, files};
use crate::shell::{Result, name, output, program, run};
use crate::tools;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SUMS: &str = "SHA256SUMS";
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "SHA256SUMS.minisig";

/// How a release is signed.
pub(super) enum Signing {
    /// With a key of minisign: the file of the secret one, and the public one as minisign's option `-P` takes it.
    Key { secret: PathBuf, public: String },
    /// Not at all, for trials.
    Without,
}

impl Signing {
    /// Reads a secret key; minisign asks for its password.
    pub(super) fn with(secret: PathBuf) -> Result<Self> {
        need_tools()?;
        let path = std::env::temp_dir().join(format!("siskin-release-{}.pub", std::process::id()));
        let mut recreate = program("minisign", &["-R", "-f", "-s"]);
        run(recreate.arg(&secret).arg("-p").arg(&path).stdin(Stdio::inherit()))?;
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
        let _ = fs::remove_file(&path);
        let text = text?;
        let public = text.lines().nth(1).ok_or("minisign wrote no public key")?.to_owned();
        Ok(Self::Key { secret, public })
    }

    pub(super) fn public_key(&self) -> &str {
        match self {
            Self::Key { public, .. } => public,
            Self::Without => "",
        }
    }
}

/// Ensures that the tools are installed.
pub(super) fn need_tools() -> Result {
    tools::debian(&[("/usr/bin/minisign".to_owned(), "minisign")])
}

/// Writes the list in the form of `sha256sum` and as JSON.
pub(super) fn write(to: &Path, commit: &str) -> Result {
    let (mut sums, mut rows) = (String::new(), Vec::new());
    for (name, hash, bytes) in hashes(to)? {
        let _ = writeln!(sums, "{hash}  {name}");
        rows.push(format!("    {{\"name\": \"{name}\", \"bytes\": {bytes}, \"sha256\": \"{hash}\"}}"));
    }
    let manifest = format!(
        "{{\n  \"version\": \"{VERSION}\",\n  \"commit\": \"{}\",\n  \"files\": [\n{}\n  ]\n}}\n",
        commit,
        rows.join(",\n")
    );
    let written = |name: &str, text: &str| {
        fs::write(to.join(name), text).map_err(|error| format!("{}: {error}", to.join(name).display()))
    };
    written(MANIFEST, &manifest)?;
    let _ = writeln!(sums, "{}  {MANIFEST}", hash(&to.join(MANIFEST))?);
    written(SUMS, &sums)
}

/// Signs the list.
pub(super) fn sign(to: &Path, signing: &Signing) -> Result {
    let Signing::Key { secret, public } = signing else { return Ok(()) };
    let comment = format!("siskin {VERSION}");
    let mut sign = program("minisign", &["-S", "-t", &comment, "-s"]);
    sign.arg(secret).arg("-m").arg(to.join(SUMS)).arg("-x").arg(to.join(SIGNATURE));
    run(sign.stdin(Stdio::inherit()))?;
    let mut verify = program("minisign", &["-V", "-q", "-P", public, "-m"]);
    run(verify.arg(to.join(SUMS)).arg("-x").arg(to.join(SIGNATURE)))
}

/// Prints the files.
pub(super) fn print(to: &Path) -> Result {
    println!("\n{:<64} {:>12}", "file", "bytes");
    for file in files(to)? {
        let bytes = fs::metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?.len();
        println!("{:<64} {bytes:>12}", name(&file));
    }
    Ok(())
}

/// Returns the name, hash and size of each file.
fn hashes(folder: &Path) -> Result<Vec<(String, String, u64)>> {
    let row = |file: &PathBuf| {
        let bytes = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
        Ok((name(file), hash(file)?, bytes))
    };
    files(folder)?.iter().map(row).collect()
}

fn hash(file: &Path) -> Result<String> {
    let line = output(program("sha256sum", &["--"]).arg(file))?;
    let hash = line.split_whitespace().next().ok_or("sha256sum printed nothing")?;
    Ok(hash.to_owned())
}

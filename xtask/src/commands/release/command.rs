//! The command as a static program in an archive, for machines with any C library or none.

use super::targets::{ARCHITECTURES, Architecture, FEATURES, own};
use super::{Part, VERSION, sbom};
use crate::shell::{self, Result, output, program, run};
use crate::systems::System;
use crate::{cross_compile, tools, zig};
use std::fs;
use std::path::Path;

pub(super) const PART: Part = Part { name: "command", need_tools, build, check };

/// What the command prints about itself, and the place of it.
const GENERATED: [(&[&str], &str); 4] = [
    (&["man"], "share/man/man1/siskin.1"),
    (&["completions", "bash"], "share/bash-completion/completions/siskin"),
    (&["completions", "zsh"], "share/zsh/site-functions/_siskin"),
    (&["completions", "fish"], "share/fish/vendor_completions.d/siskin.fish"),
];
/// The file with the licenses of dependencies.
const LICENSES: &str = "THIRD-PARTY-LICENSES";
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "docs/cli.md"];

fn need_tools() -> Result {
    zig::need_tools()?;
    tools::cargo_tool("cargo-auditable", "0.7.7", &[])?;
    for architecture in &ARCHITECTURES {
        cross_compile::add_std(architecture.target)?;
    }
    tools::debian(&[("/usr/bin/readelf".to_owned(), "binutils")])
}

/// Returns the name of an archive, which is that of the folder in it.
fn name(architecture: &Architecture) -> String {
    format!("siskin-{VERSION}-linux-{}", architecture.name)
}

fn build(to: &Path) -> Result {
    for architecture in &ARCHITECTURES {
        // Lists its dependencies in a section of the program.
        let mut cargo = zig::cargo(&["auditable", "zigbuild", "--profile=ship", "--locked"])?;
        cargo.args(["--package=siskin-cli", "--target", architecture.target]).args(FEATURES);
        run(&mut cargo)?;
    }
    let built = |architecture: &Architecture| shell::built(architecture.target).join("ship/siskin");
    let own = built(own()?);
    sbom::licenses(&shell::built(LICENSES), ARCHITECTURES[0].target)?;
    ARCHITECTURES.iter().try_for_each(|architecture| archive(architecture, &built(architecture), &own, to))
}

/// Packs a program, with what `own`, which runs here, prints about itself.
fn archive(architecture: &Architecture, built: &Path, own: &Path, to: &Path) -> Result {
    let name = name(architecture);
    let stage = shell::built("release-stage");
    let folder = stage.join(&name);
    let _ = fs::remove_dir_all(&folder);
    let place = |path: &str| {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        Ok::<_, String>(path)
    };
    run(program("install", &["-m", "755"]).arg(built).arg(place("bin/siskin")?))?;
    for (arguments, path) in GENERATED {
        let path = place(path)?;
        let text = output(&mut program(own, arguments))?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let licenses = shell::built(LICENSES);
    for document in DOCUMENTS.map(Path::new).into_iter().chain([licenses.as_path()]) {
        let to = place("share/doc/siskin")?.join(document.file_name().unwrap_or_default());
        run(program("install", &["-D", "-m", "644"]).arg(document).arg(to))?;
    }
    // Names sorted, with one time and owner: the same bytes each time.
    let script = "chmod -R u=rwX,go=rX \"$1\" && tar --sort=name --mtime=@\"$SOURCE_DATE_EPOCH\" --owner=0 --group=0 \
                  --numeric-owner --format=gnu -cf - \"$1\" | gzip -9n > \"$2\"";
    let mut tar = program("sh", &["-c", script, "sh", &name]);
    run(tar.arg(to.join(format!("{name}.tar.gz"))).current_dir(&stage))
}

/// Runs the programs in empty systems, where they must give the text of the build of the tests.
fn check(built: &Path) -> Result {
    const WORDS: [&str; 7] =
        ["run", "shakespeare", "ROMEO:", "--seed=7", "--max-tokens=40", "--quiet", "--no-cache"];
    let expected = output(shell::member("siskin").args(WORDS))?;
    for architecture in &ARCHITECTURES {
        let system = System::empty(architecture.name, shell::built("empty"))?;
        let name = name(architecture);
        let mut unpack = program("tar", &["--strip-components=2", "-xzf"]);
        unpack.arg(built.join(format!("{name}.tar.gz"))).arg("-C").arg(system.folder());
        run(unpack.arg(format!("{name}/bin/siskin")))?;
        let headers = output(program("readelf", &["--program-headers"]).arg(system.folder().join("siskin")))?;
        if headers.contains("INTERP") {
            return Err(format!("{name}: the program is not static"));
        }
        let found = output(system.program(&["/siskin"]).args(WORDS))?;
        if found != expected || found.is_empty() {
            return Err(format!("{name}: in an empty system it prints\n{found}\nand here\n{expected}"));
        }
        println!("{name}: static; in an empty system it prints the same {} bytes as here", found.len());
    }
    Ok(())
}

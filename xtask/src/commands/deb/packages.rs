//! Builds reproducible Debian packages.

use super::machine::DebArchitecture;
use crate::shell::{self, Result, output, program, run, said};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A built package.
pub(super) struct DebPackage {
    pub(super) name: &'static str,
    pub(super) machine: &'static str,
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    /// The minimum version of the C library that its programs need.
    pub(super) c_library: Version,
}

impl DebPackage {
    /// Reads a package of this version in a folder.
    pub(super) fn read(name: &'static str, machine: &DebArchitecture, folder: &Path) -> Result<Self> {
        let file = folder.join(file_name(name, machine));
        let bytes = fs::metadata(&file).map_err(said(&file))?.len();
        let depends = output(program("dpkg-deb", &["--field"]).arg(&file).arg("Depends"))?;
        let needed = depends.split("libc6 (>= ").nth(1).and_then(|rest| rest.split(')').next());
        let version = needed.and_then(|version| version.split_once('.'));
        let c_library = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        Ok(Self { name, machine: machine.name, file, bytes, c_library: c_library.unwrap_or_default() })
    }
}

fn file_name(name: &str, machine: &DebArchitecture) -> String {
    format!("{name}_{VERSION}_{}.deb", machine.name)
}

/// A version of the C library.
pub(super) type Version = (u32, u32);

/// The packages of the shared library, of its development files, and of the command.
pub(super) const NAMES: [&str; 3] = ["libsiskin0", "libsiskin-dev", "siskin"];
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
const TEMPLATES: &str = "linux/debian";
/// Optional control files of a package, and their modes.
const CONTROL: [(&str, &str); 5] =
    [("triggers", "644"), ("conffiles", "644"), ("postinst", "755"), ("prerm", "755"), ("postrm", "755")];

/// What the command prints about itself, and where packages install it.
const GENERATED: [(&[&str], &str); 4] = [
    (&["man"], "usr/share/man/man1/siskin.1"),
    (&["completions", "bash"], "usr/share/bash-completion/completions/siskin"),
    (&["completions", "zsh"], "usr/share/zsh/vendor-completions/_siskin"),
    (&["completions", "fish"], "usr/share/fish/vendor_completions.d/siskin.fish"),
];

/// Builds the packages of an architecture twice, and fails if they differ.
pub(super) fn pack(machine: &DebArchitecture, built: &Path, folder: &Path) -> Result<Vec<DebPackage>> {
    let changelog = |field: &str| {
        let list = format!("-l{TEMPLATES}/changelog");
        output(&mut program("dpkg-parsechangelog", &[&list, "-S", field])).map(|text| text.trim().to_owned())
    };
    let newest = changelog("Version")?;
    if newest != VERSION {
        return Err(format!("{TEMPLATES}/changelog ends at {newest}; begin it with {VERSION}"));
    }
    let stage = Stage { machine, built, time: changelog("Timestamp")? };
    let (first, second) = (tree(folder, machine), folder.join(format!("again-{}", machine.name)));
    let made = stage.pack(&first, folder)?;
    for (package, again) in made.iter().zip(stage.pack(&second, &second.join("made"))?) {
        let [one, other] = [&package.file, &again.file].map(|path| fs::read(path).map_err(said(path)));
        if one? != other? {
            return Err(format!("{} differs when it is rebuilt", package.file.display()));
        }
    }
    fs::remove_dir_all(&second).map_err(said(&second))?;
    println!("{}: {} packages, byte-identical when rebuilt", machine.name, made.len());
    Ok(made)
}

/// Returns the staging folder of an architecture's packages; each package is a subfolder.
pub(super) fn tree(folder: &Path, machine: &DebArchitecture) -> PathBuf {
    folder.join("tree").join(machine.name)
}

/// Returns the shared library in an architecture's packages.
pub(super) fn library(folder: &Path, machine: &DebArchitecture) -> PathBuf {
    let place = tree(folder, machine).join("libsiskin0/usr/lib").join(machine.multiarch);
    place.join(format!("libsiskin.so.{VERSION}"))
}

/// Stages packages.
struct Stage<'a> {
    machine: &'a DebArchitecture,
    built: &'a Path,
    /// The modification time of all files, in seconds.
    time: String,
}

impl Stage<'_> {
    fn pack(&self, tree: &Path, to: &Path) -> Result<Vec<DebPackage>> {
        if tree.exists() {
            fs::remove_dir_all(tree).map_err(said(tree))?;
        }
        fs::create_dir_all(to).map_err(said(to))?;
        self.library(tree)?;
        self.command(&tree.join("siskin"))?;
        NAMES.iter().map(|name| self.close(name, &tree.join(name), to)).collect()
    }

    /// Installs the files of the library with its Makefile.
    fn library(&self, tree: &Path) -> Result {
        let (library, development) = (tree.join("libsiskin0"), tree.join("libsiskin-dev"));
        let folder = format!("usr/lib/{}", self.machine.multiarch);
        let mut make = program("make", &["--silent", "-C", "ffi", "install", "PREFIX=/usr", "CARGO=true"]);
        make.arg(format!("built={}", self.built.display())).arg(format!("LIBDIR=/{folder}"));
        run(make.arg(format!("DESTDIR={}", development.display())))?;
        let place = library.join(&folder);
        fs::create_dir_all(&place).map_err(said(&place))?;
        let major = VERSION.split('.').next().unwrap_or_default();
        for name in [format!("libsiskin.so.{VERSION}"), format!("libsiskin.so.{major}")] {
            let from = development.join(&folder).join(&name);
            fs::rename(&from, place.join(&name)).map_err(said(&from))?;
        }
        // Debian's shared libraries are not marked executable.
        run(program("chmod", &["644"]).arg(place.join(format!("libsiskin.so.{VERSION}"))))?;
        let example = "usr/share/doc/libsiskin-dev/examples/chat.c";
        install("644", &shell::root().join("examples/c/chat.c"), &development.join(example))?;
        install(
            "644",
            &shell::root().join("docs/abi.md"),
            &development.join("usr/share/doc/libsiskin-dev/abi.md"),
        )
    }

    /// Installs the files of the command and its service.
    fn command(&self, tree: &Path) -> Result {
        install("755", &self.built.join("siskin"), &tree.join("usr/bin/siskin"))?;
        let root = shell::root();
        let rows = [
            ("linux/systemd/siskin.socket", "lib/systemd/system/siskin.socket"),
            ("linux/systemd/siskin@.service", "lib/systemd/system/siskin@.service"),
            ("linux/systemd/siskin-http.socket", "lib/systemd/system/siskin-http.socket"),
            ("linux/systemd/siskin-http.service", "lib/systemd/system/siskin-http.service"),
            ("linux/debian/siskin.conf", "etc/siskin/siskin.conf"),
            ("linux/debian/siskin-http.conf", "etc/siskin/siskin-http.conf"),
            ("docs/cli.md", "usr/share/doc/siskin/cli.md"),
            ("docs/linux.md", "usr/share/doc/siskin/linux.md"),
        ];
        for (from, to) in rows {
            install("644", &root.join(from), &tree.join(to))?;
        }
        for (arguments, to) in GENERATED {
            let (text, to) = (output(shell::member("siskin").args(arguments))?, tree.join(to));
            let folder = to.parent().unwrap_or(tree);
            fs::create_dir_all(folder).map_err(said(folder))?;
            fs::write(&to, text).map_err(said(&to))?;
        }
        run(program("gzip", &["-9n"]).arg(tree.join("usr/share/man/man1/siskin.1")))?;
        let models = tree.join("var/lib/siskin");
        fs::create_dir_all(&models).map_err(said(&models))
    }

    /// Adds the files that every package has, and builds the package.
    fn close(&self, name: &'static str, tree: &Path, to: &Path) -> Result<DebPackage> {
        let (templates, control) = (shell::root().join(TEMPLATES), tree.join("DEBIAN"));
        let documents = tree.join("usr/share/doc").join(name);
        install("644", &templates.join("copyright"), &documents.join("copyright"))?;
        fill(&documents.join("copyright"), &[("@MIT@", &license()?)])?;
        install("644", &templates.join("changelog"), &documents.join("changelog"))?;
        run(program("gzip", &["-9n"]).arg(documents.join("changelog")))?;
        install("644", &templates.join(format!("{name}.control")), &control.join("control"))?;
        for (part, mode) in CONTROL {
            let template = templates.join(format!("{name}.{part}"));
            if template.exists() {
                install(mode, &template, &control.join(part))?;
            }
        }
        let facts = Facts::of(tree)?;
        let newest = facts.programs.iter().map(|program| newest_of_c(program)).collect::<Result<Vec<_>>>()?;
        let c_library = newest.into_iter().max().unwrap_or_default();
        let depends = match facts.programs.as_slice() {
            [] => String::new(),
            programs => self.depends(programs, c_library)?,
        };
        let size = facts.kibibytes.to_string();
        let filled = [
            ("@VERSION@", VERSION),
            ("@ARCH@", self.machine.name),
            ("@SIZE@", &size),
            ("@DEPENDS@", &depends),
        ];
        fill(&control.join("control"), &filled)?;
        if name == "libsiskin0" {
            let major = VERSION.split('.').next().unwrap_or_default();
            // A new function requires the version that added it: before 1.0, nothing weaker is promised.
            let line = format!("libsiskin {major} libsiskin0 (>= {VERSION})\n");
            fs::write(control.join("shlibs"), line).map_err(said(&control))?;
        }
        let sums = "find * -type f ! -path 'DEBIAN/*' ! -path 'etc/*' | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums";
        run(program("sh", &["-c", sums]).current_dir(tree))?;
        let file = self.make(name, tree, to)?;
        let bytes = fs::metadata(&file).map_err(said(&file))?.len();
        Ok(DebPackage { name, machine: self.machine.name, file, bytes, c_library })
    }

    fn make(&self, name: &'static str, tree: &Path, to: &Path) -> Result<PathBuf> {
        let even = format!(
            "find . -type d -exec chmod 755 {{}} + && chmod 644 DEBIAN/md5sums && \
            find . -exec touch --no-dereference --date=@{} {{}} +",
            self.time
        );
        run(program("sh", &["-c", &even]).current_dir(tree))?;
        let file = to.join(file_name(name, self.machine));
        let mut make = program("dpkg-deb", &["--root-owner-group", "-Zxz", "--build"]);
        run(make.arg(tree).arg(&file).env("SOURCE_DATE_EPOCH", &self.time))?;
        Ok(file)
    }

    /// Returns the dependencies of programs, with versions.
    fn depends(&self, programs: &[PathBuf], c_library: Version) -> Result<String> {
        let newest = format!("libc6 (>= {}.{})", c_library.0, c_library.1);
        let folder = self.built.join("shlibdeps");
        let control = folder.join("debian/control");
        fs::create_dir_all(folder.join("debian")).map_err(said(&folder))?;
        fs::write(&control, "Source: siskin\n\nPackage: siskin\nArchitecture: any\n")
            .map_err(said(&control))?;
        let own = self.machine.is_own();
        let mut command = match own {
            true => program("dpkg-shlibdeps", &["-O"]),
            false => self.for_machine(),
        };
        let said = output(command.args(programs).current_dir(&folder))?;
        let depends = said.trim().trim_start_matches("shlibs:Depends=");
        if own && !depends.split(", ").any(|part| part == newest) {
            return Err(format!("dpkg-shlibdeps says `{depends}`, and the programs themselves `{newest}`"));
        }
        // Cross-compilation packages have other names, and only their own version of the C library.
        let parts = depends.split(", ").map(|part| match part.strip_prefix("libc6") {
            Some(_) => newest.clone(),
            None => {
                let (qualified, cross) =
                    (format!(":{}", self.machine.name), format!("-{}-cross", self.machine.name));
                part.replace(&qualified, "").replace(&cross, "")
            }
        });
        Ok(parts.collect::<Vec<_>>().join(", "))
    }

    /// Returns the same program for libraries of another architecture.
    fn for_machine(&self) -> Command {
        let machine = self.machine;
        let mut command = program("dpkg-architecture", &[&format!("-a{}", machine.name), "-c"]);
        command.args(["dpkg-shlibdeps", "-O"]).arg(format!("-l/usr/{}/lib", machine.multiarch));
        command.env("CC", machine.compiler());
        command
    }
}

/// Returns the newest version of the C library's functions that a program uses.
fn newest_of_c(file: &Path) -> Result<Version> {
    let said = output(program("readelf", &["--version-info", "--wide"]).arg(file))?;
    let versions = said.split_whitespace().filter_map(|word| {
        let (major, minor) = word.strip_prefix("GLIBC_")?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max().ok_or_else(|| format!("{} uses no C library", file.display()))
}

/// Facts about a file tree.
#[derive(Default)]
struct Facts {
    /// Installed size as dpkg counts it: file sizes rounded up to KiB, one KiB for everything else.
    kibibytes: u64,
    /// Dynamically linked files.
    programs: Vec<PathBuf>,
}

impl Facts {
    fn of(tree: &Path) -> Result<Self> {
        let mut facts = Self::default();
        facts.add(tree)?;
        facts.programs.sort();
        Ok(facts)
    }

    fn add(&mut self, folder: &Path) -> Result {
        for entry in fs::read_dir(folder).map_err(said(folder))? {
            let path = entry.map_err(said(folder))?.path();
            let facts = fs::symlink_metadata(&path).map_err(said(&path))?;
            if path.ends_with("DEBIAN") {
                continue;
            }
            self.kibibytes += if facts.is_file() { facts.len().div_ceil(1024) } else { 1 };
            if facts.is_dir() {
                self.add(&path)?;
            } else if facts.is_file() && fs::read(&path).map_err(said(&path))?.starts_with(b"\x7fELF") {
                self.programs.push(path);
            }
        }
        Ok(())
    }
}

/// Returns the text of the license in the form of a copyright file.
fn license() -> Result<String> {
    let path = shell::root().join("LICENSE-MIT");
    let text = fs::read_to_string(&path).map_err(said(&path))?;
    let lines = text
        .trim_end()
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Substitutes values for names in a file.
fn fill(path: &Path, values: &[(&str, &str)]) -> Result {
    let mut text = fs::read_to_string(path).map_err(said(path))?;
    for (name, value) in values {
        text = text.replace(name, value);
    }
    fs::write(path, text).map_err(said(path))
}

pub(super) fn install(mode: &str, from: &Path, to: &Path) -> Result {
    shell::output(program("install", &["-D", "-m", mode]).arg(from).arg(to)).map(drop)
}

/// Runs lintian on the packages, if it is installed.
pub(super) fn lint(packages: &[DebPackage]) -> Result {
    if let Err(why) = tools::debian(&[("/usr/bin/lintian".to_owned(), "lintian")]) {
        println!("not looked at by lintian: {why}");
        return Ok(());
    }
    let mut lintian = program("lintian", &["--fail-on", "error", "--allow-root"]);
    run(lintian.args(packages.iter().map(|package| &package.file)))
}

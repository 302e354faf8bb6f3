//! Swift on Linux: the machine's own, or Debian 13's in a root file system under the target folder.

use crate::shell::{self, Result, output, program, run, succeeds};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian release that Swift is taken from.
const SUITE: &str = "trixie";
/// Swift, and the packages that it needs to link programs.
const PACKAGES: [&str; 4] = ["swiftlang", "libc6-dev", "libstdc++-14-dev", "ca-certificates"];
/// Files of the packages that are left out: debuggers, language servers, manuals. They are a third of the whole.
const LEFT_OUT: [&str; 10] = [
    "/usr/libexec/swift/bin/lldb*",
    "/usr/libexec/swift/bin/clangd*",
    "/usr/libexec/swift/bin/sourcekit-lsp*",
    "/usr/libexec/swift/lib/liblldb*",
    "/usr/libexec/swift/lib/libsourcekitd*",
    "/usr/libexec/swift/lib/swift_static/*",
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
];
/// The marker file of a complete root. Its name changes when the requirements on roots change.
const WHOLE: &str = "siskin-root-1";
/// A script in the root.
const SCRIPT: &str = "siskin-inside.sh";
/// The content of the script, which runs a command in a root. Its arguments are the path of the root, the folders that
/// are visible in it as they are outside, `--`, and the command. Mounts end with the last of its processes.
const INSIDE: &str = r#"set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
shift
exec chroot "$root" "$@"
"#;

/// Where Swift runs.
pub(crate) enum Swift {
    /// On this machine.
    Here,
    /// In a root.
    Inside(PathBuf),
}

impl Swift {
    /// Returns the machine's Swift, or the one in the root under `folder`, which is created if missing. If that is
    /// impossible, returns an error that says what to do.
    pub(crate) fn find(folder: &Path) -> Result<Self> {
        if succeeds(&mut program("swift", &["--version"])) {
            return Ok(Self::Here);
        }
        let advice = "there is no `swift` on the path; install Swift 6.0 or newer";
        if !cfg!(target_os = "linux") || !output(&mut program("id", &["-u"])).is_ok_and(|id| id.trim() == "0")
        {
            return Err(format!(
                "{advice}, or run as root on Debian, so that one can be made in {}",
                folder.display()
            ));
        }
        if !succeeds(&mut program("unshare", &["--mount", "--propagation", "private", "true"])) {
            return Err(format!("{advice}: this user may not mount file systems"));
        }
        let root = folder.join("root");
        if !root.join(WHOLE).exists() {
            make(&root)?;
        }
        Ok(Self::Inside(root))
    }

    /// Returns a command that runs `swift` at the root of the workspace, with these variables and access to the
    /// folders.
    pub(crate) fn command(&self, folders: &[&Path], variables: &[(&str, String)]) -> Command {
        match self {
            Self::Here => {
                let mut command = program("swift", &[]);
                command.envs(variables.iter().map(|(name, value)| (name, value)));
                command
            }
            Self::Inside(root) => {
                let mut command = inside(root, folders);
                command.args(["/usr/bin/env", "-i", "--chdir"]).arg(shell::root());
                command.args(["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"]);
                command.args(variables.iter().map(|(name, value)| format!("{name}={value}"))).arg("swift");
                command
            }
        }
    }
}

/// Returns a command in a root with access to the machine's folders.
fn inside(root: &Path, folders: &[&Path]) -> Command {
    let mut command = program("unshare", &["--mount", "--propagation", "private", "sh"]);
    command.arg(root.join(SCRIPT)).arg(root).args(folders).arg("--");
    command
}

/// Creates a root. An incomplete root is created again.
fn make(root: &Path) -> Result {
    let failed = |error: std::io::Error| format!("{}: {error}", root.display());
    tools::debian(&[("/usr/sbin/debootstrap".to_owned(), "debootstrap")])?;
    if root.exists() {
        fs::remove_dir_all(root).map_err(failed)?;
    }
    fs::create_dir_all(root).map_err(failed)?;
    println!("making a Debian root with Swift in {}: two minutes, 600 MB to load, 2 GB", root.display());
    let mut command = program("debootstrap", &["--variant=minbase", SUITE]);
    command.arg(root).args(mirror());
    run(&mut command)?;
    let excluded: String = LEFT_OUT.iter().map(|path| format!("path-exclude={path}\n")).collect();
    // These files need no protection against power loss.
    let settings = format!("force-unsafe-io\n{excluded}");
    fs::write(root.join("etc/dpkg/dpkg.cfg.d/siskin"), settings).map_err(failed)?;
    for name in ["/etc/resolv.conf", "/etc/hosts"] {
        if let Ok(text) = fs::read(name) {
            fs::write(root.join(&name[1..]), text).map_err(failed)?;
        }
    }
    fs::write(root.join(SCRIPT), INSIDE).map_err(failed)?;
    let apt = |arguments: &[&str]| {
        let mut command = inside(root, &[]);
        command.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
        run(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&[&["install", "-y", "-q", "--no-install-recommends"], &PACKAGES[..]].concat())?;
    apt(&["clean"])?;
    let lists = root.join("var/lib/apt/lists");
    fs::remove_dir_all(&lists).map_err(|error| format!("{}: {error}", lists.display()))?;
    fs::write(root.join(WHOLE), "").map_err(failed)
}

/// Returns the mirror that this machine gets its own packages from, if known.
fn mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(more.map(|entry| entry.path()).filter(|path| is_list(path)));
    files.sort();
    files.iter().filter_map(|path| fs::read_to_string(path).ok()).find_map(|text| mirror_in(&text))
}

fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "list" || end == "sources")
}

/// Returns the first address of Debian's own packages in a list of sources, in the old or the new format.
fn mirror_in(text: &str) -> Option<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let words = lines.flat_map(str::split_whitespace).filter(|word| word.contains("://"));
    words.map(|word| word.trim_end_matches('/')).find(|word| word.ends_with("/debian")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_found_in_both_forms() {
        let new =
            "Types: deb\n# http://a/debian\nURIs: http://s/debian-security http://b/debian/\nSuites: x\n";
        let old = "# deb http://a/debian x main\ndeb [signed-by=/k] https://c/debian x main\n";
        assert_eq!(mirror_in(new).as_deref(), Some("http://b/debian"));
        assert_eq!(mirror_in(old).as_deref(), Some("https://c/debian"));
        assert_eq!(mirror_in("deb http://ubuntu.example/ubuntu x main\n"), None);
    }
}

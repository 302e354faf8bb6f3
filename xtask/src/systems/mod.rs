//! Fresh systems in folders of this machine: empty ones, and those of Debian.

pub(crate) mod emulator;

use crate::shell::{Result, output, program, run, said};
use crate::tools;
use emulator::Emulator;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that downloads files like apt.
const HELPER: &str = "/usr/lib/apt/apt-helper";
/// All variables that programs in a system have.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
    ("LC_ALL", "C.UTF-8"),
    ("HOME", "/root"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Debian's name of this machine's architecture.
pub(crate) const OWN: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// A system in a folder, which is removed on drop.
pub(crate) struct System {
    folder: PathBuf,
    // Dropped last.
    _emulator: Emulator,
}

impl System {
    /// Makes an empty system for programs of an architecture, by Debian's name.
    pub(crate) fn empty(architecture: &str, folder: PathBuf) -> Result<Self> {
        need_root()?;
        let system = Self { _emulator: Emulator::begin(architecture)?, folder };
        system.remove()?;
        fs::create_dir_all(&system.folder).map_err(said(&system.folder))?;
        Ok(system)
    }

    /// Makes a system of a Debian release: the essential packages, apt and these packages.
    pub(crate) fn debian(
        architecture: &str,
        release: &str,
        packages: &[&str],
        folder: PathBuf,
    ) -> Result<Self> {
        let system = Self::empty(architecture, folder)?;
        let sources = system.folder.with_extension("sources");
        fs::write(&sources, sources_list(release)?).map_err(said(&sources))?;
        let mut make =
            program("mmdebstrap", &["--quiet", "--mode=root", "--variant=apt", "--skip=cleanup/apt/lists"]);
        if !packages.is_empty() {
            make.arg(format!("--include={}", packages.join(",")));
        }
        make.arg(format!("--architectures={architecture}")).arg(release);
        run(make.arg(&system.folder).arg(&sources))?;
        Ok(system)
    }

    /// The folder that is the system's root.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that runs a program in the system.
    pub(crate) fn program(&self, words: &[&str]) -> Command {
        let mut command = program("chroot", &[]);
        command.arg(&self.folder).args(words).env_clear().envs(ENVIRONMENT);
        command
    }

    /// Copies a file to /tmp of the system, and returns its path there.
    pub(crate) fn bring(&self, file: &Path) -> Result<String> {
        let name = file.file_name().unwrap_or_default();
        let to = self.folder.join("tmp").join(name);
        fs::copy(file, &to).map_err(said(file))?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Returns every file and folder except those in which the system keeps its own records.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let but = "find . -xdev \\( -path ./tmp -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg \
            -o -path ./var/lib/apt -o -path ./proc -o -path ./sys -o -path ./dev \\) -prune -o -print | LC_ALL=C sort";
        let list = output(program("sh", &["-c", but]).current_dir(&self.folder))?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    fn remove(&self) -> Result {
        if !self.folder.exists() {
            return Ok(());
        }
        // The tool that creates systems mounts kernel file systems in them, and leaves them if it is killed.
        let mounts = Path::new("/proc/self/mounts");
        for place in mounted(&fs::read_to_string(mounts).map_err(said(mounts))?, &self.folder) {
            run(program("umount", &[]).arg(place))?;
        }
        // Anything that is still mounted must not be emptied.
        run(program("rm", &["--one-file-system", "-rf"]).arg(&self.folder))
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Err(why) = self.remove() {
            eprintln!("{why}");
        }
    }
}

/// Checks that Debian systems can be created, and installs the tools for that.
pub(crate) fn debian_is_available(release: &str, folder: &Path) -> Result {
    need_root()?;
    tools::debian(&[("/usr/bin/mmdebstrap".to_owned(), "mmdebstrap")])?;
    reachable(&sources_list(release)?, folder)
}

/// Systems in folders are entered by root alone.
fn need_root() -> Result {
    match output(&mut program("id", &["-u"]))?.trim() {
        "0" => Ok(()),
        _ => Err("only root can create systems in folders; run the command as root".to_owned()),
    }
}

/// Checks that the first archive of a list is reachable, with apt's own download program.
fn reachable(list: &str, folder: &Path) -> Result {
    let words: Vec<_> = list.split_whitespace().take(3).collect();
    let [_, archive, name] = words[..] else {
        return Err("apt has no Debian; run: apt-get update".to_owned());
    };
    let index = format!("{}/dists/{name}/InRelease", archive.trim_end_matches('/'));
    let to = folder.join("InRelease");
    fs::create_dir_all(folder).map_err(said(folder))?;
    let tries = ["-o", "Acquire::Retries=0", "download-file"];
    output(program(HELPER, &tries).arg(&index).arg(&to)).map_err(|error| {
        let why = error.lines().filter_map(|line| line.strip_prefix("E: ")).next().unwrap_or(&error);
        format!("Debian's archive cannot be reached: {why}")
    })?;
    fs::remove_file(&to).map_err(said(&to))
}

/// Returns the mount points below a folder, the last first; mount tables write spaces as `\040`.
fn mounted(table: &str, folder: &Path) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let places = places.map(|place| PathBuf::from(place.replace("\\040", " ")));
    let mut below: Vec<_> = places.filter(|place| place.starts_with(folder)).collect();
    below.reverse();
    below
}

/// Returns the sources of a Debian release, from the archives of this machine's apt.
fn sources_list(release: &str) -> Result<String> {
    let fields = "$(ORIGIN) $(COMPONENT) $(REPO_URI) $(CODENAME)";
    let said =
        output(&mut program("apt-get", &["indextargets", "--format", fields, "Created-By: Packages"]))?;
    let all: Vec<(&str, &str)> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("Debian main ")?.split(' ');
            Some((words.next()?, words.next()?))
        })
        .collect();
    let mut list: Vec<(&str, &str)> =
        all.iter().copied().filter(|(_, name)| name.starts_with(release)).collect();
    if list.is_empty() {
        let (place, _) = all.first().ok_or("apt has no Debian; run: apt-get update")?;
        list.push((place, release));
    }
    list.sort_unstable();
    list.dedup();
    Ok(list.iter().map(|(place, name)| format!("deb {place} {name} main\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_is_not_there_is_named() {
        if !Path::new(HELPER).exists() {
            eprintln!("skipped: {HELPER} is not there");
            return;
        }
        let folder = std::env::temp_dir().join(format!("siskin-archive-{}", std::process::id()));
        let archive = folder.join("archive");
        let list = format!("deb file://{}/ bookworm main\n", archive.display());
        let why = reachable(&list, &folder).expect_err("there is nothing");
        let place = format!("{}/dists/bookworm/InRelease ", archive.display());
        assert!(why.contains("cannot be reached: Failed to fetch") && why.contains(&place), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(reachable("", &folder).is_err());
        let index = archive.join("dists").join("bookworm");
        fs::create_dir_all(&index).expect("a folder is made");
        fs::write(index.join("InRelease"), "Origin: Debian\n").expect("a file is written");
        assert_eq!(reachable(&list, &folder), Ok(()));
        fs::remove_dir_all(&folder).expect("a folder is removed");
    }

    #[test]
    fn mounts_below_a_folder_are_found() {
        let table = "proc /proc proc rw 0 0\n\
            dev /a\\040b/root-arm64/dev tmpfs rw 0 0\n\
            pts /a\\040b/root-arm64/dev/pts devpts rw 0 0\n\
            proc /a\\040b/root-arm64-2/proc proc rw 0 0\n";
        let found = mounted(table, Path::new("/a b/root-arm64"));
        assert_eq!(found, ["/a b/root-arm64/dev/pts", "/a b/root-arm64/dev"].map(PathBuf::from));
    }
}

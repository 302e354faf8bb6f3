//! Fresh Debian 12 root file systems.

use super::emulator::Emulator;
use super::machine::DebArchitecture;
use super::packages::{DebPackage, Version, said};
use crate::shell::{Result, output, program, run};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian release that packages are tested on.
const RELEASE: &str = "bookworm";
/// The program that downloads files like apt.
const HELPER: &str = "/usr/lib/apt/apt-helper";
/// The C library of that release.
const C_LIBRARY: Version = (2, 36);

/// Checks that a root can be created for an architecture and that its packages can be installed there. Installs the
/// tools for creating roots.
pub(super) fn whether(machine: &DebArchitecture, folder: &Path, made: &[DebPackage]) -> Result {
    if output(&mut program("id", &["-u"]))?.trim() != "0" {
        return Err(format!(
            "only root makes systems in folders; run as root: cargo xtask deb {}",
            machine.name
        ));
    }
    let mut needs = vec![
        ("/usr/bin/mmdebstrap".to_owned(), "mmdebstrap"),
        ("/usr/bin/arch-test".to_owned(), "arch-test"),
    ];
    if !machine.is_own() {
        needs.push((machine.emulator.to_owned(), "qemu-user-static"));
    }
    tools::debian(&needs)?;
    let needed = made.iter().filter(|package| package.machine == machine.name);
    installable(needed.map(|package| package.c_library).max().unwrap_or_default())?;
    reachable(&sources_list()?, folder)?;
    Emulator::begin(machine).map(drop)
}

/// Programs linked with a newer C library require it.
fn installable(needed: Version) -> Result {
    if needed <= C_LIBRARY {
        return Ok(());
    }
    let [(major, minor), (has_major, has_minor)] = [needed, C_LIBRARY];
    Err(format!(
        "the packages need a C library of version {major}.{minor}, and {RELEASE} has {has_major}.{has_minor}; \
        build them on {RELEASE}"
    ))
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

/// A system of the essential packages and apt, and for this machine's architecture systemd; removed on drop.
pub(super) struct Root {
    pub(super) folder: PathBuf,
    // Dropped last.
    _emulator: Emulator,
}

impl Root {
    pub(super) fn make(machine: &DebArchitecture, folder: &Path) -> Result<Self> {
        let place = folder.join(format!("root-{}", machine.name));
        fs::create_dir_all(folder).map_err(said(folder))?;
        let root = Self { _emulator: Emulator::begin(machine)?, folder: place };
        root.remove()?;
        let sources = folder.join("sources.list");
        fs::write(&sources, sources_list()?).map_err(said(&sources))?;
        let mut make =
            program("mmdebstrap", &["--quiet", "--mode=root", "--variant=apt", "--skip=cleanup/apt/lists"]);
        if machine.is_own() {
            make.arg("--include=systemd-sysv");
        }
        make.arg(format!("--architectures={}", machine.name)).arg(RELEASE);
        run(make.arg(&root.folder).arg(&sources))?;
        Ok(root)
    }

    /// Returns a command that runs a program in the system.
    pub(super) fn program(&self, words: &[&str]) -> Command {
        let mut command = program("chroot", &[]);
        command.arg(&self.folder).args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["LC_ALL=C.UTF-8", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"]).args(words);
        command
    }

    /// Copies a file to /tmp of the system.
    pub(super) fn bring(&self, file: &Path) -> Result<String> {
        let name = file.file_name().unwrap_or_default();
        let to = self.folder.join("tmp").join(name);
        fs::copy(file, &to).map_err(said(file))?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Returns every file and folder except those in which the system keeps its own records.
    pub(super) fn files(&self) -> Result<Vec<String>> {
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

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(why) = self.remove() {
            eprintln!("{why}");
        }
    }
}

/// Returns the mount points below a folder, the last first; mount tables write spaces as `\040`.
fn mounted(table: &str, folder: &Path) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let places = places.map(|place| PathBuf::from(place.replace("\\040", " ")));
    let mut below: Vec<_> = places.filter(|place| place.starts_with(folder)).collect();
    below.reverse();
    below
}

/// Returns the Debian sources of this machine's apt.
fn sources_list() -> Result<String> {
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
        all.iter().copied().filter(|(_, name)| name.starts_with(RELEASE)).collect();
    if list.is_empty() {
        let (place, _) = all.first().ok_or("apt has no Debian; run: apt-get update")?;
        list.push((place, RELEASE));
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
        let list = format!("deb file://{}/ {RELEASE} main\n", archive.display());
        let why = reachable(&list, &folder).expect_err("there is nothing");
        let place = format!("{}/dists/{RELEASE}/InRelease ", archive.display());
        assert!(why.contains("cannot be reached: Failed to fetch") && why.contains(&place), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(reachable("", &folder).is_err());
        let index = archive.join("dists").join(RELEASE);
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

    #[test]
    fn programs_for_a_newer_system_are_not_installed() {
        assert_eq!([installable((2, 34)), installable(C_LIBRARY)], [Ok(()), Ok(())]);
        let why = installable((2, 41)).expect_err("it is newer");
        assert!(why.contains("2.41") && why.contains("2.36"), "{why}");
    }
}

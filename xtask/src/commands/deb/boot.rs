//! Tests the service under systemd: boots a fresh system in a container.

use super::packages::DebPackage;
use super::socket_client::ask;
use crate::shell::{Result, program, run, said, succeeds};
use crate::systems::System;
use crate::tools;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The timeout of a boot or shutdown.
const PATIENCE: Duration = Duration::from_secs(60);
const MODEL: &str = "var/lib/siskin/model.siskin";

/// Installs the command in a system that has systemd, enables the service, boots the system and sends a request.
pub(super) fn check(root: &System, folder: &Path, package: &DebPackage) -> Result {
    if let Err(why) = tools::debian(&[("/usr/bin/systemd-nspawn".to_owned(), "systemd-container")]) {
        println!("the service was not started: {why}");
        return Ok(());
    }
    let file = root.bring(&package.file)?;
    run(&mut root.program(&["apt-get", "install", "-q", "-y", &file]))?;
    let model = root.folder().join(MODEL);
    fs::copy(folder.join("models/chat.siskin"), &model).map_err(said(&model))?;
    run(&mut root.program(&["systemd-machine-id-setup"]))?;
    run(&mut root.program(&["systemctl", "enable", "siskin.socket"]))?;
    match Container::start(root.folder(), &folder.join("boot.log"))? {
        Some(container) => {
            ask(&container.file("run/siskin.sock"))?;
            container.hardened()?;
            println!("siskin@.service answers under systemd, as nobody and without capabilities");
        }
        None => println!("the service was not started: systemd-nspawn starts no system here"),
    }
    fs::remove_file(&model).map_err(said(&model))?;
    run(&mut root.program(&["apt-get", "purge", "-q", "-y", "siskin"]))?;
    let left: Vec<String> = root.files()?.into_iter().filter(|file| file.contains("siskin")).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("what is left of the service: {}", left.join(", "))) }
}

/// A running container.
struct Container {
    nspawn: Child,
    /// The process id of its init, if it runs.
    leader: Option<u32>,
}

impl Container {
    /// Boots the system and waits until it listens. Returns `None` if this machine cannot boot containers. A system
    /// that boots but does not listen is an error.
    fn start(root: &Path, log: &Path) -> Result<Option<Self>> {
        let out = File::create(log).map_err(said(log))?;
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--register=no", "--keep-unit", "--boot", "--directory"]).arg(root);
        nspawn.stdin(Stdio::null()).stderr(out.try_clone().map_err(said(log))?).stdout(out);
        let nspawn = nspawn.spawn().map_err(|error| format!("systemd-nspawn: {error}"))?;
        let mut container = Self { nspawn, leader: None };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let ended = container.nspawn.try_wait().map_err(|error| format!("systemd-nspawn: {error}"))?;
            if ended.is_some() {
                break;
            }
            container.leader = child_of(container.nspawn.id());
            if container.leader.is_some() && container.file("run/siskin.sock").exists() {
                return Ok(Some(container));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        let (booted, said) = (container.file("run/systemd/system").exists(), said.trim_end());
        println!("systemd-nspawn says\n{said}");
        if container.leader.is_some() && booted {
            return Err("the system started, and siskin.socket does not listen".to_owned());
        }
        Ok(None)
    }

    /// Returns the path of a file in the running system.
    fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/{path}", self.leader.unwrap_or_default()))
    }

    /// Checks that the service process does not run as root and has no capabilities.
    #[cfg(unix)]
    fn hardened(&self) -> Result {
        use std::os::unix::net::UnixStream;

        let socket = self.file("run/siskin.sock");
        let _connection = UnixStream::connect(&socket).map_err(said(&socket))?;
        let begun = Instant::now();
        let mut found = None;
        while found.is_none() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
            found = self.serving();
        }
        let found = found.ok_or("no process answers the connection")?;
        let has = |line: &str| found.lines().any(|other| other == line);
        let expected =
            ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"];
        match expected.iter().all(|line| has(line)) && !found.contains("Uid:\t0\t") {
            true => Ok(()),
            false => Err(format!("the service may do more than it should:\n{found}")),
        }
    }
    /// Returns `/proc/…/status` of the service process.
    fn serving(&self) -> Option<String> {
        let parent = format!("PPid:\t{}", self.leader.unwrap_or_default());
        let states = fs::read_dir("/proc").ok()?.filter_map(|entry| {
            // Processes may end meanwhile.
            fs::read_to_string(entry.ok()?.path().join("status")).ok()
        });
        let mut mine = states.filter(|state| state.lines().any(|line| line == parent));
        mine.find(|state| state.lines().any(|line| line == "Name:\tsiskin"))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The signal that makes systemd shut down.
        let runs = matches!(self.nspawn.try_wait(), Ok(None));
        let leader = self.leader.filter(|_| runs);
        let asked = leader
            .is_some_and(|leader| succeeds(&mut program("kill", &["-s", "RTMIN+4", &leader.to_string()])));
        let begun = Instant::now();
        while asked && begun.elapsed() < PATIENCE && matches!(self.nspawn.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}

/// Returns the first child of a process.
fn child_of(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

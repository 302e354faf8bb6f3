//! Tests the service units: systemd's analysis of them, and an answer over a socket.

use super::machine::DebArchitecture;
use super::packages::{install, tree};
use super::socket_client::ask;
use crate::shell::{Result, output, program, run, said};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Maximum exposure level of the services, in tenths, of at most 100.
const EXPOSURE: &str = "10";
const SERVICES: [&str; 2] = ["siskin@.service", "siskin-http.service"];
const SOCKETS: [&str; 2] = ["siskin.socket", "siskin-http.socket"];

/// Checks the units of an architecture's packages.
pub(super) fn check(machine: &DebArchitecture, folder: &Path) -> Result {
    if let Err(why) = tools::debian(&[("/usr/bin/systemd-analyze".to_owned(), "systemd")]) {
        println!("units not looked at: {why}");
        return Ok(());
    }
    let place = folder.join("units");
    if place.exists() {
        fs::remove_dir_all(&place).map_err(said(&place))?;
    }
    let units = place.join("usr/lib/systemd/system");
    fs::create_dir_all(&units).map_err(said(&units))?;
    // The system units that ours depend on.
    run(program("cp", &["-a", "/lib/systemd/system/."]).arg(&units))?;
    let package = tree(folder, machine).join("siskin");
    for unit in SOCKETS.iter().chain(&SERVICES) {
        install("644", &package.join("lib/systemd/system").join(unit), &units.join(unit))?;
    }
    install("755", &package.join("usr/bin/siskin"), &place.join("usr/bin/siskin"))?;
    let at = format!("--root={}", place.display());
    run(program("systemd-analyze", &["verify", "--man=no", &at]).args(SOCKETS).args(SERVICES))?;
    let exposure = format!("--threshold={EXPOSURE}");
    for unit in SERVICES {
        let security = ["security", "--no-pager", "--offline=true", &exposure, &at, unit];
        let verdict = output(&mut program("systemd-analyze", &security))?;
        println!("{}", verdict.trim_end().lines().last().unwrap_or_default());
    }
    fs::remove_dir_all(&place).map_err(said(&place))?;
    if machine.is_own() { answers(&package.join("usr/bin/siskin"), folder) } else { Ok(()) }
}

/// Sends requests over a socket; the command has each connection as standard input and output.
fn answers(siskin: &Path, folder: &Path) -> Result {
    let (socket, model) = (Socket::new(), folder.join("models/chat.siskin"));
    let mut listener = program("systemd-socket-activate", &["--accept", "--inetd", "-l"]);
    listener.arg(&socket.0).arg(siskin).args(["--quiet", "serve", "--stdio"]).arg(&model);
    let mut listener = listener
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("systemd-socket-activate: {error}"))?;
    // Two connections, as each is served by its own process.
    let answers = ask(&socket.0).and_then(|()| ask(&socket.0));
    let _ = listener.kill();
    let _ = listener.wait();
    answers?;
    println!("siskin serve answers over a socket");
    Ok(())
}

/// A path for a socket, whose length is limited; removed on drop.
struct Socket(PathBuf);

impl Socket {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("siskin-deb-{}.sock", std::process::id())))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

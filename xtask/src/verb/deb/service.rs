//! The units of the service: what systemd thinks of them, and an answer over a socket.

use super::machine::Machine;
use super::packages::{install, said, tree};
use crate::shell::{Result, program, run};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};

/// How exposed the service may be, in tenths, of at most 100.
const EXPOSURE: &str = "10";
const UNITS: [&str; 2] = ["siskin.socket", "siskin@.service"];

/// Checks the units of a machine's packages.
pub(super) fn check(machine: &Machine, folder: &Path) -> Result {
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
    // What ours stand on.
    run(program("cp", &["-a", "/lib/systemd/system/."]).arg(&units))?;
    let package = tree(folder, machine).join("siskin");
    for unit in UNITS {
        install("644", &package.join("lib/systemd/system").join(unit), &units.join(unit))?;
    }
    install("755", &package.join("usr/bin/siskin"), &place.join("usr/bin/siskin"))?;
    let at = format!("--root={}", place.display());
    run(program("systemd-analyze", &["verify", "--man=no", &at]).args(UNITS))?;
    let exposure = format!("--threshold={EXPOSURE}");
    let security = ["security", "--no-pager", "--offline=true", &exposure, &at, UNITS[1]];
    run(&mut program("systemd-analyze", &security))?;
    fs::remove_dir_all(&place).map_err(said(&place))?;
    if machine.is_own() { answers(&package.join("usr/bin/siskin"), folder) } else { Ok(()) }
}

/// Asks as programs on a box do: over a socket, whose connection the command has for its input and output.
#[cfg(unix)]
fn answers(siskin: &Path, folder: &Path) -> Result {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    let (socket, model) = (Socket::new(), folder.join("models/chat.siskin"));
    let mut listener = program("systemd-socket-activate", &["--accept", "--inetd", "-l"]);
    listener.arg(&socket.0).arg(siskin).args(["--quiet", "serve"]).arg(&model);
    let mut listener = listener.spawn().map_err(|error| format!("systemd-socket-activate: {error}"))?;
    let ask = || -> std::io::Result<String> {
        let mut tries = 0;
        let mut stream = loop {
            match UnixStream::connect(&socket.0) {
                Err(_) if tries < 100 => std::thread::sleep(Duration::from_millis(50)),
                outcome => break outcome?,
            }
            tries += 1;
        };
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(b"{\"id\": 1, \"prompt\": \"Why?\", \"greedy\": true, \"max_tokens\": 4}\n")?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    // Two connections, as each has a process of its own.
    let answers = [ask(), ask()];
    let _ = listener.kill();
    let _ = listener.wait();
    for answer in answers {
        let answer = answer.map_err(|error| format!("{}: {error}", socket.0.display()))?;
        if !answer.trim_end().lines().last().is_some_and(|line| line.starts_with("{\"id\":1,\"done\":")) {
            return Err(format!("over a socket siskin serve says\n{answer}"));
        }
    }
    println!("siskin serve answers over a socket");
    Ok(())
}

#[cfg(not(unix))]
fn answers(_: &Path, _: &Path) -> Result {
    Ok(())
}

/// A place for a socket, whose name must be short; gone at the end.
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

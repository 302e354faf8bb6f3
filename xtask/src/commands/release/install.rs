//! The installer, tested in fresh systems with a server on this machine.

use super::VERSION;
use super::listing::Signing;
use crate::shell::{self, Result, output, program, run};
use crate::systems::{self, OWN, System};
use crate::tools;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = "linux/install.sh";
/// The Debian release that the installer is tested on.
const DEBIAN: &str = "bookworm";
const BUSYBOX: &str = "/bin/busybox";
/// Serves the working directory at a free port, which it prints.
const SERVER: &str = "import http.server\n\
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
    print(server.server_port, flush=True)\n\
    server.serve_forever()";

/// Ensures that fresh systems can be made.
pub(super) fn need_tools() -> Result {
    tools::debian(&[(BUSYBOX.to_owned(), "busybox-static")])?;
    systems::debian_is_available(DEBIAN, &shell::built("install"))
}

/// Writes the installer of this version.
pub(super) fn write(to: &Path, signing: &Signing) -> Result {
    let text =
        fs::read_to_string(shell::root().join(SCRIPT)).map_err(|error| format!("{SCRIPT}: {error}"))?;
    let text = text.replace("@VERSION@", VERSION).replace("@PUBLIC_KEY@", signing.public_key());
    let path = to.join("install.sh");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    run(program("chmod", &["755"]).arg(&path))
}

/// Installs from a server on the loopback interface, in a fresh Debian and in a system that has only BusyBox.
pub(super) fn check(files: &Path) -> Result {
    let folder = shell::built("install");
    let packages = ["ca-certificates", "curl"];
    let debian = System::debian(OWN, DEBIAN, &packages, folder.join("debian"))?;
    installs(&debian, files)?;
    println!("install.sh: installs in a fresh Debian");
    let busybox = System::empty(OWN, folder.join("busybox"))?;
    let bin = busybox.folder().join("bin");
    fs::create_dir_all(&bin).map_err(|error| format!("{}: {error}", bin.display()))?;
    fs::copy(BUSYBOX, bin.join("busybox")).map_err(|error| format!("{BUSYBOX}: {error}"))?;
    run(&mut busybox.program(&["/bin/busybox", "--install", "-s", "/bin"]))?;
    let devices = "mkdir -p dev && mknod -m 666 dev/null c 1 3";
    run(program("sh", &["-c", devices]).current_dir(busybox.folder()))?;
    installs(&busybox, files)?;
    println!("install.sh: installs in a system that has only BusyBox");
    Ok(())
}

/// Installs twice, the second time over the first. Then each damaged file must be refused, with nothing left of it.
fn installs(system: &System, files: &Path) -> Result {
    let script = system.folder().join("install.sh");
    fs::copy(files.join("install.sh"), &script).map_err(|error| format!("{}: {error}", script.display()))?;
    let install = |server: &Server| {
        let url = format!("http://127.0.0.1:{}", server.port);
        let mut command = system.program(&["/bin/sh", "/install.sh"]);
        output(command.env("SISKIN_URL", url).env("SISKIN_PREFIX", "/opt/siskin"))
    };
    let server = Server::start(files.to_owned())?;
    for _ in 0..2 {
        install(&server)?;
        let version = output(&mut system.program(&["/opt/siskin/bin/siskin", "--version"]))?;
        if version.trim() != format!("siskin {VERSION}") {
            return Err(format!("the installed program prints `{}`", version.trim()));
        }
    }
    for (script, refusal) in DAMAGES {
        let server = Server::start(damaged(files, script)?)?;
        let why =
            install(&server).err().ok_or_else(|| format!("install.sh accepts files after `{script}`"))?;
        if !why.contains(refusal) {
            return Err(format!("after `{script}` install.sh prints {why}; `{refusal}` was expected"));
        }
        // What was installed before still runs.
        output(&mut system.program(&["/opt/siskin/bin/siskin", "--version"]))?;
    }
    let left = output(&mut system.program(&["/bin/ls", "-A", "/opt/siskin"]))?;
    match left.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["bin", "share"] => Ok(()),
        left => Err(format!("install.sh leaves {}", left.join(", "))),
    }
}

/// Changes of the files, and what the installer says about each.
const DAMAGES: [(&str, &str); 4] = [
    ("for file in siskin-*.tar.gz; do printf x >> $file; done", "has the SHA-256 hash"),
    ("for file in siskin-*.tar.gz; do : > $file; done", "has the SHA-256 hash"),
    ("rm siskin-*.tar.gz", "cannot be downloaded"),
    ("sed -i '/tar.gz/d' SHA256SUMS", "does not list"),
];

/// Returns a copy of the files after a change by a shell script.
fn damaged(files: &Path, script: &str) -> Result<PathBuf> {
    let folder = shell::built("install/damaged");
    run(program("rm", &["-rf"]).arg(&folder))?;
    run(program("cp", &["-r"]).arg(files).arg(&folder))?;
    run(program("sh", &["-c", script]).current_dir(&folder))?;
    Ok(folder)
}

/// An HTTP server on the loopback interface.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(files: PathBuf) -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).current_dir(files).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| format!("python3: {error}"))?;
        let mut line = String::new();
        let printed = process.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
        let server = Self { process, port: line.trim().parse().unwrap_or_default() };
        match printed {
            Some(Ok(_)) if server.port != 0 => Ok(server),
            _ => Err("python3's HTTP server does not start".to_owned()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! `--serve`: HTTP servers under load, `siskin serve` and llama.cpp's `llama-server`.

use super::peers;
use super::report::cpu_name;
use super::{Options, ROUNDS, THREADS, build, model};
use crate::shell::{self, Result, program, run, succeeds};
use crate::tools;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Weight types: llama.cpp repacks Q4_0, and has no fast kernels for Q4_1.
const TYPES: [&str; 2] = ["q4_0", "q4_1"];
/// Concurrent requests, and the maximum length of each.
const SLOTS: usize = 8;
const CONTEXT: usize = 2560;
/// How long a server may take to load a model.
const START: Duration = Duration::from_secs(60);

/// Arguments of `siskin bench-serve`.
const WORKLOADS: [&[&str]; 4] = [
    &["--workload", "chat", "--requests", "32", "--max-prompt", "1024", "--max-output", "256"],
    // Other prompts than those above, which servers have cached.
    &[
        "--workload",
        "chat",
        "--seed",
        "100",
        "--requests",
        "24",
        "--rate",
        "1",
        "--max-prompt",
        "1024",
        "--max-output",
        "256",
    ],
    &["--workload", "prefix", "--requests", "8"],
    &["--workload", "long-prompts", "--requests", "4", "--max-output", "400"],
];

/// A server that is running, and ends when it is dropped.
struct RunningServer {
    process: Child,
    url: String,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RunningServer {
    /// Starts a server that gets its port as the last argument, and waits until it answers.
    fn start(mut command: Command) -> Result<Self> {
        let port = free_port()?;
        command.arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = shell::shown(&command);
        let process = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let mut server = Self { process, url: format!("http://127.0.0.1:{port}") };
        let start = Instant::now();
        while !server.is_ready(port) {
            if let Ok(Some(status)) = server.process.try_wait() {
                return Err(format!("{name}: {status}"));
            }
            if start.elapsed() > START {
                return Err(format!("{name} does not answer after {} s", START.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    /// Returns whether it has loaded its model.
    fn is_ready(&self, port: u16) -> bool {
        use std::io::{Read, Write};
        let mut answer = String::new();
        let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            write!(stream, "GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n")?;
            stream.read_to_string(&mut answer)
        });
        asked.is_ok() && answer.starts_with("HTTP/1.1 200")
    }
}

/// Returns a port that no program listens on.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("a port: {error}"))
}

/// Measures both in turns and prints a table for each type and workload.
pub(super) fn compare(options: &Options) -> Result {
    let (threads, rounds) = (options.threads.unwrap_or(THREADS), options.rounds.unwrap_or(ROUNDS));
    let llama = llama_server(&peers::python()?)?;
    build()?;
    println!("CPU: {}. Threads: {threads}. {rounds} rounds in turns.", cpu_name());
    println!("llama.cpp: that of {}, built here; {SLOTS} slots.", peers::LLAMA);
    for name in &options.models {
        let source = model::bring(name)?;
        for kind in TYPES {
            let file = requantized(&llama, &source, kind)?;
            let ours = RunningServer::start(siskin_serve(&file, threads))?;
            let theirs = RunningServer::start(llama_serve(&llama, &file, threads))?;
            println!("\n{name}, {kind}");
            for workload in WORKLOADS {
                let mut bench = program(shell::release("siskin"), &["bench-serve", &ours.url, &theirs.url]);
                bench.args(workload).args(["--rounds", &rounds.to_string()]);
                run(&mut bench)?;
            }
        }
    }
    Ok(())
}

fn siskin_serve(file: &Path, threads: usize) -> Command {
    let mut command = program(shell::release("siskin"), &["serve", "--quiet"]);
    command.arg(file).args(["--threads", &threads.to_string(), "--parallel", &SLOTS.to_string()]);
    command.args(["--context", &CONTEXT.to_string(), "--port"]);
    command
}

fn llama_serve(server: &Path, file: &Path, threads: usize) -> Command {
    let mut command = program(server, &["--host", "127.0.0.1", "--model"]);
    command.arg(file).args(["--threads", &threads.to_string(), "--parallel", &SLOTS.to_string()]);
    // Its context is divided among the slots.
    command.args(["--ctx-size", &(SLOTS * CONTEXT).to_string(), "--port"]);
    command
}

/// Returns the model in llama.cpp's type `kind`, written once.
fn requantized(server: &Path, source: &Path, kind: &str) -> Result<PathBuf> {
    let file = source.with_extension(format!("{kind}.gguf"));
    if !file.exists() {
        let unfinished = source.with_extension("unfinished");
        let mut quantize = program(server.with_file_name("llama-quantize"), &["--allow-requantize"]);
        run(quantize.arg(source).arg(&unfinished).arg(kind))?;
        std::fs::rename(&unfinished, &file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(file)
}

/// Returns `llama-server`, built from the sources in llama.cpp's Python package, with `llama-quantize` beside it.
fn llama_server(python: &Path) -> Result<PathBuf> {
    let name = peers::LLAMA.replace('-', "_").replace("==", "-");
    let folder = shell::models()?.join(format!("llama-server-{name}"));
    let (built, server) = (folder.join("build"), folder.join("build/bin/llama-server"));
    if succeeds(&mut program(&server, &["--version"])) {
        return Ok(server);
    }
    tools::clang()?;
    tools::debian(&[("/usr/bin/cmake".to_owned(), "cmake"), ("/usr/bin/ninja".to_owned(), "ninja-build")])?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut download = program(python, &["-m", "pip", "download", "--quiet", "--no-deps"]);
    download.args(["--no-binary", "llama-cpp-python", peers::LLAMA, "--dest"]).arg(&folder);
    run(&mut download)?;
    run(program("tar", &["-xzf"]).arg(folder.join(format!("{name}.tar.gz"))).arg("-C").arg(&folder))?;
    let mut configure = program("cmake", &["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"]);
    configure.args(["-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF"]);
    configure.args(["-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF", "-DBUILD_SHARED_LIBS=OFF"]);
    configure.arg("-S").arg(folder.join(name).join("vendor/llama.cpp")).arg("-B").arg(&built);
    run(configure.env("CC", "clang-19").env("CXX", "clang++-19"))?;
    run(program("cmake", &["--build"]).arg(&built).args(["--target", "llama-server", "llama-quantize"]))?;
    Ok(server)
}

//! A CUDA emulator: kernels compiled as ordinary C++ and run by another process, thread by thread.
//!
//! It runs the sources that ship, about a hundred thousand times slower. `emulator/cuda/machine.h` describes what is
//! stricter than on a real GPU.

use std::io::{BufReader, Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A kernel argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EmulatedArgument {
    /// An address in emulated memory; 0 is null.
    Ptr(u64),
    /// An integer of any width.
    Int(i64),
    /// A float.
    Float(f32),
}

/// The launch configuration: grid, block size and bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block.
    pub threads: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

/// The order in which the emulator runs the threads of a block, and the blocks of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadOrder {
    /// From first to last.
    #[default]
    Forward,
    /// From last to first.
    Reverse,
}

/// When asynchronous copies land in shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyTiming {
    /// When their thread waits for them.
    #[default]
    AtWait,
    /// When they are started.
    AtStart,
    /// Each at a random moment from its start to the wait, from this seed.
    Random(u64),
}

/// What a GPU leaves open and the emulator defines. The results of correctly synchronized kernels do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionMode {
    /// The order of threads and blocks.
    pub order: ThreadOrder,
    /// The timing of asynchronous copies.
    pub copies: CopyTiming,
    /// Blocks whose threads run interleaved. A kernel whose blocks wait for each other requires more than one.
    pub resident_blocks: NonZeroU32,
}

impl Default for ExecutionMode {
    fn default() -> Self {
        Self::ALL[0]
    }
}

impl ExecutionMode {
    /// Modes in which every order of threads and every timing of copies occurs, with one and several resident blocks.
    /// The first is the default.
    pub const ALL: [Self; 3] = [
        Self { order: ThreadOrder::Forward, copies: CopyTiming::AtWait, resident_blocks: NonZeroU32::MIN },
        Self { order: ThreadOrder::Reverse, copies: CopyTiming::AtStart, resident_blocks: NonZeroU32::MIN },
        Self {
            order: ThreadOrder::Forward,
            copies: CopyTiming::Random(1),
            resident_blocks: NonZeroU32::MIN.saturating_add(2),
        },
    ];
}

/// C++ compilers, in the order in which they are tried.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];
/// Every operation of a kernel is rounded once: products and sums are not contracted.
const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-U_FORTIFY_SOURCE",
];

/// What a program checks while it runs kernels, beyond what every program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Nothing.
    Standard,
    /// Every access to memory, which takes several times as long: races in shared memory, and alignment.
    Accesses,
}

impl Checks {
    /// Returns the flags for kernels, and those for the emulator itself.
    fn flags(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::Standard => [&[]; 2],
            // Only the hooks that the compiler inserts are used, not its library.
            Self::Accesses => [&["-fsanitize=thread,alignment"], &["-DRACE_DETECTOR"]],
        }
    }
}

/// Compiles the kernels of `sources` to a program in `folder`. Returns `Ok(None)` if there is no compiler, which is not
/// an error of the kernels.
///
/// # Errors
/// The compiler's message if the kernels do not compile.
pub fn compile(sources: &Path, folder: &Path, checks: Checks) -> Result<Option<PathBuf>, String> {
    let works = |name: &&&str| {
        let quiet = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    let Some(compiler) = COMPILERS.iter().find(works) else { return Ok(None) };
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Ok(None);
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
    let [of_kernels, of_host] = checks.flags();
    let host = ["host.cpp", "races.cpp"].map(|name| (own.join(name), of_host));
    let kernels = kernels(sources)?.into_iter().map(|file| (file, of_kernels));
    let files: Vec<(PathBuf, &[&str])> = kernels.chain(host).collect();
    let object =
        |(file, _): &(PathBuf, _)| folder.join(file.file_name().unwrap_or_default()).with_extension("o");
    let objects: Vec<PathBuf> = files.iter().map(object).collect();
    let spawn = |((file, flags), object): (&(PathBuf, &[&str]), &PathBuf)| {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(*flags).arg("-I").arg(&own).args(["-c", "-x", "c++"]).arg(file);
        let child = command.arg("-o").arg(object).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        child.map_err(|error| format!("{compiler}: {error}"))
    };
    let compiling = files.iter().zip(&objects).map(spawn).collect::<Result<Vec<Child>, String>>()?;
    for child in compiling {
        finish(child)?;
    }
    let program = folder.join("cuda-emulator");
    let mut link = Command::new(compiler);
    let child = link.args(&objects).arg("-o").arg(&program).stderr(Stdio::piped()).spawn();
    finish(child.map_err(|error| format!("{compiler}: {error}"))?)?;
    Ok(Some(program))
}

fn finish(child: Child) -> Result<(), String> {
    let answer = child.wait_with_output().map_err(|error| format!("the compiler: {error}"))?;
    if answer.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&answer.stderr).into_owned()) }
}

/// Multiplies an m × k matrix by a k × n matrix, each with its row and column strides. Sums are f64, added in order.
///
/// # Panics
/// If a matrix is too short.
pub fn matmul([m, n, k]: [usize; 3], a: (&[f32], [usize; 2]), b: (&[f32], [usize; 2])) -> Vec<f32> {
    let mut out = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            let mut sum = 0.0_f64;
            for i in 0..k {
                let left = a.0[row * a.1[0] + i * a.1[1]];
                sum += f64::from(left) * f64::from(b.0[i * b.1[0] + column * b.1[1]]);
            }
            out.push(sum as f32);
        }
    }
    out
}

/// Returns the kernel files, sorted by name.
fn kernels(sources: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(sources).map_err(|error| format!("{}: {error}", sources.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "cu")).collect();
    files.sort();
    Ok(files)
}

/// A running emulator.
#[derive(Debug)]
pub struct CudaEmulator {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl CudaEmulator {
    /// Starts the program that [`compile`] created.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(program: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the emulator has no pipes".to_owned());
        };
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    fn send(&mut self, request: u8, numbers: &[u64], bytes: &[u8]) -> Result<(), String> {
        let mut message = vec![request];
        numbers.iter().for_each(|number| message.extend(number.to_le_bytes()));
        message.extend_from_slice(bytes);
        let sent = self.requests.write_all(&message).and_then(|()| self.requests.flush());
        sent.map_err(|error| format!("the emulator has ended: {error}"))
    }

    fn receive(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.answers.read_exact(bytes).map_err(|error| format!("the emulator has ended: {error}"))
    }

    fn receive_u64(&mut self) -> Result<u64, String> {
        let mut bytes = [0; 8];
        self.receive(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Allocates memory whose floats are all NaN. Out-of-bounds accesses end the emulator.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn allocate(&mut self, bytes: usize) -> Result<u64, String> {
        self.send(b'a', &[bytes as u64], &[])?;
        self.receive_u64()
    }

    /// Writes to memory.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn write(&mut self, ptr: u64, bytes: &[u8]) -> Result<(), String> {
        self.send(b'w', &[ptr, bytes.len() as u64], bytes)
    }

    /// Reads memory.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn read(&mut self, ptr: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.send(b'r', &[ptr, bytes.len() as u64], &[])?;
        self.receive(bytes)
    }

    /// Sets `count` bytes to `byte`.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn fill(&mut self, ptr: u64, byte: u8, count: usize) -> Result<(), String> {
        self.send(b'f', &[ptr, u64::from(byte), count as u64], &[])
    }

    /// Sets how the following launches run.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn set_mode(&mut self, mode: ExecutionMode) -> Result<(), String> {
        let (timing, seed) = match mode.copies {
            CopyTiming::AtWait => (0, 0),
            CopyTiming::AtStart => (1, 0),
            CopyTiming::Random(seed) => (2, seed),
        };
        let reverse = u64::from(mode.order == ThreadOrder::Reverse);
        self.send(b'm', &[reverse, timing, seed, mode.resident_blocks.get().into()], &[])
    }

    /// Runs a kernel to completion.
    ///
    /// # Errors
    /// A description of the kernel's error.
    pub fn launch(
        &mut self,
        kernel: &str,
        config: LaunchConfig,
        arguments: &[EmulatedArgument],
    ) -> Result<(), String> {
        let word = |argument: &EmulatedArgument| match *argument {
            EmulatedArgument::Ptr(ptr) => ptr,
            EmulatedArgument::Int(number) => number as u64,
            EmulatedArgument::Float(number) => u64::from(number.to_bits()),
        };
        let words: Vec<u8> = arguments.iter().flat_map(|argument| word(argument).to_le_bytes()).collect();
        self.send(b'l', &[kernel.len() as u64], kernel.as_bytes())?;
        let [x, y, z] = config.grid;
        let numbers = [x, y, z, config.threads, config.shared].map(|number| u64::from(number).to_le_bytes());
        let count = (arguments.len() as u64).to_le_bytes();
        let rest: Vec<u8> = numbers.into_iter().flatten().chain(count).chain(words).collect();
        let sent = self.requests.write_all(&rest).and_then(|()| self.requests.flush());
        sent.map_err(|error| format!("the emulator has ended: {error}"))?;
        let mut failure = vec![0; self.receive_u64()? as usize];
        self.receive(&mut failure)?;
        if failure.is_empty() { Ok(()) } else { Err(String::from_utf8_lossy(&failure).into_owned()) }
    }
}

impl Drop for CudaEmulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

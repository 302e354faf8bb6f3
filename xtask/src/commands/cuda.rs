//! `cuda`: compiles every kernel of `runtime/cuda/kernels/` for all supported devices, and reports its resources.

use super::bench_peers::peers;
use crate::Subcommand;
use crate::env;
use crate::shell::{Result, built, cargo, output, program, root, run, shown, succeeds};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "cuda",
    usage: "",
    about: "compile the CUDA kernels for every architecture, and print their registers, shared memory and spills; needs \
            no GPU",
    run: cuda,
};

/// Files that include it have the bits of the CPU: products and sums are not contracted.
const EXACT_HEADER: &str = "#include \"exact.cuh\"";
const SOURCES: &str = "runtime/cuda/kernels";
/// The output folder, with one file per source.
pub(crate) const COMPILED: &str = "cuda";
/// Ampere, Ampere in Jetson Orin, and Hopper.
const DEVICES: [u32; 3] = [80, 87, 90];
/// The device whose PTX is compiled as well, for later ones.
const PTX_DEVICE: u32 = 90;
/// The filters of the tests of the CUDA driver, of its tables and of its sources: modules of `siskin-cuda`, and `cuda` of
/// `siskin-trainer`.
const TESTS: [&str; 5] = ["batch_tables::", "cuda::", "driver::", "ops::attention::", "sources::"];
/// The compiler and the tools that it calls, of one release.
const PACKAGES: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-crt==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-nvrtc==13.0.*",
];
const MODULES: &str = "nvidia.cu13.bin, nvidia.cu13.nvvm.bin, nvidia.cu13.include.crt, nvidia.cu13.lib";

fn cuda(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask cuda".to_owned());
    }
    check(&need_tools()?, true)
}

/// Finds nvcc: in `CUDA_HOME`, on the path, or in Python packages.
pub(crate) fn need_tools() -> Result<PathBuf> {
    let works = |nvcc: &Path| succeeds(&mut program(nvcc, &["--version"]));
    if let Some(home) = env::cuda_home() {
        let nvcc = Path::new(&home).join("bin/nvcc");
        return if works(&nvcc) { Ok(nvcc) } else { Err(format!("CUDA_HOME: no {}", nvcc.display())) };
    }
    if works(Path::new("nvcc")) {
        return Ok("nvcc".into());
    }
    let python = tools::python("cuda")?;
    peers::need(&python, MODULES, &PACKAGES)?;
    let script = "import nvidia.cu13.bin; print(list(nvidia.cu13.bin.__path__)[0])";
    let folder = output(&mut program(&python, &["-c", script]))?;
    let nvcc = Path::new(folder.trim()).join("nvcc");
    if works(&nvcc) { Ok(nvcc) } else { Err(format!("{} does not run", nvcc.display())) }
}

/// Compiles changed sources: to PTX only, which finds all errors and warnings, or also for all devices. Fails if a kernel
/// compiles with warnings or spills registers.
pub(crate) fn check(nvcc: &Path, all: bool) -> Result {
    let devices: &[u32] = if all { &DEVICES } else { &[] };
    let target = built(COMPILED);
    std::fs::create_dir_all(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    let mut kernels = Vec::new();
    let shared = text_of(&files("cuh")?)?;
    for source in files("cu")? {
        kernels.extend(compile(nvcc, devices, &source, &shared, &target)?);
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    if all {
        print(devices, &kernels);
    }
    let spilling = kernels.iter().filter(|kernel| kernel.spills());
    let names: Vec<&str> = spilling.map(|kernel| kernel.name.as_str()).collect();
    if !names.is_empty() {
        return Err(format!("registers of {} spill; keep fewer values live", names.join(", ")));
    }
    match all {
        true => println!("{} kernels for {devices:?} in {}", kernels.len(), target.display()),
        false => println!("left out: {} devices; `cargo xtask test --all` compiles for them", DEVICES.len()),
    }
    driver(nvcc)
}

/// Checks that the CUDA driver code builds without warnings and finds every kernel in its file, and that every file
/// compiles with NVRTC if it is installed. This needs no device.
fn driver(nvcc: &Path) -> Result {
    let home = nvcc.parent().and_then(Path::parent).unwrap_or(Path::new(""));

    let features = ["--workspace", "--features=siskin-cli/cuda", "--locked"];
    run(cargo(&["clippy", "--all-targets"]).args(features).args(["--", "-D", "warnings"]))?;
    let test = || {
        let mut test = cargo(&["test", "--lib"]);
        test.args(features).arg("--");
        test
    };
    let listed = output(test().arg("--list"))?;
    let unmatched = unmatched(&listed);
    if !unmatched.is_empty() {
        return Err(format!("no test has {} in its name: correct TESTS", unmatched.join(" or ")));
    }
    run(test().args(TESTS).env("LD_LIBRARY_PATH", home.join("lib")))
}

/// Returns the filters of [`TESTS`] that match no test of those that `--list` printed.
fn unmatched(listed: &str) -> Vec<&'static str> {
    let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    TESTS.into_iter().filter(|filter| !names.iter().any(|name| name.contains(filter))).collect()
}

/// Returns kernel files with this extension, sorted by name.
fn files(extension: &str) -> Result<Vec<PathBuf>> {
    let folder = root().join(SOURCES);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    Ok(files)
}

fn text_of(files: &[PathBuf]) -> Result<String> {
    let text = |file: &PathBuf| {
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
    };
    files.iter().map(text).collect()
}

/// Compiles to one file for some devices, with PTX for later ones. The output of nvcc is stored next to it, after the
/// command and the sources that it was made from.
fn compile(nvcc: &Path, devices: &[u32], source: &Path, shared: &str, target: &Path) -> Result<Vec<Kernel>> {
    let mut command = program(nvcc, &["-std=c++17", "-fatbin", "--threads", "0", "-Werror", "all-warnings"]);
    let text = text_of(&[source.to_owned()])?;
    if text.contains(EXACT_HEADER) {
        command.arg("-fmad=false");
    }
    for device in devices {
        command.args(["-gencode", &format!("arch=compute_{device},code=sm_{device}")]);
    }
    command.args(["-gencode", &format!("arch=compute_{PTX_DEVICE},code=compute_{PTX_DEVICE}")]);
    let out = target.join(source.file_name().unwrap_or_default()).with_extension("fatbin");
    let record = out.with_extension("txt");
    command.arg("-Xptxas").arg("-v,-warn-lmem-usage").arg("-o").arg(&out).arg(source);
    let inputs = format!("{}\n{shared}{text}", shown(&command));
    let known = std::fs::read_to_string(&record).unwrap_or_default();
    if let Some(log) = known.strip_prefix(&inputs).filter(|_| out.exists()) {
        return kernels(devices, log);
    }
    println!("$ {}", shown(&command));
    let log = compile_log(&mut command)?;
    std::fs::write(&record, inputs + &log).map_err(|error| format!("{}: {error}", record.display()))?;
    kernels(devices, &log)
}

/// Returns a program's standard error if it succeeds.
fn compile_log(command: &mut Command) -> Result<String> {
    let answer = command.output().map_err(|error| format!("`{}`: {error}", shown(command)))?;
    let log = String::from_utf8_lossy(&answer.stderr);
    if answer.status.success() {
        return Ok(log.into_owned());
    }
    let printed = String::from_utf8_lossy(&answer.stdout);
    Err(format!("`{}` ended with {}\n{}{}", shown(command), answer.status, printed, log.trim_end()))
}

/// Resources of a kernel on each device that it was compiled for.
#[derive(Debug, PartialEq)]
struct Kernel {
    name: String,
    registers: Vec<u32>,
    /// Bytes of static shared memory.
    shared: u32,
    /// Bytes of register spills.
    spilled: Vec<u32>,
}

impl Kernel {
    fn spills(&self) -> bool {
        self.spilled.iter().any(|&bytes| bytes > 0)
    }
}

/// Parses the output of ptxas about each kernel.
fn kernels(devices: &[u32], log: &str) -> Result<Vec<Kernel>> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut at = None;
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            at = Some(entry(devices, &mut kernels, rest)?);
            continue;
        }
        let Some((kernel, device)) = at else { continue };
        let kernel = &mut kernels[kernel];
        if let Some(bytes) = number_before(line, " bytes spill stores") {
            kernel.spilled[device] = bytes;
        }
        if let Some(bytes) = number_before(line, " bytes spill loads") {
            kernel.spilled[device] += bytes;
        }
        if let Some(registers) = number_before(line, " registers") {
            kernel.registers[device] = registers;
            kernel.shared = kernel.shared.max(number_before(line, " bytes smem").unwrap_or(0));
        }
    }
    let unknown = kernels.iter().find(|kernel| kernel.registers.contains(&0));
    if let Some(kernel) = unknown {
        return Err(format!("nvcc did not report the registers of {} for every device", kernel.name));
    }
    Ok(kernels)
}

/// Returns the indices of the kernel and of the device of a line `name' for 'sm_80'`.
fn entry(devices: &[u32], kernels: &mut Vec<Kernel>, rest: &str) -> Result<(usize, usize)> {
    let mut words = rest.split('\'');
    let name = words.next().unwrap_or_default();
    let device = words.nth(1).and_then(|device| device.strip_prefix("sm_")).unwrap_or_default();
    let place = devices.iter().position(|known| known.to_string() == device);
    let device =
        place.ok_or_else(|| format!("nvcc compiled `{name}` for `{device}`, which was not requested"))?;
    let known = kernels.iter().position(|kernel| kernel.name == name);
    let kernel = known.unwrap_or_else(|| {
        let none = vec![0; devices.len()];
        kernels.push(Kernel { name: name.to_owned(), registers: none.clone(), shared: 0, spilled: none });
        kernels.len() - 1
    });
    Ok((kernel, device))
}

/// Returns the number before `words`.
fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn print(devices: &[u32], kernels: &[Kernel]) {
    let devices = devices.iter().map(|device| format!("sm_{device}")).collect::<Vec<_>>().join(", ");
    println!("registers, shared memory and spilled bytes on {devices}");
    println!("{:<40} {:>16} {:>7} {:>16}", "kernel", "registers", "shared", "spilled");
    for kernel in kernels {
        let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" / ");
        let spilled = if kernel.spills() { list(&kernel.spilled) } else { "0".to_owned() };
        println!("{:<40} {:>16} {:>7} {:>16}", kernel.name, list(&kernel.registers), kernel.shared, spilled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTXAS_LOG: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'add_f32' for 'sm_90'
ptxas info    : Function properties for add_f32
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compiling entry function 'add_f32' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'add_f32' for 'sm_87'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 29 registers, used 0 barriers, 384 bytes cmem[0]";

    #[test]
    fn filters_without_tests_are_found() {
        let listed = "batch_tables::tests::a: test
cuda::op::tests::b: test
driver::nvrtc::tests::c: test
driver: benchmark
sources::tests::d: test

4 tests, 1 benchmarks";
        assert_eq!(unmatched(listed), ["ops::attention::"]);
        assert!(unmatched(&listed.replace("cuda::op", "ops::attention")).contains(&"cuda::"));
    }

    #[test]
    fn ptxas_resource_usage_is_parsed() {
        let read = kernels(&DEVICES, PTXAS_LOG).unwrap();
        let want = Kernel {
            name: "add_f32".to_owned(),
            registers: vec![28, 29, 30],
            shared: 128,
            spilled: vec![0, 0, 16],
        };
        assert_eq!(read, [want]);
        assert!(read[0].spills());
        let half = PTXAS_LOG.split("ptxas info    : Compiling entry function 'add_f32' for 'sm_80'").next();
        assert!(
            kernels(&DEVICES, half.unwrap()).unwrap_err().contains("add_f32"),
            "a missing device is an error"
        );
        assert!(kernels(&DEVICES, &PTXAS_LOG.replace("sm_90", "sm_100")).unwrap_err().contains("100"));
    }
}

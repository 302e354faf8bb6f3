//! The JNI bridge in C, linked with the Rust library into one shared library.

use super::ndk::Ndk;
use super::rust::Abi;
use super::{BuildFolders, make_folder, size, sources};
use crate::library::{self, Edition};
use crate::shell::{Result, output, program, run};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags for every compiler.
const FLAGS: [&str; 10] = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-Iffi/include",
];
/// Flags for every linker: 16 KB pages, no unused sections, no undefined symbols, no exports except those listed.
const LINK: [&str; 6] = [
    "-shared",
    "-Wl,-z,max-page-size=16384",
    "-Wl,--gc-sections",
    "-Wl,-z,defs",
    "-Wl,-soname,libsiskin_jni.so",
    "-Wl,--version-script=android/src/main/cpp/exports.map",
];

/// Builds the library for this machine's JVM, with or without test functions.
pub(super) fn host(place: &BuildFolders, archive: &Path, name: &str, testing: bool) -> Result<PathBuf> {
    let headers = java_headers()?;
    let mut objects = Vec::new();
    // Both compilers check the code; the objects of the first are linked.
    for compiler in tools::c_compilers()?.into_iter().rev() {
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.extend(headers.iter().map(|path| format!("-I{}", path.display())));
        objects = compile(place, program(compiler, &[]), &flags, name, testing)?;
    }
    let library = place.at(name).join("libsiskin_jni.so");
    let mut link = program("gcc", &LINK);
    link.arg("-Wl,-s").arg("-o").arg(&library).args(objects).arg(archive).args(["-lpthread", "-lm", "-ldl"]);
    run(&mut link)?;
    println!("{name}: {}, {}", library.display(), size(&library));
    Ok(library)
}

/// Builds an edition of the library for an Android ABI.
pub(super) fn device(
    place: &BuildFolders,
    ndk: &Ndk,
    abi: &Abi,
    edition: &Edition,
    archive: &Path,
) -> Result<PathBuf> {
    let flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
    let folder = format!("{}{}", abi.name, edition.suffix);
    let objects = compile(place, ndk.clang(abi), &flags, &folder, false)?;
    let library = place.at(&folder).join("libsiskin_jni.so");
    let mut link = ndk.clang(abi);
    link.args(LINK).args([library::FOLD, "-Wl,-s", "-o"]).arg(&library).args(objects).arg(archive);
    run(link.args(["-llog", "-lm", "-ldl"]))?;
    println!("{}: {}, {}", abi.name, library.display(), size(&library));
    Ok(library)
}

/// Compiles the bridge to object files.
fn compile(
    place: &BuildFolders,
    compiler: Command,
    flags: &[String],
    name: &str,
    testing: bool,
) -> Result<Vec<PathBuf>> {
    let folder = place.at(name);
    make_folder(&folder)?;
    let mut files = sources("src/main/cpp", ".c")?;
    if testing {
        files.extend(sources("src/test/cpp", ".c")?);
    }
    let mut objects = Vec::new();
    for file in files {
        let object = folder.join(file.with_extension("o").file_name().unwrap_or_default());
        let mut command = program(compiler.get_program(), &[]);
        command.args(compiler.get_args()).args(flags).arg("-Iandroid/src/main/cpp");
        if testing {
            command.arg("-DSISKIN_TESTING");
        }
        output(command.arg("-c").arg(&file).arg("-o").arg(&object))?;
        objects.push(object);
    }
    let name = compiler.get_program().to_string_lossy();
    println!("{name}: {} files of the bridge compiled into {}", objects.len(), folder.display());
    Ok(objects)
}

/// Returns the folders of `jni.h` and of the files that it includes.
fn java_headers() -> Result<[PathBuf; 2]> {
    let javac = output(&mut program("sh", &["-c", "readlink -f \"$(command -v javac)\""]))?;
    let home = Path::new(javac.trim()).ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
    let headers = [home.join("include"), home.join("include/linux")];
    if headers[0].join("jni.h").exists() {
        return Ok(headers);
    }
    Err(format!("{} has no jni.h; run as root: apt-get install openjdk-17-jdk-headless", home.display()))
}

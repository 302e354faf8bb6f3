//! `deb`: Debian packages of the library, its header and the command, tested in a fresh Debian 12.

mod boot;
mod installable;
mod installed_tests;
mod machine;
mod packages;
mod service;
mod socket_client;

use crate::shell::{self, Result};
use crate::systems::emulator;
use crate::{Subcommand, library, tools};
use machine::{DebArchitecture, MACHINES};
use packages::DebPackage;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "deb",
    usage: "[amd64] [arm64]",
    about: "build Debian packages, and install, test and remove them in fresh Debian 12 root file systems",
    run: deb,
};

fn deb(arguments: &[String]) -> Result {
    let known: Vec<_> = MACHINES.iter().map(|machine| machine.name).collect();
    if let Some(unknown) = arguments.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no machine `{unknown}`; there are {}", known.join(", ")));
    }
    let wanted = |machine: &&DebArchitecture| {
        arguments.is_empty() || arguments.iter().any(|name| name == machine.name)
    };
    let machines: Vec<_> = MACHINES.iter().filter(wanted).collect();
    emulator::clear();
    need_tools(&machines)?;
    check(&machines)
}

/// Ensures that the tools for all architectures are installed.
pub(super) fn need_all_tools() -> Result {
    need_tools(&MACHINES.iter().collect::<Vec<_>>())
}

/// Builds the packages of all architectures, and returns their files.
pub(super) fn build_all() -> Result<Vec<PathBuf>> {
    let made = build(&MACHINES.iter().collect::<Vec<_>>(), &shell::built("deb"))?;
    Ok(made.into_iter().map(|package| package.file).collect())
}

/// Installs, tests and removes the packages of all architectures, from the files that were built in `folder`.
pub(super) fn check_all(folder: &Path) -> Result {
    let mut made = Vec::new();
    for machine in &MACHINES {
        for name in packages::NAMES {
            made.push(DebPackage::read(name, machine, folder)?);
        }
    }
    let place = shell::built("deb");
    installed_tests::models(&place)?;
    test_installed(&MACHINES.iter().collect::<Vec<_>>(), &place, &made, true)
}

fn need_tools(machines: &[&DebArchitecture]) -> Result {
    let own = machine::own()?;
    let mut needs = vec![
        ("/usr/bin/dpkg-shlibdeps".to_owned(), "dpkg-dev"),
        ("/usr/bin/readelf".to_owned(), "binutils"),
        ("/usr/bin/make".to_owned(), "make"),
        ("/usr/bin/pkg-config".to_owned(), "pkg-config"),
    ];
    for machine in machines {
        needs.extend(machine.needs(&own)?);
    }
    tools::linker()?;
    tools::debian(&needs)
}

/// Builds, checks and tests the packages of these architectures.
fn check(machines: &[&DebArchitecture]) -> Result {
    let folder = shell::built("deb");
    let made = build(machines, &folder)?;
    test_installed(machines, &folder, &made, false)?;
    println!("\n{:<44} {:>10}", "package", "bytes");
    for package in &made {
        println!("{:<44} {:>10}", package.file.display(), package.bytes);
    }
    Ok(())
}

/// Builds and inspects packages.
fn build(machines: &[&DebArchitecture], folder: &Path) -> Result<Vec<DebPackage>> {
    // The checks of services use them, too.
    installed_tests::models(folder)?;
    let mut made = Vec::new();
    for machine in machines {
        let built = machine.build()?;
        let packages = packages::pack(machine, &built, folder)?;
        library::check(&packages::library(folder, machine))?;
        packages::lint(&packages)?;
        service::check(machine, folder)?;
        made.extend(packages);
    }
    Ok(made)
}

/// Installs, tests and removes packages in fresh systems; those of a release must be installable.
fn test_installed(
    machines: &[&DebArchitecture],
    folder: &Path,
    made: &[DebPackage],
    is_release: bool,
) -> Result {
    for machine in machines {
        let begun = Instant::now();
        match installable::check(machine, folder, made) {
            Ok(()) => {
                installed_tests::check(machine, folder, made)?;
                println!("{}: used in a fresh root, in {:.0} s", machine.name, begun.elapsed().as_secs_f64());
            }
            Err(why) if is_release => return Err(format!("a release is installed in fresh systems: {why}")),
            Err(why) => println!("{}: not installed anywhere: {why}", machine.name),
        }
    }
    Ok(())
}

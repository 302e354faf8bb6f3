//! The package: an AAR, and a Maven repository folder with it.

use super::{BuildFolders, copy, empty_folder, make_folder, size, write};
use crate::library::Edition;
use crate::shell::{self, Result, program, run};
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The date of all files in archives, for reproducible builds.
const DATE: &str = "2000-01-01T00:00:00Z";
/// Dependencies that are part of the package's API.
const NEEDS: [(&str, &str, &str); 3] = [
    ("org.jetbrains.kotlin", "kotlin-stdlib", "2.0.21"),
    ("org.jetbrains.kotlinx", "kotlinx-coroutines-core", "1.8.1"),
    ("org.jetbrains.kotlinx", "kotlinx-serialization-json", "1.7.3"),
];

/// A package, and the folder with its content.
pub(super) struct AndroidPackage {
    pub(super) archive: PathBuf,
    folder: PathBuf,
}

impl AndroidPackage {
    pub(super) fn classes(&self) -> PathBuf {
        self.folder.join("classes.jar")
    }

    pub(super) fn library(&self, abi: &str) -> PathBuf {
        self.folder.join("jni").join(abi).join("libsiskin_jni.so")
    }
}

/// Creates an AAR of classes and of a library for each ABI; `name` is the file name.
pub(super) fn package(
    place: &BuildFolders,
    classes: &Path,
    name: &str,
    libraries: &[(&str, &Path)],
) -> Result<AndroidPackage> {
    let folder = place.at("aar").join(name);
    empty_folder(&folder)?;
    let main = shell::root().join("android/src/main");
    copy(&main.join("AndroidManifest.xml"), &folder.join("AndroidManifest.xml"))?;
    copy(&shell::root().join("android/proguard.txt"), &folder.join("proguard.txt"))?;
    // There are no resources.
    write(&folder.join("R.txt"), "")?;
    let properties = folder.join("META-INF/com/android/build/gradle");
    make_folder(&properties)?;
    write(
        &properties.join("aar-metadata.properties"),
        "aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\nminAndroidGradlePluginVersion=1.0.0\n",
    )?;
    for (abi, library) in libraries {
        let jni = folder.join("jni").join(abi);
        make_folder(&jni)?;
        copy(library, &jni.join("libsiskin_jni.so"))?;
    }
    zip(&folder.join("classes.jar"), classes)?;
    let archive = place.at(&format!("siskin-{VERSION}-{name}.aar"));
    zip(&archive, &folder)?;
    println!("{}: {}", archive.display(), size(&archive));
    Ok(AndroidPackage { archive, folder })
}

/// Packs the files of a folder.
fn zip(archive: &Path, folder: &Path) -> Result {
    let whole = archive.with_extension("zip");
    let mut command = program("jar", &["--create", "--no-manifest", "--date", DATE, "--file"]);
    run(command.arg(&whole).arg("-C").arg(folder).arg("."))?;
    std::fs::rename(&whole, archive).map_err(|error| format!("{}: {error}", archive.display()))
}

/// Creates the folder that users of Gradle and Maven name as a repository.
pub(super) fn repository(place: &BuildFolders, edition: &Edition, archive: &Path) -> Result {
    let root = place.at("maven");
    let name = format!("siskin{}", edition.suffix);
    let folder = root.join("ai/siskin").join(&name).join(VERSION);
    empty_folder(&folder)?;
    copy(archive, &folder.join(format!("{name}-{VERSION}.aar")))?;
    write(&folder.join(format!("{name}-{VERSION}.pom")), &pom(&name))?;
    println!("{}: the repository with ai.siskin:{name}:{VERSION}", root.display());
    Ok(())
}

fn pom(name: &str) -> String {
    let mut text = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  \
        <groupId>ai.siskin</groupId>\n  <artifactId>{name}</artifactId>\n  <version>{VERSION}</version>\n  \
        <packaging>aar</packaging>\n  <name>Siskin</name>\n  \
        <description>Transformers on the device in people's hands</description>\n  <licenses>\n"
    );
    for license in ["MIT", "Apache-2.0"] {
        text += &format!("    <license><name>{license}</name></license>\n");
    }
    text += "  </licenses>\n  <dependencies>\n";
    for (group, name, version) in NEEDS {
        text += &format!(
            "    <dependency>\n      <groupId>{group}</groupId>\n      <artifactId>{name}</artifactId>\n      \
            <version>{version}</version>\n      <scope>compile</scope>\n    </dependency>\n"
        );
    }
    text + "  </dependencies>\n</project>\n"
}

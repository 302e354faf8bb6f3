//! The Kotlin compiler and the libraries of `android/jars.txt`, from Maven Central.

use super::{BuildFolders, make_folder, write};
use crate::shell::{self, Result, output, program, run};
use std::path::{Path, PathBuf};

/// Downloaded and verified jars.
pub(super) struct Jars {
    folder: PathBuf,
    jars: Vec<Jar>,
}

/// A line of the list: use, coordinates, and SHA-256.
struct Jar {
    purpose: String,
    group: String,
    name: String,
    version: String,
    hash: String,
}

impl Jar {
    fn file(&self) -> String {
        format!("{}-{}.jar", self.name, self.version)
    }
}

impl Jars {
    /// Downloads missing jars, and verifies all of them against the list.
    pub(super) fn bring(place: &BuildFolders) -> Result<Self> {
        let path = shell::root().join("android/jars.txt");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let jars: Option<Vec<Jar>> = text.lines().map(parse).collect();
        let jars = jars.ok_or("android/jars.txt: a line is not `USE GROUP:NAME:VERSION SHA256`")?;
        let jars = Self { folder: place.at("jars"), jars };
        make_folder(&jars.folder)?;
        if jars.wrong().is_some() {
            jars.fetch(place)?;
        }
        match jars.wrong() {
            Some(why) => Err(format!("{why}\nDelete target/android/jars and try again")),
            None => Ok(jars),
        }
    }

    /// Returns the class path of the jars for any of these uses.
    pub(super) fn path(&self, uses: &[&str]) -> String {
        let matching = self.jars.iter().filter(|jar| uses.contains(&jar.purpose.as_str()));
        let paths: Vec<_> =
            matching.map(|jar| self.folder.join(jar.file()).to_string_lossy().into_owned()).collect();
        paths.join(":")
    }

    /// Returns the reason why the files differ from the list, if they do.
    fn wrong(&self) -> Option<String> {
        let list: String = self.jars.iter().map(|jar| format!("{}  {}\n", jar.hash, jar.file())).collect();
        let path = self.folder.join("sha256");
        if let Err(why) = write(&path, &list) {
            return Some(why);
        }
        let mut check = program("sha256sum", &["--check", "--strict", "--quiet", "sha256"]);
        output(check.current_dir(&self.folder)).err()
    }

    /// Downloads with Maven, which knows this machine's proxy settings.
    fn fetch(&self, place: &BuildFolders) -> Result {
        let pom = place.at("jars.xml");
        write(&pom, &self.pom())?;
        let copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
        let mut maven = program("mvn", &["-q", "-B", copy, "-DexcludeTransitive=true", "-f"]);
        run(maven.arg(&pom).arg(option("outputDirectory", &self.folder)))
    }

    fn pom(&self) -> String {
        let mut text = String::from(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
            <groupId>ai.siskin</groupId><artifactId>jars</artifactId><version>1</version>\
            <packaging>pom</packaging><dependencies>\n",
        );
        for Jar { group, name, version, .. } in &self.jars {
            text += &format!(
                "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
                <version>{version}</version></dependency>\n"
            );
        }
        text + "</dependencies></project>\n"
    }
}

fn parse(line: &str) -> Option<Jar> {
    let mut words = line.split(' ');
    let (purpose, coordinates, hash) = (words.next()?, words.next()?, words.next()?);
    let mut parts = coordinates.split(':');
    let (group, name, version) = (parts.next()?, parts.next()?, parts.next()?);
    let [purpose, group, name, version, hash] = [purpose, group, name, version, hash].map(str::to_owned);
    Some(Jar { purpose, group, name, version, hash })
}

fn option(name: &str, path: &Path) -> String {
    format!("-D{name}={}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let jar = parse("test junit:junit:4.13.2 8e49").expect("the line is one");
        assert_eq!((jar.purpose.as_str(), jar.group.as_str(), jar.hash.as_str()), ("test", "junit", "8e49"));
        assert_eq!(jar.file(), "junit-4.13.2.jar");
        assert!(parse("test junit:junit 8e49").is_none() && parse("").is_none());
    }
}

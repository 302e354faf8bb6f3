//! The public items of a crate as a text list, read from its source.

use super::{Manifest, RustFile, SourceFile, Tree, manifests};

/// Where the list of a package's public items is committed.
pub fn snapshot_path(package: &str) -> String {
    format!("tests/house/api-{package}.txt")
}

/// The public items of every library crate that others may use: package and items.
pub fn library_apis(tree: &Tree) -> Vec<(String, Vec<String>)> {
    let internal = ["siskin-tests", "siskin-benches", "siskin-fuzz", "xtask"];
    manifests(tree)
        .into_iter()
        .filter(|manifest| !internal.contains(&manifest.name.as_str()))
        .filter(|manifest| tree.file(&format!("{}/src/lib.rs", manifest.folder())).is_some())
        .map(|manifest| (manifest.name.clone(), public_api(tree, &manifest)))
        .collect()
}

/// The public items of the library in `manifest`'s folder, sorted, one a line: `module: item`.
///
/// Items of private modules are in the list too, as they may be re-exported. Items that a macro writes are not.
pub fn public_api(tree: &Tree, manifest: &Manifest) -> Vec<String> {
    let source = format!("{}/src/", manifest.folder());
    let mut items = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let inner = file.path.strip_prefix(&source);
        let Some(inner) = inner.filter(|inner| *inner != "main.rs" && !inner.starts_with("bin/")) else {
            continue;
        };
        items.extend(file_items(file, &module_path(&manifest.name, inner)));
    }
    items.sort();
    items.dedup();
    items
}

fn module_path(package: &str, inner: &str) -> String {
    let mut path = package.replace('-', "_");
    for part in inner.trim_end_matches(".rs").split('/').filter(|part| !["lib", "mod"].contains(part)) {
        path.push_str("::");
        path.push_str(part);
    }
    path
}

fn file_items(file: &SourceFile, module: &str) -> Vec<String> {
    let (code, _) = RustFile::new(file).shipped_code();
    let mut scanner = Scanner { code: code.as_bytes(), at: 0, items: Vec::new() };
    scanner.items_of(module, false);
    scanner.items
}

struct Scanner<'a> {
    code: &'a [u8],
    at: usize,
    items: Vec<String>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    /// Reads the items of a module, an impl or a trait, up to its closing brace.
    fn items_of(&mut self, path: &str, all_public: bool) {
        while let Some(c) = self.peek() {
            match c {
                b'}' => {
                    self.at += 1;
                    return;
                }
                b'#' => {
                    self.until(|c| c == b'[');
                    self.at += 1;
                    self.skip_to_close();
                }
                c if c.is_ascii_whitespace() || c == b';' => self.at += 1,
                _ => self.item(path, all_public),
            }
        }
    }

    fn item(&mut self, path: &str, all_public: bool) {
        let start = self.at;
        self.until(|c| matches!(c, b'{' | b';' | b'}'));
        let mut header = self.text(start);
        let open = self.peek() == Some(b'{');
        let public = header.starts_with("pub ") || all_public;
        let bare = header.strip_prefix("pub ").unwrap_or(&header).to_owned();
        if bare.starts_with("use ") && open {
            self.until(|c| c == b';');
            header = self.text(start);
        }
        if self.peek() != Some(b'}') {
            self.at += 1;
        }
        if public && !header.starts_with("pub(") {
            self.items.push(format!("{path}: {}", shown(&header, &bare)));
        }
        if open && !bare.starts_with("use ") {
            self.body(path, &bare, public);
        }
    }

    /// Reads or skips what stands in the braces of the item with header `bare`.
    fn body(&mut self, path: &str, bare: &str, public: bool) {
        let name = |keyword: &str| bare.split_once(keyword).map(|(_, rest)| identifier(rest));
        if bare.starts_with("mod ") {
            self.items_of(&format!("{path}::{}", name("mod ").unwrap_or_default()), false);
        } else if bare.starts_with("impl") && !bare.contains(" for ") {
            self.items_of(&format!("{path}::{}", implemented(bare)), false);
        } else if public && (bare.starts_with("trait ") || bare.starts_with("unsafe trait ")) {
            self.items_of(&format!("{path}::{}", name("trait ").unwrap_or_default()), true);
        } else if public && bare.starts_with("struct ") {
            self.members(&format!("{path}::{}", name("struct ").unwrap_or_default()), false);
        } else if public && bare.starts_with("enum ") {
            self.members(&format!("{path}::{}", name("enum ").unwrap_or_default()), true);
        } else {
            self.skip_to_close();
        }
    }

    /// Reads the public fields of a struct, or the variants of an enum.
    fn members(&mut self, path: &str, all_public: bool) {
        loop {
            while self.peek().is_some_and(|c| c.is_ascii_whitespace() || c == b',') {
                self.at += 1;
            }
            match self.peek() {
                None => return,
                Some(b'}') => {
                    self.at += 1;
                    return;
                }
                Some(b'#') => {
                    self.until(|c| c == b'[');
                    self.at += 1;
                    self.skip_to_close();
                    continue;
                }
                Some(_) => {}
            }
            let start = self.at;
            let mut angle = 0_i32;
            while let Some(c) = self.peek() {
                match c {
                    b'<' => angle += 1,
                    b'>' if self.code[self.at - 1] != b'-' => angle -= 1,
                    b',' if angle == 0 => break,
                    b'}' => break,
                    b'(' | b'[' | b'{' => {
                        self.at += 1;
                        self.skip_to_close();
                        continue;
                    }
                    _ => {}
                }
                self.at += 1;
            }
            let member = self.text(start);
            if all_public || member.starts_with("pub ") {
                self.items.push(format!("{path}: {member}"));
            }
        }
    }

    /// Moves to the next byte that `stop` holds for, outside parentheses and brackets.
    fn until(&mut self, stop: impl Fn(u8) -> bool) {
        while let Some(c) = self.peek() {
            if stop(c) {
                return;
            }
            self.at += 1;
            if matches!(c, b'(' | b'[') {
                self.skip_to_close();
            }
        }
    }

    /// Moves behind the bracket that closes the one just read, whatever its kind.
    fn skip_to_close(&mut self) {
        let mut depth = 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// The text from `start` to here with every run of white space as one space.
    fn text(&self, start: usize) -> String {
        let text = String::from_utf8_lossy(&self.code[start..self.at]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace("{ ", "{").replace(", }", "}")
    }
}

/// The header without the value of a constant.
fn shown<'a>(header: &'a str, bare: &str) -> &'a str {
    let valued = bare.starts_with("static ") || (bare.starts_with("const ") && !bare.contains("fn "));
    if valued { header.split(" =").next().unwrap_or(header) } else { header }
}

fn identifier(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The type of an inherent `impl<…> path::Type<…>`.
fn implemented(header: &str) -> String {
    let mut rest = header.trim_start_matches("impl");
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '<') - i32::from(*c == '>');
            depth == 0
        });
        rest = end.map_or("", |(at, _)| &rest[at + 1..]);
    }
    let path = rest.split(['<', ' ']).find(|part| !part.is_empty()).unwrap_or_default();
    identifier(path.rsplit("::").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_public_item_is_listed_and_nothing_else() {
        let text = r#"
//! Docs with pub fn no().
pub mod outer { pub fn inner(a: u8,
    b: [u8; 4]) -> u8 { let x = "}"; 1 } fn private() {} }
pub(crate) fn hidden() {}
pub use a::{b, c};
/// Doc.
#[derive(Clone)]
pub struct S<T> { pub a: Vec<(u8, T)>, b: u8, pub c: HashMap<u8, u16> }
pub struct Tuple(pub u8);
impl<T: Into<u8>> S<T> { pub const N: usize = 4; pub fn new() -> Self where T: Copy { S } fn no(&self) {} }
impl<T> Clone for S<T> { fn clone(&self) -> Self { S } }
pub enum E { A, #[doc(hidden)] B(u8, u16), C { x: u8 }, D = 3 }
pub trait R { fn need(&self) -> u8; fn given(&self) { } }
macro_rules! m { () => { pub fn made() {} } }
pub const TABLE: &[(&str, u8)] = &[("a", 1), ("b", 2)];
#[cfg(test)]
mod tests { pub fn test() {} }
"#;
        let tree = Tree::made(&[("runtime/src/lib.rs", text), ("runtime/src/main.rs", "pub fn x() {}")]);
        let manifest =
            Manifest { path: "runtime/Cargo.toml".into(), name: "siskin".into(), ..Manifest::default() };
        let want = [
            "siskin: pub const TABLE: &[(&str, u8)]",
            "siskin: pub enum E",
            "siskin: pub mod outer",
            "siskin: pub struct S<T>",
            "siskin: pub struct Tuple(pub u8)",
            "siskin: pub trait R",
            "siskin: pub use a::{b, c}",
            "siskin::E: A",
            "siskin::E: B(u8, u16)",
            "siskin::E: C {x: u8 }",
            "siskin::E: D = 3",
            "siskin::R: fn given(&self)",
            "siskin::R: fn need(&self) -> u8",
            "siskin::S: pub a: Vec<(u8, T)>",
            "siskin::S: pub c: HashMap<u8, u16>",
            "siskin::S: pub const N: usize",
            "siskin::S: pub fn new() -> Self where T: Copy",
            "siskin::outer: pub fn inner(a: u8, b: [u8; 4]) -> u8",
        ];
        assert_eq!(public_api(&tree, &manifest), want);
    }
}

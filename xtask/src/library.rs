//! Checks the exports, imports and segment alignment of a shared library.

use crate::shell::{self, Result, output, program};
use std::path::Path;

/// The minimum alignment of loaded segments: 16 KiB pages, as on recent phones.
const PAGE: u64 = 16 << 10;
/// An edition of the library that ships to apps.
pub(crate) struct Edition {
    /// The suffix of the names of its packages.
    pub(crate) suffix: &'static str,
    /// Its features, as cargo arguments.
    pub(crate) features: [&'static str; 2],
}

/// Opens all formats; structured output by choices.
pub(crate) const COMPLETE: Edition = Edition {
    suffix: "",
    features: ["--no-default-features", "--features=import,templates,audio,constraints,tools,engine"],
};

/// Opens `.siskin` files; structured output by JSON Schema, regular expressions and grammars.
pub(crate) const GRAMMAR: Edition = Edition {
    suffix: "-grammar",
    features: ["--no-default-features", "--features=templates,audio,tools,engine,grammar"],
};

/// Flags of lld for libraries that apps ship, besides those that drop unused sections: functions with the same code are one.
pub(crate) const FOLD: &str = "-Wl,--icf=all";
/// Network functions, which must not be imported.
const NETWORK: [&str; 14] = [
    "socket",
    "socketpair",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "send",
    "sendto",
    "sendmsg",
    "recv",
    "recvfrom",
    "getaddrinfo",
    "gethostbyname",
];

/// The prefix of llguidance's C functions, which rustc exports, too, from a library with the feature `grammar`. Libraries
/// that are linked from the static one, as on Android, drop them.
const LLGUIDANCE: &str = "llg_";

/// The names in a library's symbol table.
struct Symbols {
    exported: Vec<String>,
    imported: Vec<String>,
}

/// Checks that the exports are those of `ffi/exports.txt`, that no network function is imported, and that all loaded
/// segments are aligned to large pages.
pub(crate) fn check(library: &Path) -> Result {
    let symbols = symbols(library)?;
    let listed = exports()?;
    let odd = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|name| !b.contains(name)).cloned().collect()
    };
    let exported: Vec<String> =
        symbols.exported.iter().filter(|name| !name.starts_with(LLGUIDANCE)).cloned().collect();
    let (more, less) = (odd(&exported, &listed), odd(&listed, &exported));
    if !more.is_empty() || !less.is_empty() {
        return Err(format!("exported but not listed: {more:?}; listed but not exported: {less:?}"));
    }
    let network: Vec<_> = symbols.imported.iter().filter(|name| NETWORK.contains(&name.as_str())).collect();
    if !network.is_empty() {
        return Err(format!("{} reaches a network: {network:?}", library.display()));
    }
    let alignment = alignment(&output(program("readelf", &["-lW"]).arg(library))?);
    if alignment.is_none_or(|least| least < PAGE) {
        return Err(format!("{}: alignment {alignment:?} of what is loaded", library.display()));
    }
    println!(
        "{} functions are exported, as ffi/exports.txt lists them; {} imported, none of a network; pages of 16 KiB",
        exported.len(),
        symbols.imported.len()
    );
    Ok(())
}

/// Returns the functions that the library exports.
pub(crate) fn exports() -> Result<Vec<String>> {
    let path = shell::root().join("ffi/exports.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn symbols(library: &Path) -> Result<Symbols> {
    Ok(read_symbols(&output(program("readelf", &["--dyn-syms", "-W"]).arg(library))?))
}

/// Parses `readelf`'s table: number, value, size, type, binding, visibility, section, name and version.
fn read_symbols(table: &str) -> Symbols {
    let mut symbols = Symbols { exported: Vec::new(), imported: Vec::new() };
    for line in table.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [_, _, _, _, "GLOBAL" | "WEAK", _, section, name, ..] = words[..] {
            let name = name.split('@').next().unwrap_or(name).to_owned();
            match section {
                "UND" => symbols.imported.push(name),
                _ => symbols.exported.push(name),
            }
        }
    }
    symbols
}

/// Returns the minimum alignment of the loaded segments.
fn alignment(segments: &str) -> Option<u64> {
    let loaded = segments.lines().map(str::trim_start).filter(|line| line.starts_with("LOAD "));
    let digits = loaded.map(|line| line.split_whitespace().next_back()?.strip_prefix("0x"));
    digits.map(|digits| u64::from_str_radix(digits?, 16).ok()).min().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let table = "\nSymbol table '.dynsym' contains 4 entries:\n   \
            Num:    Value          Size Type    Bind   Vis      Ndx Name\n     \
            0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND \n     \
            1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND connect@GLIBC_2.17 (2)\n     \
            2: 0000000000041dc0     8 FUNC    GLOBAL DEFAULT   12 siskin_abi_version\n";
        let symbols = read_symbols(table);
        assert_eq!(
            (symbols.exported, symbols.imported),
            (vec!["siskin_abi_version".into()], vec!["connect".into()])
        );
    }

    #[test]
    fn the_least_alignment_counts() {
        let line = |page| {
            format!("  LOAD  0x000000 0x0000000000000000 0x0000000000000000 0x3ec5f4 0x3ec5f4 R E {page}\n")
        };
        assert_eq!(alignment(&(line("0x10000") + &line("0x4000"))), Some(0x4000));
        assert_eq!(alignment(&(line("0x10000") + &line("0x1000"))), Some(0x1000));
        assert_eq!(alignment("no segments"), None);
    }
}

//! Licenses and sources of the packages in the dependency tree, as `cargo metadata` lists them.

use serde_json::Value;

/// Allowed licenses; `deny.toml` has the same list.
const ALLOWED: [&str; 9] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "Unicode-3.0", "Zlib"];
/// Packages with other licenses; `deny.toml` has the same list, and the reasons.
const EXCEPTIONS: [(&str, &[&str]); 3] = [
    (
        "MPL-2.0",
        &[
            "cbindgen",
            "symphonia",
            "symphonia-bundle-flac",
            "symphonia-bundle-mp3",
            "symphonia-codec-aac",
            "symphonia-codec-vorbis",
            "symphonia-common",
            "symphonia-core",
            "symphonia-format-isomp4",
            "symphonia-format-mkv",
            "symphonia-format-ogg",
            "symphonia-metadata",
        ],
    ),
    ("Apache-2.0 WITH LLVM-exception", &["target-lexicon"]),
    ("CDLA-Permissive-2.0", &["webpki-roots"]),
];
/// Packages with network code that nothing here depends on.
const BANNED: [&str; 5] = ["curl", "model_config", "native-tls", "openssl-sys", "reqwest"];

/// Returns true if the SPDX expression can be satisfied with allowed licenses only.
pub fn license_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = expression.split_whitespace().peekable();
    either(&mut words) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>) -> bool {
    let mut met = both(words);
    while words.next_if_eq(&"OR").is_some() {
        let other = both(words);
        met |= other;
    }
    met
}

fn both(words: &mut Words<'_>) -> bool {
    let mut met = one(words);
    while words.next_if_eq(&"AND").is_some() {
        let other = one(words);
        met &= other;
    }
    met
}

fn one(words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = either(words);
        return words.next() == Some(")") && met;
    }
    let met = words.next().is_some_and(|word| ALLOWED.contains(&word));
    // An exception only widens what the license permits.
    if words.next_if_eq(&"WITH").is_some() {
        return words.next().is_some() && met;
    }
    met
}

/// Returns packages of `cargo metadata` whose license, source or purpose is not allowed.
pub fn packages_allowed(metadata: &Value) -> Vec<String> {
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut breaches = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let place = format!("Cargo.lock:1: {} {}", text(package, "name"), text(package, "version"));
        let license = text(package, "license");
        let name = text(package, "name");
        let is_exception =
            EXCEPTIONS.iter().any(|(allowed, names)| license == *allowed && names.contains(&name.as_str()));
        if !is_exception && !license_allowed(&license) {
            breaches.push(format!("{place}: license `{license}` is not on the list of deny.toml"));
        }
        let source = text(package, "source");
        if !source.is_empty() && !source.ends_with("/crates.io-index") {
            breaches.push(format!("{place}: comes from `{source}`; only crates.io may be used"));
        }
        if BANNED.contains(&text(package, "name").as_str()) {
            breaches.push(format!("{place}: network code has no place here"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_says() {
        let rows = [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense OR MIT", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(GPL-3.0 OR MIT) AND LGPL-2.1", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("", false),
            ("(MIT", false),
        ];
        for (expression, allowed) in rows {
            assert_eq!(license_allowed(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn sources_and_bans_are_checked() {
        let package = |name: &str, source: &str| serde_json::json!({"packages": [{"name": name, "version": "1.0.0", "license": "MIT", "source": source}]});
        assert_eq!(packages_allowed(&package("a", "registry+x/crates.io-index")).len(), 0);
        assert_eq!(packages_allowed(&package("a", "git+x/y")).len(), 1);
        assert_eq!(packages_allowed(&package("reqwest", "registry+x/crates.io-index")).len(), 1);
    }
}

//! The Android package maps every error and constant of the header, and the code of its page is compiled.

use siskin_tests::{arch_rules, header, paths};

fn tree() -> arch_rules::Tree {
    arch_rules::Tree::read(&paths::root())
}

/// Returns the texts of the files with this extension below a folder.
fn texts<'a>(tree: &'a arch_rules::Tree, folder: &str, ending: &str) -> Vec<&'a str> {
    let wanted = |path: &str| path.starts_with(folder) && path.ends_with(ending);
    tree.files.iter().filter(|file| wanted(&file.path)).map(|file| file.text.as_str()).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(paths::root().join(path)).expect("the file exists")
}

#[test]
fn every_error_has_an_exception() {
    let kotlin = read("android/src/main/kotlin/ai/siskin/SiskinException.kt");
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, number) in header::constants(&read("ffi/include/siskin.h")) {
        let Some(name) = name.strip_prefix("SISKIN_ERROR_") else { continue };
        count += 1;
        if !kotlin.contains(&format!("const val SISKIN_ERROR_{name}: Int = {number}\n")) {
            wrong.push(format!("SISKIN_ERROR_{name} is not {number} in Kotlin"));
        }
        if !kotlin.contains(&format!("SISKIN_ERROR_{name} -> ")) {
            wrong.push(format!("SISKIN_ERROR_{name} has no exception"));
        }
    }
    assert!(count > 20, "no errors were found in the header");
    arch_rules::assert_clean("Kotlin has every error of the header.", &wrong);
}

/// A list of constants of the header, and the Kotlin enum or sealed class for it.
struct ConstantList {
    prefix: &'static str,
    kotlin: &'static str,
    /// Each constant without its prefix, and the Kotlin name.
    names: &'static [(&'static str, &'static str)],
    /// Constants that are `null` in Kotlin.
    null: &'static [&'static str],
}

const LISTS: [ConstantList; 6] = [
    ConstantList {
        prefix: "SISKIN_CAPABILITY_",
        kotlin: "enum class Capability",
        names: &[
            ("GENERATE", "GENERATE"),
            ("ENCODE", "ENCODE"),
            ("CHAT", "CHAT"),
            ("TOKENIZE", "TOKENIZE"),
            ("TRANSCRIBE", "TRANSCRIBE"),
            ("CLASSIFY", "CLASSIFY"),
            ("TAG", "TAG"),
            ("ANSWER", "ANSWER"),
            ("FILL_MASK", "FILL_MASK"),
        ],
        null: &[],
    },
    ConstantList {
        prefix: "SISKIN_FINISH_REASON_",
        kotlin: "enum class FinishReason",
        names: &[
            ("EOS", "EOS"),
            ("STOP", "STOP"),
            ("LENGTH", "LENGTH"),
            ("CONTEXT", "CONTEXT"),
            ("TIMEOUT", "TIMEOUT"),
            ("CANCELED", "CANCELED"),
        ],
        null: &["NONE"],
    },
    ConstantList {
        prefix: "SISKIN_POOLING_",
        kotlin: "enum class Pooling",
        names: &[
            ("MEAN", "MEAN"),
            ("FIRST", "FIRST"),
            ("LAST", "LAST"),
            ("MAX", "MAX"),
            ("WEIGHTED", "WEIGHTED"),
        ],
        null: &["AUTO"],
    },
    ConstantList {
        prefix: "SISKIN_LOG_",
        kotlin: "enum class LogLevel",
        names: &[("INFO", "INFO"), ("WARNING", "WARNING")],
        null: &[],
    },
    ConstantList {
        prefix: "SISKIN_OVERFLOW_",
        kotlin: "sealed class OverflowMode",
        names: &[("ERROR", "Error"), ("TRUNCATE", "Truncate"), ("WINDOW", "Window")],
        null: &[],
    },
    ConstantList {
        prefix: "SISKIN_THROTTLE_",
        kotlin: "sealed class Throttle",
        names: &[
            ("OFF", "Off"),
            ("ADAPTIVE", "Adaptive"),
            ("TOKENS_PER_SECOND", "TokensPerSecond"),
            ("DUTY_CYCLE", "DutyCycle"),
            ("BACKGROUND", "Background"),
        ],
        null: &[],
    },
];

/// Returns the names of the header's constants with this prefix, without it, in order.
fn constants<'a>(header: &'a str, prefix: &str) -> Vec<&'a str> {
    header::constants(header).into_iter().filter_map(|(name, _)| name.strip_prefix(prefix)).collect()
}

/// Returns the entries of an enum, or the subclasses of a sealed class, in order.
fn entries<'a>(kotlin: &'a str, list: &str) -> Vec<&'a str> {
    let body = kotlin.split(list).nth(1).and_then(|rest| rest.split_once('{')).map_or("", |(_, rest)| rest);
    let body = body.split("\n}").next().unwrap_or_default();
    let is_entry =
        |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
    let entry = |line: &'a str| match list.starts_with("enum") {
        true => line.strip_suffix(',').filter(|name| is_entry(name)),
        false => line
            .strip_prefix("public data object ")
            .or_else(|| line.strip_prefix("public data class "))?
            .split([' ', '('])
            .next(),
    };
    body.lines().filter_map(|line| entry(line.trim())).collect()
}

/// Kotlin passes the index of an enum's entry to the library.
#[test]
fn lists_have_the_order_of_the_header() {
    let tree = tree();
    let kotlin = texts(&tree, "android/src/main/kotlin/", ".kt").join("\n");
    let header = read("ffi/include/siskin.h");
    let mut wrong = Vec::new();
    for ConstantList { prefix, kotlin: list, names, null } in LISTS {
        let theirs: Vec<&str> =
            constants(&header, prefix).into_iter().filter(|name| !null.contains(name)).collect();
        let ours = entries(&kotlin, list);
        let (expected, expected_kotlin): (Vec<&str>, Vec<&str>) = names.iter().copied().unzip();
        if theirs != expected {
            wrong.push(format!("{prefix}: the header has {theirs:?}, and this test {expected:?}"));
        }
        if ours != expected_kotlin {
            wrong.push(format!("{list}: Kotlin has {ours:?}, and this test {expected_kotlin:?}"));
        }
    }
    arch_rules::assert_clean("Kotlin's lists have the order of the header.", &wrong);
}

/// Subclasses of sealed classes pass the number of their constant, which is that of their place in the list.
#[test]
fn sealed_classes_are_numbered() {
    let tree = tree();
    let kotlin = texts(&tree, "android/src/main/kotlin/", ".kt").join("\n");
    for list in ["OverflowMode", "Throttle"] {
        let count = entries(&kotlin, &format!("sealed class {list}")).len();
        let numbers: Vec<usize> = kotlin
            .split(&format!(": {list}("))
            .skip(1)
            .filter_map(|rest| rest.split([',', ')']).next()?.parse().ok())
            .collect();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{list}");
    }
}

#[test]
fn handles_do_not_depend_on_android() {
    let tree = tree();
    for text in texts(&tree, "android/src/main/kotlin/", ".kt") {
        assert!(!text.contains("import android."), "Android-specific code belongs in android/src/android");
    }
}

#[test]
fn code_of_the_page_is_compiled() {
    let tree = tree();
    let flat = |text: &str| -> String { text.lines().map(str::trim).collect::<Vec<_>>().join("\n") };
    let files = [texts(&tree, "android/", ".kt"), texts(&tree, "android/", ".java")].concat();
    let sources: Vec<String> = files.into_iter().map(flat).collect();
    let gradle: Vec<String> = ["settings.gradle.kts", "app/build.gradle.kts"]
        .iter()
        .map(|name| flat(&read(&format!("android/sample/{name}"))))
        .collect();
    let page = read("docs/android.md");
    let mut count = 0;
    let blocks = ["```kotlin\n", "```java\n"].map(|fence| page.split(fence).skip(1));
    for block in blocks.into_iter().flatten() {
        let block = flat(block.split("```").next().unwrap_or_default());
        let block = block.trim();
        assert!(
            sources.iter().chain(&gradle).any(|source| source.contains(block)),
            "docs/android.md shows code that is in no file of android/:\n{block}"
        );
        count += 1;
    }
    assert!(count >= 3, "no code was found on the page");
}

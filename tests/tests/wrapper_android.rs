//! The Android package covers the whole header, maps every error, and its page shows programs that are compiled.

use siskin_tests::header::constants;
use siskin_tests::{house, paths};

fn tree() -> house::Tree {
    house::Tree::read(&paths::root())
}

/// Returns the texts of the files with this extension below a folder.
fn texts<'a>(tree: &'a house::Tree, folder: &str, ending: &str) -> Vec<&'a str> {
    let wanted = |path: &str| path.starts_with(folder) && path.ends_with(ending);
    tree.files.iter().filter(|file| wanted(&file.path)).map(|file| file.text.as_str()).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(paths::root().join(path)).expect("the file is there")
}

/// Returns true if a name occurs in a text as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_word(text[..at].chars().next_back()) && !is_word(text[at + word.len()..].chars().next())
    })
}

#[test]
fn every_function_is_reached() {
    let tree = tree();
    let bridge = texts(&tree, "android/src/main/cpp/", ".c");
    let left_out = read("android/not-wrapped.txt");
    let mut wrong = Vec::new();
    for name in read("ffi/exports.txt").lines() {
        let reached = bridge.iter().any(|text| has_word(text, name));
        let listed = left_out
            .lines()
            .any(|line| line.split_once(": ").is_some_and(|(known, why)| known == name && why.len() > 10));
        if reached == listed {
            wrong.push(format!("{name}: reached {reached}, listed in android/not-wrapped.txt {listed}"));
        }
    }
    let exported = read("ffi/exports.txt");
    let stale =
        left_out.lines().filter(|line| !exported.lines().any(|name| line.starts_with(&format!("{name}: "))));
    wrong.extend(stale.map(|line| format!("android/not-wrapped.txt: {line}")));
    house::assert_clean("Kotlin reaches every function of the header.", &wrong);
}

#[test]
fn every_error_has_its_number() {
    let kotlin = read("android/src/main/kotlin/ai/siskin/SiskinException.kt");
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, number) in constants(&read("ffi/include/siskin.h")) {
        let Some(name) = name.strip_prefix("SISKIN_ERROR_") else { continue };
        count += 1;
        if !kotlin.contains(&format!("const val SISKIN_ERROR_{name}: Int = {number}\n")) {
            wrong.push(format!("SISKIN_ERROR_{name} is not {number} in Kotlin"));
        }
        if !kotlin.contains(&format!("SISKIN_ERROR_{name} -> ")) {
            wrong.push(format!("SISKIN_ERROR_{name} makes no exception"));
        }
    }
    assert!(count > 20, "the header's errors are not read");
    house::assert_clean("Kotlin has every error of the header.", &wrong);
}

/// Kotlin's enums have the order of the header: an entry's index is its number.
#[test]
fn lists_have_the_order_of_the_header() {
    let tree = tree();
    let kotlin = texts(&tree, "android/src/main/kotlin/", ".kt").join("\n");
    let header = read("ffi/include/siskin.h");
    let lists = [
        ("SISKIN_CAPABILITY_", "enum class Ability"),
        ("SISKIN_KV_CACHE_", "enum class CacheType"),
        ("SISKIN_FINISH_REASON_", "enum class Ended"),
        ("SISKIN_TRIM_", "enum class Trim"),
        ("SISKIN_OVERFLOW_", "enum class LongTexts"),
        ("SISKIN_POOLING_", "enum class Pooling"),
        ("SISKIN_LOG_", "enum class LogLevel"),
    ];
    let mut wrong = Vec::new();
    for (prefix, list) in lists {
        let theirs = constants(&header).into_iter().filter_map(|(name, _)| name.strip_prefix(prefix));
        let theirs: Vec<&str> = theirs.filter(|name| *name != "NONE").collect();
        let body =
            kotlin.split(list).nth(1).and_then(|rest| rest.split_once('{')).map_or("", |(_, rest)| rest);
        let ours: Vec<&str> = body
            .split('}')
            .next()
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.trim().strip_suffix(','))
            .filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()))
            .collect();
        if ours != theirs || ours.is_empty() {
            wrong.push(format!("{list}: {ours:?} are not {theirs:?}"));
        }
    }
    house::assert_clean("Kotlin's lists are in the order of the header's numbers.", &wrong);
}

#[test]
fn options_have_the_order_of_the_header() {
    let header = read("ffi/include/siskin.h");
    let tables = [
        ("SISKIN_SAMPLER_", "Sampler.kt", "listOf(\n"),
        ("SISKIN_SEQ2SEQ_", "Writer.kt", "listOf<Number?>("),
        ("SISKIN_TRANSCRIBE_", "Transcriber.kt", "listOf(translate"),
    ];
    let mut wrong = Vec::new();
    for (prefix, file, begin) in tables {
        let kotlin = read(&format!("android/src/main/kotlin/ai/siskin/{file}"));
        let from = kotlin.find(begin).expect("the list is there");
        let list = &kotlin[from..][kotlin[from..].find('(').unwrap_or(0) + 1..];
        let list = list.split("\n    )").next().unwrap_or_default().replace("?.number()", "");
        let ours: Vec<String> = list
            .split([',', ')', '\n'])
            .map(|name| name.trim().to_lowercase())
            .take_while(|name| !name.starts_with('.'))
            .filter(|name| !name.is_empty())
            .collect();
        let theirs = constants(&header).into_iter().filter_map(|(name, _)| name.strip_prefix(prefix));
        let theirs: Vec<String> = theirs.map(|name| name.replace('_', "").to_lowercase()).collect();
        if ours.get(..theirs.len()) != Some(&theirs[..]) {
            wrong.push(format!("{file}: {ours:?} are not {theirs:?}"));
        }
    }
    house::assert_clean("Kotlin's options are in the order of the header's numbers.", &wrong);
}

#[test]
fn the_handles_need_no_android() {
    let tree = tree();
    for text in texts(&tree, "android/src/main/kotlin/", ".kt") {
        assert!(!text.contains("import android."), "what needs Android stands in android/src/android");
    }
}

#[test]
fn programs_of_the_page_are_compiled() {
    let tree = tree();
    let flat = |text: &str| -> String { text.lines().map(str::trim).collect::<Vec<_>>().join("\n") };
    let sources: Vec<String> = texts(&tree, "android/", ".kt").into_iter().map(flat).collect();
    let gradle: Vec<String> = ["settings.gradle.kts", "app/build.gradle.kts"]
        .iter()
        .map(|name| flat(&read(&format!("android/sample/{name}"))))
        .collect();
    let page = read("docs/android.md");
    let mut count = 0;
    for block in page.split("```kotlin\n").skip(1) {
        let block = flat(block.split("```").next().unwrap_or_default());
        let block = block.trim();
        assert!(
            sources.iter().chain(&gradle).any(|source| source.contains(block)),
            "docs/android.md shows what no file of android/ has:\n{block}"
        );
        count += 1;
    }
    assert!(count >= 3, "the page's programs are not read");
}

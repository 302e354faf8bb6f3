//! The help of every command is as committed, so that a change of an option is seen in review.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_siskin")).arg("help").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    // Lines of paragraphs in a list end with spaces.
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns the name and the help of the program and of each command.
fn pages() -> Vec<(String, String)> {
    let whole = help(&[]);
    let lines = whole.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names: Vec<String> = names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(names.len() > 20, "{names:?}");
    let commands = names.iter().filter(|name| *name != "help");
    let mut pages: Vec<_> = commands.map(|name| (name.clone(), help(&[name]))).collect();
    pages.push(("siskin".to_owned(), whole));
    pages
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

#[test]
fn help_is_as_committed() {
    let pages = pages();
    for (name, page) in &pages {
        let committed = std::fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap_or_default();
        let differing = page.lines().zip(committed.lines()).find(|(now, before)| now != before);
        assert!(
            *page == committed,
            "the help of `{name}` changed at {differing:?}; if that is meant, run `cargo xtask cli-help --bless`"
        );
    }
    let files = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(files, pages.len(), "a file of a command that is gone; run `cargo xtask cli-help --bless`");
}

#[test]
#[ignore = "writes the committed help"]
fn bless_help() {
    let _ = std::fs::remove_dir_all(folder());
    std::fs::create_dir_all(folder()).unwrap();
    for (name, page) in pages() {
        std::fs::write(folder().join(format!("{name}.txt")), page).unwrap();
    }
}

#[test]
fn options_stand_under_their_headings() {
    for (name, page) in pages() {
        let mut heading = "";
        for line in page.lines() {
            if !line.starts_with(' ') && line.ends_with(':') {
                heading = line;
            }
            let option = line.trim_start().trim_start_matches("-q, ").trim_start_matches("-t, ");
            let option = option.split([' ', ',']).next().unwrap_or_default();
            for (known, expected) in [
                ("--json", "Options:"),
                ("--json-schema", "Structured output:"),
                ("--threads", "Model:"),
                ("--top-p", "Sampling:"),
                ("--max-tokens", if name == "run" || name == "chat" { "Generation:" } else { heading }),
                ("--window", "Context:"),
                ("--result-cache", "Result cache:"),
                ("--quiet", "Global options:"),
            ] {
                assert!(option != known || heading == expected, "{name}: {line} under {heading}");
            }
        }
        assert_eq!(page.matches("\nOptions:\n").count(), 1, "{name}");
    }
}

#[test]
fn options_of_other_programs_are_suggested() {
    for (arguments, suggestion) in [
        (&["run", "shakespeare", "a", "--ctx", "100"][..], "'--context'"),
        (&["run", "shakespeare", "a", "--n-predict=9"], "'--max-tokens'"),
        (&["chat", "shakespeare", "--temp", "1"], "'--temperature'"),
        (&["translate", "m", "a", "--num-beams", "4"], "'--beams'"),
        (&["run", "shakespeare", "a", "--top_p", "1"], "'--top-p'"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_siskin")).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(suggestion) && !errors.contains("as a value"), "{arguments:?}: {errors}");
    }
}

#[test]
fn commands_without_a_model_list_no_options_for_packed_files() {
    for (name, page) in pages() {
        let packs = !["alias", "completions", "convert", "list", "man", "pull", "show", "tokenize", "verify"]
            .contains(&name.as_str());
        assert_eq!(page.contains("--no-cache"), packs, "{name}");
    }
}

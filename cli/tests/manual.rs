//! The manual page lists every command and option of the program.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

fn help() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_siskin")).arg("help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names in the first column of a section of the help text.
fn listed(help: &str, section: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| line.trim().split("  ").next().unwrap().to_owned()).collect()
}

/// Returns the items of a section of the manual page, without markup.
fn described(section: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../linux/debian/siskin.1");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!(".SH {section}\n")).unwrap();
    let rest = rest.split("\n.SH ").next().unwrap();
    let items = rest.split(".TP\n").skip(1).map(|item| item.lines().next().unwrap());
    let plain = |item: &str| {
        let (_, words) = item.split_once(' ').unwrap();
        words.replace('\\', "").replace(['"', ' '], "")
    };
    items.map(plain).collect()
}

#[test]
fn commands_are_those_of_the_program() {
    let commands = listed(&help(), "Commands:");
    assert!(commands.contains(&"serve".to_owned()) && commands.len() > 20, "{commands:?}");
    assert_eq!(commands, described("COMMANDS"));
}

#[test]
fn options_are_those_of_the_program() {
    let plain = |option: String| option.replace(['<', '>', ' '], "");
    let options: Vec<String> = listed(&help(), "Options:").into_iter().map(plain).collect();
    assert!(options.contains(&"--no-cache".to_owned()), "{options:?}");
    assert_eq!(options, described("OPTIONS"));
}

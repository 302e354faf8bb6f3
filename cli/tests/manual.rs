//! The manual page and the completions have every command and option of the program.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_siskin")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the commands in the help text.
fn commands() -> Vec<String> {
    let help = printed(&["help"]);
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<String> =
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(commands.len() > 20, "{commands:?}");
    commands
}

#[test]
fn the_manual_page_has_every_command() {
    let page = printed(&["man"]).replace("\\-", "-");
    for command in commands() {
        assert!(page.contains(&format!("siskin-{command}(1)")), "{command}");
    }
    for section in ["NAME", "SYNOPSIS", "OPTIONS", "FILES", "EXIT STATUS", "EXAMPLES"] {
        assert!(page.contains(section), "{section}");
    }
    assert!(page.contains("--no-cache"));
}

#[test]
fn a_command_has_a_page_with_its_options() {
    let page = printed(&["man", "run"]).replace("\\-", "-");
    assert!(page.contains("--max-tokens") && page.contains("--no-cache"), "{page}");
    let unknown = Command::new(env!("CARGO_BIN_EXE_siskin")).args(["man", "walk"]).output().unwrap();
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("`walk` is not a command"));
}

#[test]
fn completions_have_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
}

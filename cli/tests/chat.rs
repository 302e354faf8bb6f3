//! `siskin chat` without a terminal: one line is one message or command, unless it continues.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TEMPLATE: &str = "{% for message in messages %}{{ message.content }} {% endfor %}w9";

fn model(name: &str) -> PathBuf {
    with_template(name, TEMPLATE)
}

/// A tiny golden model with a tokenizer of the words w5 to w79 and a chat template, in its own folder.
pub(super) fn with_template(name: &str, template: &str) -> PathBuf {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chat").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(data.join("golden/llama").join(file), folder.join(file)).unwrap();
    }
    std::fs::copy(data.join("golden-exits/words.json"), folder.join("tokenizer.json")).unwrap();
    let config = json!({ "chat_template": template }).to_string();
    std::fs::write(folder.join("tokenizer_config.json"), config).unwrap();
    folder
}

/// Answers have one token: words that follow each other without a space are not read back as the same tokens.
fn chat(model: &Path, options: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_siskin"))
        .args(["chat", model.to_str().unwrap(), "--no-cache", "--greedy", "-n", "1"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn lines_are_messages_and_answers_are_plain() {
    let folder = model("lines");
    let output = chat(&folder, &[], "w5 w6\n\nw7\n");
    let shown = text(&output);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(!shown.contains('\x1b') && !errors(&output).contains('\x1b'));
    assert!(errors(&output).contains("tokens/s"));
    assert!(!errors(&chat(&folder, &["--quiet"], "w5\n")).contains("tokens/s"));
}

#[test]
fn messages_of_several_lines_and_quoted_commands_are_one_message() {
    let folder = model("several");
    let alone = text(&chat(&folder, &[], "w5\n/context\n"));
    for lines in ["\"\"\"\nw5\n\"\"\"\n/context\n", "\"\"\"w5\"\"\"\n/context\n"] {
        assert_eq!(text(&chat(&folder, &[], lines)), alone, "{lines:?}");
    }
    assert_eq!(text(&chat(&folder, &[], "w5\\\nw6\n")).lines().count(), 1);
    let quoted = chat(&folder, &[], "\"\"\"/exit\"\"\"\nw5\n");
    assert_eq!(text(&quoted).lines().count(), 2, "{}", errors(&quoted));
}

#[test]
fn messages_stay_if_their_replacement_has_no_answer() {
    let folder = model("replaced");
    let alone = text(&chat(&folder, &["-c", "40"], "w5 w6\n/context\n"));
    let long = "w7 ".repeat(60);
    let failed = chat(&folder, &["-c", "40"], &format!("w5 w6\n/edit {long}\n/context\n"));
    assert!(errors(&failed).contains("error:"), "{}", errors(&failed));
    let messages =
        |output: &str| output.lines().last().and_then(|line| line.rsplit(", ").next().map(str::to_owned));
    assert_eq!(messages(&text(&failed)), messages(&alone));
}

#[test]
fn undo_and_retry_leave_the_conversation_as_it_was() {
    let folder = model("undo");
    let alone = text(&chat(&folder, &[], "w5 w6\n/context\n"));
    let undone = text(&chat(&folder, &[], "w5 w6\nw7 w8\n/undo\n/context\n"));
    assert_eq!(undone.lines().next(), alone.lines().next());
    assert_eq!(undone.lines().last(), alone.lines().last(), "tokens and messages");
    let retried = text(&chat(&folder, &[], "w5 w6\n/retry\n/context\n"));
    assert_eq!(retried.lines().nth(1), alone.lines().next(), "greedy answers are the same");
    assert_eq!(retried.lines().last(), alone.lines().last());
    let edited = text(&chat(&folder, &[], "w7\n/edit w5 w6\n/context\n"));
    assert_eq!(edited.lines().nth(1), alone.lines().next());
    let nothing = chat(&folder, &[], "/undo\n/retry\n");
    assert_eq!(errors(&nothing).matches("there is no message yet").count(), 2, "{}", errors(&nothing));
}

#[test]
fn conversations_are_saved_loaded_and_exported() {
    let folder = model("files");
    // A file in the model's folder would be a part of the model.
    let outputs = folder.with_file_name("files-written");
    let _ = std::fs::remove_dir_all(&outputs);
    std::fs::create_dir_all(&outputs).unwrap();
    let path = |name: &str| outputs.join(name).to_str().unwrap().to_owned();
    let [saved, markdown, exported] = [path("a.session"), path("a.md"), path("a.json")];
    let lines = format!("w5 w6\n/save {saved}\n/export {markdown}\n/export {exported}\nw7\n");
    let first = text(&chat(&folder, &["--system", "w20"], &lines));
    let value: Value = serde_json::from_slice(&std::fs::read(&exported).unwrap()).unwrap();
    let messages = value["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!(messages[2]["content"], first.lines().next().unwrap());
    assert!(std::fs::read_to_string(&markdown).unwrap().contains("\n## User\n\nw5 w6\n"));
    for file in [&saved, &exported] {
        let again = text(&chat(&folder, &[], &format!("/load {file}\nw7\n")));
        assert_eq!(again.lines().last(), first.lines().last(), "{file}");
    }
    // Neither the model nor another program's file is replaced.
    let notes = outputs.join("notes.md");
    std::fs::write(&notes, "mine").unwrap();
    for target in [folder.join("config.json"), notes, folder.join("model.safetensors")] {
        let before = std::fs::read(&target).unwrap();
        for command in ["save", "export"] {
            let output = chat(&folder, &[], &format!("w5\n/{command} {}\n", target.display()));
            assert!(errors(&output).contains("error: "), "{command} {target:?}: {}", errors(&output));
            assert_eq!(std::fs::read(&target).unwrap(), before);
        }
    }
}

#[test]
fn options_and_models_change_during_a_conversation() {
    let folder = model("settings");
    let output = chat(&folder, &[], "/set max_tokens 2\n/set\nw5 w6\n/set temprature 1\n/set top_p 7\n");
    let listed = text(&output);
    let line = listed.lines().find(|line| line.starts_with("max_tokens ")).unwrap();
    assert!(line.ends_with(" 2"), "{line}");
    assert!(errors(&output).contains("did you mean `temperature`?"), "{}", errors(&output));
    assert!(errors(&output).contains(" 2 tokens in") && errors(&output).contains("error: /set top_p"));
    let other = model("settings-other");
    let lines = format!("w5 w6\n/model {}\nw7\n/context\n", other.display());
    let alone = text(&chat(&folder, &[], "w5 w6\nw7\n/context\n"));
    assert_eq!(text(&chat(&folder, &[], &lines)), alone, "the same weights answer the same conversation");
    let missing = chat(&folder, &[], "/model /no/such/model\nw5\n");
    assert!(errors(&missing).contains("no such file") && text(&missing).lines().count() == 1);
}

#[test]
fn commands_are_listed_and_misspelled_ones_named() {
    let folder = model("commands");
    let output = chat(&folder, &[], "/help\n/sav x\n/stats\n/clear now\n/exit\nw5\n");
    let shown = text(&output);
    for command in [
        "/help",
        "/exit",
        "/clear",
        "/system TEXT",
        "/set OPTION VALUE",
        "/model PATH",
        "/undo",
        "/retry",
        "/edit",
        "/save FILE",
        "/load FILE",
        "/export FILE",
        "/context",
        "/stats",
    ] {
        assert!(shown.contains(command), "{command}: {shown}");
    }
    assert!(shown.contains("KV cache") && !shown.contains("w5"), "{shown}");
    assert!(errors(&output).contains("did you mean `/save`?"), "{}", errors(&output));
    assert!(errors(&output).contains("/clear: takes no argument"), "{}", errors(&output));
}

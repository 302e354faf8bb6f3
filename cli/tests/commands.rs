//! The command line from a script: output, errors, exit codes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn siskin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_siskin"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that has already exited closes its standard input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn file(name: &str, contents: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, contents).unwrap();
    path
}

/// Words and their WordPiece token ids.
const TOKENIZER: &str = r###"{"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "sis": 2, "##kin": 3}}}"###;

#[test]
fn tokenize_takes_text_from_either_place() {
    let path = file("words.json", TOKENIZER.as_bytes());
    let path = path.to_str().unwrap();
    let found = siskin(&["tokenize", path, "a siskin"], b"");
    assert_eq!(String::from_utf8(found.stdout.clone()).unwrap(), "1 2 3\n", "{}", errors(&found));
    let found = siskin(&["tokenize", path, "--stdin", "--json", "--no-special"], b"siskin a\n");
    assert_eq!(String::from_utf8(found.stdout.clone()).unwrap(), "{\"ids\":[2,3,1]}\n", "{}", errors(&found));
}

#[test]
fn text_that_is_not_utf8_is_an_argument_error() {
    let path = file("utf8.json", TOKENIZER.as_bytes());
    let found = siskin(&["tokenize", path.to_str().unwrap(), "--stdin"], b"a \xff");
    assert_eq!(found.status.code(), Some(2));
    assert!(errors(&found).contains("byte 2"), "{}", errors(&found));
}

#[test]
fn exit_codes_tell_what_is_wrong() {
    let bad = file("bad.siskin", b"no model at all");
    let bad = bad.to_str().unwrap();
    for (arguments, code) in [
        (&["verify", bad][..], 3),
        (&["run", bad, "hello"], 3),
        (&["run", "/no/such/model", "hello"], 3),
        (&["verify", "/no/such/model"], 3),
        (&["tokenize", "/no/such/model", "a"], 3),
        (&["convert", "/no/such/model", "-o", "out.siskin"], 3),
        (&["run", bad], 2),
        (&["run", bad, ""], 2),
        (&["run", bad, "hello", "--kv", "q8_0"], 2),
        (&["run", bad, "hello", "--top-p", "7"], 2),
        (&["run", bad, "hello", "--logit-bias", "7"], 2),
        (&["bench", bad, "--cpu-features", "x"], 2),
        (&["run", "shakespeare", "-f", "/no/such/file"], 3),
        (&["perplexity", "shakespeare", "/no/such/file"], 3),
        (&["inspect", "/no/such/model"], 3),
        (&["chat", "/no/such/model"], 3),
        (&["export", "/no/such/model", "-o", "out.gguf"], 3),
        (&["verify", "shakespeare"], 0),
        (&["tokenize", "shakespeare", "ROMEO:"], 0),
        (&["convert", "shakespeare", "-o", "out.siskin"], 2),
        (&["run", "shakespeare", "a", "--contxt", "9"], 2),
        (&["logits", bad, "--input", "/no/such/file", "--output", "/no/such/file"], 3),
        (&["doctor"], 0),
        (&["help"], 0),
    ] {
        let found = siskin(arguments, b"");
        assert_eq!(found.status.code(), Some(code), "{arguments:?}: {}", errors(&found));
        assert!(code == 0 || errors(&found).starts_with("error: "), "{arguments:?}");
        let missing = arguments.iter().any(|argument| argument.starts_with("/no/such/"));
        assert!(
            !missing || errors(&found).contains("no such file or directory"),
            "{arguments:?}: {}",
            errors(&found)
        );
        assert!(!errors(&found).contains("siskin help"), "{arguments:?}: {}", errors(&found));
    }
}

#[test]
fn options_without_effect_are_rejected() {
    // Invalid arguments are reported before the model is opened.
    let model = "/no/such/model";
    for (arguments, words) in [
        (&["generate", model, "a", "--top-k", "5"][..], "--sample: "),
        (&["translate", model, "a", "--logit-bias", "7=1"], "--sample: "),
        (&["summarize", model, "a", "--dry-sequence-breaker", "."], "--sample: "),
        (&["generate", model, "a", "--sample", "--early-stopping", "true"], "cannot be used with"),
        (&["generate", model, "a", "--greedy", "--beams", "3"], "cannot be used with"),
        (&["generate", model, "a", "--overlap", "3"], "--overlap: "),
        (&["embed", model, "a", "--overlap", "3", "--overflow", "truncate"], "--overlap: "),
        (&["tag", model, "a", "--overlap", "3"], "--overlap: "),
        (&["classify", model, "a", "--overflow", "window"], "[possible values: error, truncate]"),
        (&["rerank", model, "a", "b", "--overflow", "window"], "[possible values: error, truncate]"),
    ] {
        let found = siskin(arguments, b"");
        assert_eq!(found.status.code(), Some(2), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(words), "{arguments:?}: {}", errors(&found));
    }
}

#[test]
fn doctor_prints_one_object() {
    let found = siskin(&["doctor", "--json", "--cpu-features", "scalar"], b"");
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(report["cpu_features"], "scalar");
    assert!(report["cores"].as_u64().unwrap() >= 1);
}

#[test]
fn a_model_is_not_written_over() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden/llama");
    let packed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("over.siskin");
    let (golden, packed) = (golden.to_str().unwrap(), packed.to_str().unwrap());
    let found = siskin(&["convert", golden, "-o", packed, "-q"], b"");
    assert_eq!(found.status.code(), Some(0), "{}", errors(&found));
    let input = file("over.safetensors", &std::fs::read(format!("{golden}/io.safetensors")).unwrap());
    let input = input.to_str().unwrap();
    for output in [packed, input] {
        let before = std::fs::read(output).unwrap();
        let found = siskin(&["logits", packed, "--input", input, "--output", output], b"");
        assert_eq!(found.status.code(), Some(2), "{}", errors(&found));
        assert_eq!(std::fs::read(output).unwrap(), before);
    }
}

#[test]
fn errors_name_options_paths_and_ranges_of_the_command_line() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden/llama");
    let golden = golden.to_str().unwrap();
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("never-written.siskin");
    let output = output.to_str().unwrap();
    let run = ["run", "shakespeare", "a"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    for (arguments, code, words) in [
        (with(&["--temperature", "-1"]), 2, "--temperature: expected"),
        (with(&["--top-k", "-1"]), 2, "'-1' for '--top-k"),
        (with(&["--adapter", "no-adapter.siskin"]), 3, "no-adapter.siskin: no such file or directory"),
        (with(&["--skip-layers", "99"]), 2, "--skip-layers: layer 99 is out of range"),
        (vec!["bench", "shakespeare", "--prompt", "999999"], 4, "reduce --prompt"),
        (
            vec!["convert", golden, "-o", "/no-such-folder/a.siskin"],
            1,
            "/no-such-folder/a.siskin: the directory",
        ),
        (vec!["convert", golden, "-o", output, "--quant", "iq2_xxs"], 2, "can be read but not written"),
        (vec!["export", "shakespeare", "-o", output, "--format", "foo"], 2, "--format: unknown format"),
        (vec!["export", "shakespeare", "-o", "never-written.xyz"], 2, "unknown file extension `xyz`"),
        (
            with(&["--throttle", "200%"]),
            2,
            "'200%' for '--throttle <LIMIT>': expected a duty cycle above 0% and at most",
        ),
    ] {
        let found = siskin(&arguments, b"");
        assert_eq!(found.status.code(), Some(code), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(words), "{arguments:?}: {}", errors(&found));
    }
}

#[test]
fn hints_only_raise_the_context_if_the_model_has_a_longer_one() {
    let text = "a ".repeat(3000);
    let hint = |context: &str| {
        let found = siskin(&["run", "shakespeare", &text, "--raw", "--context", context], b"");
        assert_eq!(found.status.code(), Some(4), "{}", errors(&found));
        errors(&found).lines().find(|line| line.starts_with("hint: ")).unwrap().to_owned()
    };
    assert_eq!(hint("0"), "hint: shorten the text");
    assert!(hint("64").contains("raise --context (the model supports up to 512)"));
}

#[test]
fn what_is_no_model_file_is_named() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-model");
    std::fs::create_dir_all(&folder).unwrap();
    let packed = file("no-model/packed", b"SISKIN\r\n\x01\0\0\0");
    let (folder, packed) = (folder.to_str().unwrap(), packed.to_str().unwrap());
    let pipe = format!("{folder}/pipe");
    let has_pipe = Command::new("mkfifo").arg(&pipe).output().is_ok() && cfg!(unix);
    let output = format!("{folder}/out");
    let mut rows = vec![
        (vec!["verify", folder], 3, "a folder"),
        (vec!["inspect", folder], 3, "unrecognized model format"),
        (vec!["convert", packed, "-o", &output], 2, "already a .siskin file"),
    ];
    if has_pipe {
        rows.push((vec!["verify", &pipe], 3, "not a regular file"));
        rows.push((vec!["inspect", &pipe], 3, "neither a regular file"));
    }
    for (arguments, code, words) in rows {
        let found = siskin(&arguments, b"");
        assert_eq!(found.status.code(), Some(code), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(words), "{arguments:?}: {}", errors(&found));
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// A model folder with random weights and a tokenizer.
fn talking_golden(name: &str) -> String {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden").join(name);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("talking-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    for part in ["config.json", "model.safetensors"] {
        std::fs::write(folder.join(part), std::fs::read(golden.join(part)).unwrap()).unwrap();
    }
    std::fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn forecasts_are_compared_with_those_of_another_form() {
    let folder = talking_golden("llama");
    let text = file("forecast.txt", "a siskin siskin a a siskin ".repeat(12).as_bytes());
    let small = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("forecast.siskin");
    let small = small.to_str().unwrap();
    let found = siskin(&["convert", &folder, "-o", small, "-q", "--quant", "q4_0,always"], b"");
    assert_eq!(found.status.code(), Some(0), "{}", errors(&found));
    let measure = |model: &str, against: &str| {
        let text = text.to_str().unwrap();
        let arguments = ["perplexity", model, text, "--context", "16", "--json", "-q", "--against", against];
        let found = siskin(&arguments, b"");
        assert_eq!(found.status.code(), Some(0), "{}", errors(&found));
        let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        ["perplexity", "top1_agreement", "kl_divergence"].map(|key| report[key].as_f64().unwrap())
    };
    let [exact, agreement, divergence] = measure(&folder, &folder);
    assert_eq!((agreement, divergence), (1.0, 0.0));
    let [rounded, _, divergence] = measure(small, &folder);
    assert!(rounded != exact && divergence > 1e-6 && divergence < 1.0, "{rounded} {exact} {divergence}");
}

/// The chat model downloaded by `cargo xtask model smollm2`.
#[test]
#[cfg(unix)]
fn an_interrupt_ends_the_answer_and_leaves_what_was_said() {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.models/smollm2.gguf");
    if !model.is_file() {
        eprintln!("skipped: {} is not there; `cargo xtask model smollm2` brings it", model.display());
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_siskin"))
        .args(["run", "--greedy", model.to_str().unwrap(), "Tell me a very long story."])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(errors(&output).contains("tokens/s") && errors(&output).contains("Ctrl-C"));
}

#[test]
fn a_graph_of_no_family_runs_and_says_so() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/onnx/mlp");
    let (input, written) = (format!("{folder}/io.safetensors"), file("mlp.safetensors", b""));
    let model = ["--no-cache", "logits", folder, "--input", &input, "--output", written.to_str().unwrap()];
    let output = siskin(&model, b"");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("runs as a general graph through tract"), "{}", errors(&output));
    assert!(std::fs::read(&written).unwrap().windows(3).any(|part| part == b"\"y\""));
    for (options, code, words) in [
        (&["--device", "reference"][..], 3, "device: the model runs on an external backend"),
        (&["--cpu-features", "scalar"], 3, "cpu_features: the model runs on an external backend"),
        (&["--skip-layers", "0"], 3, "layers: the model runs on an external backend"),
        (&["--threads", "3"], 0, "computes with one thread, not 3"),
    ] {
        let output = siskin(&[&model[..], options].concat(), b"");
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", errors(&output));
        assert!(errors(&output).contains(words), "{options:?}: {}", errors(&output));
    }
    let output = siskin(&["inspect", folder], b"");
    assert!(String::from_utf8_lossy(&output.stdout).contains("[\"any\",3]"), "{}", errors(&output));
    let output = siskin(&["convert", folder, "-o", written.to_str().unwrap()], b"");
    assert!(
        output.status.code() == Some(3) && errors(&output).contains("without conversion"),
        "{}",
        errors(&output)
    );
}

#[test]
fn only_models_that_listen_transcribe() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/golden-texts/bart");
    let output = siskin(&["transcribe", folder, "-", "--no-cache", "--quiet"], &[0; 32]);
    assert_eq!(output.status.code(), Some(3));
    assert!(errors(&output).contains("cannot transcribe"), "{}", errors(&output));
    assert_eq!(siskin(&["transcribe", folder], b"").status.code(), Some(2));
}

/// A tiny golden model with a tokenizer of the words w5 to w79.
fn model(folder: &str) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder.replace('/', "-"));
    std::fs::create_dir_all(&place).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(data.join(folder).join(name), place.join(name)).unwrap();
    }
    std::fs::copy(data.join("golden-exits/words.json"), place.join("tokenizer.json")).unwrap();
    place.to_str().unwrap().to_owned()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn results_are_remembered() {
    let (bert, llama) = (model("golden-texts/bert"), model("golden/llama"));
    let result_cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("results.cache");
    let _ = std::fs::remove_file(&result_cache);
    let result_cache = result_cache.to_str().unwrap();
    let embed = ["embed", &bert, "w5 w6", "w7", "--no-cache", "--result-cache", result_cache];
    let (first, second) = (siskin(&embed, b""), siskin(&embed, b""));
    assert_eq!(text(&first), text(&second));
    assert!(errors(&first).contains("[0 cached, 2 computed]"), "{}", errors(&first));
    assert!(errors(&second).contains("[2 cached, 0 computed]"), "{}", errors(&second));
    let run =
        ["run", &llama, "w5 w6", "--raw", "--max-tokens", "5", "--no-cache", "--result-cache", result_cache];
    assert_eq!(siskin(&run, b"").status.code(), Some(2), "another answer each time");
    let greedy = [&run[..], &["--greedy"]].concat();
    let (first, second) = (siskin(&greedy, b""), siskin(&greedy, b""));
    assert_eq!(text(&first), text(&second));
    assert!(
        errors(&second).contains("tokens from the cache, similarity of the prompts 1.000"),
        "{}",
        errors(&second)
    );
    let like =
        [&greedy[..], &["--semantic-cache-model", &bert, "--semantic-cache-threshold", "0.2"]].concat();
    let asked =
        |prompt| like.iter().map(|&word| if word == "w5 w6" { prompt } else { word }).collect::<Vec<_>>();
    assert!(
        !errors(&siskin(&asked("w8 w9 w10"), b"")).contains("from the cache"),
        "the first that is understood"
    );
    let near = siskin(&asked("w8 w9 w11"), b"");
    assert!(errors(&near).contains("similarity of the prompts 0."), "{}", errors(&near));
    std::fs::write(result_cache, b"SISKMEMO and more").unwrap();
    assert_eq!(siskin(&embed, b"").status.code(), Some(3));
    for wrong in [
        &["--result-cache-size", "0"][..],
        &["--semantic-cache-model", &bert, "--semantic-cache-threshold", "nan"],
    ] {
        assert_eq!(siskin(&[&greedy[..], wrong].concat(), b"").status.code(), Some(2), "{wrong:?}");
    }
    // Results are printed even if the cache cannot be written.
    let nowhere = format!("{}/no-such-folder/results.cache", env!("CARGO_TARGET_TMPDIR"));
    for command in [&embed[..], &greedy[..]] {
        let command: Vec<&str> =
            command.iter().map(|&word| if word == result_cache { nowhere.as_str() } else { word }).collect();
        let output = siskin(&command, b"");
        assert!(!text(&output).is_empty() && errors(&output).contains("warning: "), "{}", errors(&output));
    }
}

#[test]
fn texts_leave_early_and_layers_are_left_out() {
    let pabee = model("golden-exits/pabee");
    let classify = ["classify", &pabee, "w5 w6", "--no-cache", "--json"];
    let with = |more: &[&str]| siskin(&[&classify[..], more].concat(), b"");
    let layers = |more: &[&str]| {
        let value: serde_json::Value = serde_json::from_str(&text(&with(more))).unwrap();
        value["layers"].as_u64()
    };
    assert_eq!(layers(&[]), None);
    assert_eq!(layers(&["--early-exit", "confidence=0.1"]), Some(1));
    assert_eq!(layers(&["--early-exit", "patience=5"]), Some(5));
    assert_eq!(with(&["--early-exit", "patience"]).status.code(), Some(2));
    assert_ne!(text(&with(&["--skip-layers", "1,3"])), text(&with(&[])));
    assert_eq!(with(&["--skip-layers", "5"]).status.code(), Some(2));
}

#[test]
fn the_built_in_model_runs_by_its_name() {
    let path = file("prompt.txt", b"ROMEO:");
    let options = ["--seed", "1", "-n", "24", "--quiet"];
    let run = |arguments: &[&str], input: &[u8]| siskin(&[arguments, &options[..]].concat(), input);
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let named = run(&["run", "shakespeare", "ROMEO:"], b"");
    assert!(named.status.success() && text(&named).trim().len() > 2, "{}", errors(&named));
    for (arguments, input) in [
        (&["run", "shakespeare"][..], &b"ROMEO:"[..]),
        (&["run", "shakespeare", "-"], b"ROMEO:"),
        (&["run", "shakespeare", "-p", "ROMEO:"], b""),
        (&["run", "shakespeare", "-f", path.to_str().unwrap()], b""),
    ] {
        let other = run(arguments, input);
        assert_eq!(text(&other), text(&named), "{arguments:?}: {}", errors(&other));
    }
    let shown = siskin(&["inspect", "shakespeare", "--json"], b"");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["architecture"], "llama");
}

#[test]
fn a_missing_model_is_not_a_prompt() {
    let found = siskin(&["run", "shakespear", "ROMEO:"], b"");
    assert_eq!(found.status.code(), Some(3));
    assert!(errors(&found).contains("did you mean `shakespeare`?"), "{}", errors(&found));
    let found = siskin(&["run", "qwen3:0.6b"], b"");
    assert_eq!((found.status.code(), found.stdout.len()), (Some(3), 0), "{}", errors(&found));
    let found = siskin(&["run", "Why is the sky blue?"], b"");
    assert!(errors(&found).contains("siskin run shakespeare \"Why"), "{}", errors(&found));
}

/// A small model with a tokenizer of the words w5 to w79, in its own folder.
fn with_words(name: &str, tokenizer: bool) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("words-{name}-{tokenizer}"));
    std::fs::create_dir_all(&folder).unwrap();
    let golden = data.join("golden-texts").join(name);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), folder.join(file)).unwrap();
    }
    if tokenizer {
        std::fs::copy(data.join("golden-exits/words.json"), folder.join("tokenizer.json")).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

#[test]
fn what_is_said_of_long_texts_can_be_done() {
    let long = "w7 ".repeat(70);
    let classes = with_words("bert-classes", true);
    let (classes, common) = (classes.as_str(), ["--no-cache", "-q"]);
    let ask = |arguments: &[&str]| siskin(&[arguments, &common].concat(), b"");
    for arguments in
        [&["rerank", classes, "w5", &long][..], &["classify", classes, &long], &["embed", classes, &long]]
    {
        let found = ask(arguments);
        assert_eq!(found.status.code(), Some(4), "{arguments:?}: {}", errors(&found));
        let errors = errors(&found);
        assert!(errors.contains("--overflow") && !errors.contains("--context"), "{arguments:?}: {errors}");
        assert!(!errors.contains("parts"), "{arguments:?}: {errors}");
    }
    // The question and three special tokens leave room for sixty words.
    let short = ask(&["rerank", classes, "w5", "w7 ".repeat(60).trim(), "--json"]);
    let long = ask(&["rerank", classes, "w5", &long, "--overflow", "truncate", "--json"]);
    assert_eq!(short.stdout, long.stdout, "{}", errors(&short));
    let window = ask(&["rerank", classes, "w5", "w7", "--overflow", "window"]);
    assert_eq!(window.status.code(), Some(2), "{}", errors(&window));
}

#[test]
fn models_without_a_tokenizer_ask_for_one() {
    let labels = with_words("bert-labels", false);
    let found = siskin(&["tag", &labels, "w5", "--no-cache", "-q"], b"");
    assert_eq!(found.status.code(), Some(3), "{}", errors(&found));
    assert!(errors(&found).contains("tokenizer.json"), "{}", errors(&found));
}

/// A safetensors file of integers, two tokens per row.
fn tensors(name: &str, names: &[&str]) -> String {
    let entry = |(index, name): (usize, &&str)| {
        let (start, end) = (index * 16, index * 16 + 16);
        format!(r#""{name}":{{"dtype":"I64","shape":[1,2],"data_offsets":[{start},{end}]}}"#)
    };
    let header: Vec<String> = names.iter().enumerate().map(entry).collect();
    let header = format!("{{{}}}", header.join(","));
    let data = names.iter().flat_map(|_| [1_u64, 1].map(u64::to_le_bytes).concat());
    let bytes = (header.len() as u64)
        .to_le_bytes()
        .into_iter()
        .chain(header.bytes())
        .chain(data)
        .collect::<Vec<u8>>();
    file(name, &bytes).to_str().unwrap().to_owned()
}

#[test]
fn tensors_that_would_change_nothing_are_rejected() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tensors.out");
    let output = output.to_str().unwrap();
    for (model, names, rejected) in [
        ("golden-texts/bert", &["input_ids", "position_ids"][..], "position_ids"),
        ("golden-texts/bert", &["input_ids", "decoder_input_ids"], "decoder_input_ids"),
        ("golden-texts/bert", &["input_features"], "input_ids"),
        ("golden-texts/whisper", &["input_ids", "decoder_input_ids"], "input_features"),
        ("golden-texts/whisper", &["decoder_input_ids"], "input_features"),
        ("golden/llama", &["input_ids", "decoder_attention_mask"], "decoder_attention_mask"),
        ("golden/llama", &["input_ids", "position_ids"], "position_ids"),
        ("golden-texts/bert", &["attention_mask"], "input_ids"),
        ("golden-texts/bert", &["input_ids", "attention_mask", "token_type_ids", "logits"], ""),
        ("golden-texts/distilbert", &["input_ids", "last_hidden_state"], ""),
        ("golden/llama", &["input_ids", "attention_mask", "token_type_ids", "logits"], ""),
        (
            "golden-texts/t5",
            &["input_ids", "decoder_input_ids", "decoder_attention_mask", "encoder_hidden"],
            "",
        ),
    ] {
        let model = golden.join(model);
        let input = tensors("tensors.safetensors", names);
        let arguments =
            ["logits", model.to_str().unwrap(), "--input", &input, "--output", output, "--no-cache", "-q"];
        let found = siskin(&arguments, b"");
        let code = if rejected.is_empty() { 0 } else { 3 };
        assert_eq!(found.status.code(), Some(code), "{model:?}, {names:?}: {}", errors(&found));
        assert!(errors(&found).contains(rejected), "{model:?}, {names:?}: {}", errors(&found));
    }
}

#[test]
fn a_candidate_must_meet_all_bounds() {
    let text = file("gate.txt", "to be or not to be, that is the question. ".repeat(30).as_bytes());
    let questions = "{\"context\": \"to be or\", \"choices\": [\" not to be\", \"zzzzz\"], \"answer\": 0}\n";
    let questions = file("gate.jsonl", questions.repeat(3).as_bytes());
    let shared =
        ["gate", "--baseline", "shakespeare", "--data", text.to_str().unwrap(), "--context", "64", "-q"];
    let same = [&shared[..], &["--candidate", "shakespeare", "--max-slowdown", "100", "--json"]].concat();
    let same = [&same[..], &["--choices", questions.to_str().unwrap()]].concat();
    let output = siskin(&same, b"");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for check in report["checks"].as_array().unwrap() {
        let name = check["name"].as_str().unwrap();
        let exact = match () {
            () if name.starts_with("perplexity")
                || name.starts_with("KL")
                || name.starts_with("accuracy") =>
            {
                0.0
            }
            () if name.starts_with("same") => 100.0,
            () if name.starts_with("memory") => 1.0,
            () => continue,
        };
        assert_eq!(check["value"], exact, "{name}");
    }
    let junit = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gate.xml");
    let worse =
        [&shared[..], &["--candidate", "shakespeare", "--max-slowdown", "0", "--min-agreement", "101"]]
            .concat();
    let worse = [&worse[..], &["--junit", junit.to_str().unwrap()]].concat();
    let output = siskin(&worse, b"");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAILED  same most likely token"));
    assert!(std::fs::read_to_string(junit).unwrap().contains("failures=\"1\""));
}

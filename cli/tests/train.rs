//! Training from the command line, and the files it leaves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-train-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("texts")).unwrap();
        let animals = ["siskin", "wren", "heron", "otter"];
        let sentence =
            |i: usize| format!("The {} follows the {}.\n\n", animals[i % 4], animals[i * 5 / 3 % 4]);
        std::fs::write(path.join("texts/a.txt"), (0..60).map(sentence).collect::<String>()).unwrap();
        Self(path)
    }

    fn write(&self, more: &str) {
        let config = format!(
            "steps = 6\n{more}\n[model]\nfamily = \"gpt2\"\ntokenizer_vocab_size = 270\nconfig = {{ vocab_size = 270, \
             n_embd = 16, n_layer = 1, n_head = 2, n_positions = 32 }}\n[data]\ntask = \"causal_lm\"\n\
             train = [\"texts\"]\nvalidation_split = 0.2\nsettings = {{ max_length = 16 }}\n[validation]\nevery_n_steps = 2\n\
             [checkpoint]\nevery_n_steps = 3\n[schedule]\nlearning_rate = 5e-3\n[batch]\nmax_tokens = 64\n\
             [statistics]\nevery_n_steps = 3\n[report]\nprompts = [\"<b>The\"]\nmax_new_tokens = 4\n"
        );
        std::fs::write(self.0.join("small.toml"), config).unwrap();
    }

    fn siskin(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siskin"));
        command.args(arguments).current_dir(&self.0).output().unwrap()
    }

    fn run(&self) -> PathBuf {
        self.0.join("small.run")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn runs_are_checked_profiled_and_reported() {
    let place = Place::new("whole");
    place.write("");
    let check = place.siskin(&["train", "--check", "small.toml"]);
    let table = text(&check.stdout);
    assert!(check.status.success(), "{table}{}", text(&check.stderr));
    for name in [
        "initial loss",
        "gradients",
        "attention",
        "determinism",
        "overfits a batch",
        "short sequences",
        "largest batch",
    ] {
        let line = table.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains(" pass ")), "{name} in {table}");
    }
    assert!(!place.0.join("small.siskin").exists());
    let tokenizer = std::fs::read(place.run().join("tokenizer.json")).unwrap();

    let trained = place.siskin(&["train", "small.toml", "--profile", "2", "--json"]);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let stderr = text(&trained.stderr);
    // Without a terminal: lines instead of a progress bar.
    assert!(
        stderr.contains("step 6/6: loss ") && stderr.contains(" tokens/s, ") && stderr.contains("% MFU"),
        "{stderr}"
    );
    assert!(stderr.contains("GFLOP/s") && stderr.contains("trace.json"), "{stderr}");
    let report: Value = serde_json::from_slice(&trained.stdout).unwrap();
    assert_eq!(report["steps"], 6);

    let log = lines(&place.run().join("log.jsonl"));
    assert_eq!(log.iter().filter(|line| line.get("loss").is_some()).count(), 6);
    assert_eq!(log.iter().filter(|line| line.get("validation_loss").is_some()).count(), 3);
    assert!(log[0]["flops"].as_f64().unwrap() > 0.0);
    let steps: Vec<Value> =
        lines(&place.run().join("statistics.jsonl")).iter().map(|line| line["step"].clone()).collect();
    assert_eq!(steps, [3, 6]);
    let trace = std::fs::read(place.run().join("trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["name"] == "step").count(), 2);
    assert_eq!(std::fs::read(place.run().join("tokenizer.json")).unwrap(), tokenizer);

    let path = place.run().join("report.html");
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.contains("<title>training</title>") && html.contains("<title>validation</title>"));
    assert!(html.contains("<b>&lt;b&gt;The</b>") && html.contains("Step 6 of 6"), "{html}");
    assert!(html.contains("Tensor statistics of step 6") && html.contains("<td>parameters</td>"));
    std::fs::remove_file(&path).unwrap();
    let again = place.siskin(&["train", "report", "small.run"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), html);

    let measured = place.siskin(&["eval", "small.toml", "--json"]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let measured: Value = serde_json::from_slice(&measured.stdout).unwrap();
    let seen = report["validation_loss"].as_f64().unwrap();
    assert!((measured["loss"].as_f64().unwrap() - seen).abs() < 1e-5, "{measured} and {seen}");

    // A model trained on another device can be evaluated here.
    let config = std::fs::read_to_string(place.0.join("small.toml")).unwrap();
    let elsewhere = format!("device = \"cuda\"\nprecision = \"bf16\"\nfp8 = true\n{config}");
    std::fs::write(place.0.join("small.toml"), elsewhere).unwrap();
    let here = place.siskin(&["eval", "small.toml", "--device", "cpu", "--json"]);
    assert!(here.status.success(), "{}", text(&here.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&here.stdout).unwrap(), measured);
    let wrong = place.siskin(&["eval", "small.toml", "--device", "cudda"]);
    assert!(text(&wrong.stderr).contains("did you mean `cuda`"), "{}", text(&wrong.stderr));
}

#[test]
fn runs_that_fail_the_check_do_not_start() {
    let place = Place::new("rejected");
    place.write("");
    let config = std::fs::read_to_string(place.0.join("small.toml")).unwrap();
    let config = config.replace("max_length = 16", "max_length = 40");
    std::fs::write(place.0.join("small.toml"), config).unwrap();
    let rejected = place.siskin(&["train", "small.toml"]);
    assert!(!rejected.status.success());
    let stderr = text(&rejected.stderr);
    assert!(
        stderr.contains("before the first step") && stderr.contains("data.settings.max_length is 40"),
        "{stderr}"
    );
    assert!(!place.0.join("small.siskin").exists());
    std::fs::remove_file(place.0.join("texts"))
        .or_else(|_| std::fs::remove_dir_all(place.0.join("texts")))
        .unwrap();
    let without = place.siskin(&["train", "small.toml"]);
    assert_eq!(without.status.code(), Some(3), "{}", text(&without.stderr));
    assert!(text(&without.stderr).contains("no such file or directory"), "{}", text(&without.stderr));
    assert!(text(&without.stderr).contains("small.toml: "), "{}", text(&without.stderr));
    let missing = place.siskin(&["train", "report", "nowhere.run"]);
    assert!(text(&missing.stderr).contains("name the folder of a run"), "{}", text(&missing.stderr));
}

/// A config of this many steps that keeps a checkpoint every third step.
fn long(place: &Place, steps: u64) -> PathBuf {
    place.write("");
    let path = place.0.join("small.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config.replace("steps = 6", &format!("steps = {steps}\ncheck = false"));
    let config =
        config.replace("n_embd = 16", "n_embd = 64").replace("every_n_steps = 2", "every_n_steps = 0");
    let config =
        config.replace("prompts = [\"<b>The\"]\n", "").replace("[statistics]\nevery_n_steps = 3\n", "");
    std::fs::write(&path, config).unwrap();
    place.run()
}

/// The steps that have a complete checkpoint.
fn kept(folder: &Path) -> Vec<u64> {
    match folder.is_dir() {
        true => siskin_trainer::checkpoint::CheckpointFolder::new(folder, 9).unwrap().steps().unwrap(),
        false => Vec::new(),
    }
}

/// Waits until a run has reached this step.
fn wait_for(folder: &Path, step: u64, child: &mut Child) {
    let begun = Instant::now();
    while kept(folder).last().is_none_or(|last| *last < step) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint of step {step}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(unix)]
#[test]
fn killed_and_terminated_runs_resume_bit_identically() {
    /// Enough steps that the run is still training when it is killed.
    const STEPS: u64 = 240;
    let place = Place::new("killed");
    let folder = long(&place, STEPS);
    let whole = place.siskin(&["train", "small.toml"]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let model = place.0.join("small.siskin");
    let want = std::fs::read(&model).unwrap();
    std::fs::remove_file(&model).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let spawn = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siskin"));
        command.args(arguments).current_dir(&place.0).stderr(Stdio::piped()).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut killed = spawn(&["train", "small.toml"]);
    wait_for(&folder, 6, &mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = *kept(&folder).last().unwrap();
    assert!((6..STEPS).contains(&left) && left.is_multiple_of(3), "step {left}");
    let mut ended = spawn(&["train", "resume", "small.toml"]);
    wait_for(&folder, left + 3, &mut ended);
    assert!(Command::new("kill").args(["-TERM", &ended.id().to_string()]).status().unwrap().success());
    let ended = ended.wait_with_output().unwrap();
    assert!(text(&ended.stderr).contains("continue with `siskin train resume`"), "{}", text(&ended.stderr));
    assert!(!model.exists());

    // The model at the latest checkpoint can be exported.
    let part = place.siskin(&["train", "export", "small.toml", "-o", "part.siskin", "--json"]);
    let part: Value = serde_json::from_slice(&part.stdout).unwrap();
    assert_eq!(part["exported_step"], *kept(&folder).last().unwrap(), "SIGTERM keeps the last step");
    assert_ne!(std::fs::read(place.0.join("part.siskin")).unwrap(), want);

    let rest = place.siskin(&["train", "resume", "small.toml"]);
    assert!(rest.status.success(), "{}", text(&rest.stderr));
    assert!(std::fs::read(&model).unwrap() == want, "to the bit");
    let best = place.siskin(&["train", "export", "small.toml", "--weights", "bets"]);
    assert!(text(&best.stderr).contains("did you mean `best`"), "{}", text(&best.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_keeps_the_last_checkpoint() {
    let place = Place::new("full");
    let folder = long(&place, 9);
    let begun = place.siskin(&["train", "small.toml", "-o", "first.siskin"]);
    assert!(begun.status.success(), "{}", text(&begun.stderr));
    let config = std::fs::read_to_string(place.0.join("small.toml")).unwrap();
    std::fs::write(place.0.join("small.toml"), config.replace("steps = 9", "steps = 15")).unwrap();
    // Limits the file size to 64 KiB, less than a checkpoint.
    let line =
        format!("trap '' XFSZ; ulimit -f 128; exec {} train resume small.toml", env!("CARGO_BIN_EXE_siskin"));
    let full = Command::new("sh").args(["-c", &line]).current_dir(&place.0).output().unwrap();
    let stderr = text(&full.stderr);
    assert!(!full.status.success() && !place.0.join("small.siskin").exists(), "{stderr}");
    assert!(
        stderr.contains("a checkpoint could not be written") && stderr.contains("File too large"),
        "{stderr}"
    );
    assert_eq!(kept(&folder), [3, 6, 9]);
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
    let rest = place.siskin(&["train", "resume", "small.toml"]);
    assert!(rest.status.success() && place.0.join("small.siskin").exists(), "{}", text(&rest.stderr));
}

#[test]
fn find_batch_size_reports_the_largest_batch_that_fits() {
    let place = Place::new("fits");
    place.write("");
    let find = |more: &[&str]| -> Value {
        let found = place.siskin(&[&["train", "--find-batch-size", "--json", "small.toml"], more].concat());
        assert!(found.status.success(), "{}", text(&found.stderr));
        serde_json::from_slice(&found.stdout).unwrap()
    };
    let [small, large] = ["2", "8"].map(|limit| find(&["--memory-limit", limit]));
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    assert!(number(&small, "bytes") <= 2 << 20 && number(&large, "bytes") <= 8 << 20, "{small} {large}");
    assert!(number(&small, "max_tokens") < number(&large, "max_tokens"), "{small} {large}");
    #[cfg(target_os = "linux")]
    assert!(number(&find(&[]), "max_tokens") >= number(&large, "max_tokens"));
    let none = place.siskin(&["train", "--find-batch-size", "small.toml", "--memory-limit", "0"]);
    assert!(text(&none.stderr).contains("even a batch of one token"), "{}", text(&none.stderr));
}

#[test]
fn packed_texts_train_bit_identically() {
    let place = Place::new("pack");
    place.write("");
    std::fs::write(place.0.join("more.txt"), "The wren follows no one.\n\nThe otter, too.\n").unwrap();
    let path = place.0.join("small.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let texts = config.replace("[\"texts\"]", "[\"texts\"]\nvalidation = [\"more.txt\"]");
    std::fs::write(&path, &texts).unwrap();
    let packed = place.siskin(&["train", "pack", "small.toml", "--json"]);
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    let packed: Value = serde_json::from_slice(&packed.stdout).unwrap();
    let [documents, kept] = ["documents", "validation_documents"].map(|name| packed[name].as_u64().unwrap());
    assert!(documents + kept == 62 && kept > 2, "{packed}");
    assert!(packed["tokens"].as_u64().unwrap() > 5 * documents, "{packed}");
    assert_eq!(packed["validation_output"], "small.validation.tokens");
    let trained = place.siskin(&["train", "small.toml"]);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let tokens = texts
        .replace("[\"texts\"]", "[\"small.tokens\"]")
        .replace("more.txt", "small.validation.tokens")
        .replace("validation_split = 0.2\n", "")
        .replace("tokenizer_vocab_size = 270", "tokenizer = \"small.run/tokenizer.json\"");
    std::fs::write(place.0.join("again.toml"), tokens).unwrap();
    let again = place.siskin(&["train", "again.toml"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let losses = |folder: &str| -> Vec<[Value; 2]> {
        let log = lines(&place.0.join(folder).join("log.jsonl"));
        log.iter().map(|line| ["loss", "validation_loss"].map(|name| line[name].clone())).collect()
    };
    assert_eq!(losses("small.run"), losses("again.run"));
    assert_eq!(losses("small.run").len(), 9);
    let model = |name: &str| std::fs::read(place.0.join(name)).unwrap();
    assert!(model("small.siskin") == model("again.siskin"));

    // Packing fails atomically, and never overwrites its inputs.
    let before = std::fs::read(place.0.join("small.tokens")).unwrap();
    let over = place.siskin(&["train", "pack", "again.toml", "-o", "small.tokens"]);
    assert!(text(&over.stderr).contains("an input file"), "{}", text(&over.stderr));
    std::fs::write(place.0.join("texts/z.txt"), b"bad \xff").unwrap();
    let failed = place.siskin(&["train", "pack", "small.toml"]);
    assert!(text(&failed.stderr).contains("not UTF-8"), "{}", text(&failed.stderr));
    assert_eq!(std::fs::read(place.0.join("small.tokens")).unwrap(), before);
    assert!(!std::fs::read_dir(&place.0).unwrap().any(|entry| {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        name.contains("tokens") && !["small.tokens", "small.validation.tokens"].contains(&name.as_str())
    }));
}

/// A run overwrites neither its inputs nor other files of the user.
#[test]
fn runs_only_overwrite_their_own_files() {
    let place = Place::new("replaces");
    place.write("");
    let path = |name: &str| place.0.join(name);
    let rejected = |arguments: &[&str], why: &str| {
        let output = place.siskin(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{arguments:?}: {}", text(&output.stderr));
    };
    let trained = place.siskin(&["train", "small.toml"]);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let model = std::fs::read(path("small.siskin")).unwrap();

    // A config with the file name of its base model.
    std::fs::copy(path("small.siskin"), path("base.siskin")).unwrap();
    let config = std::fs::read_to_string(path("small.toml")).unwrap();
    let start = config.find("family").unwrap();
    let end = config.find("[data]").unwrap();
    let from = format!("{}from = \"base.siskin\"\n{}", &config[..start], &config[end..]);
    std::fs::write(path("base.toml"), &from).unwrap();
    rejected(&["train", "base.toml"], "is an input file");
    assert!(!path("base.run/step-00000003.checkpoint").exists(), "rejected before training");
    rejected(&["train", "base.toml", "-o", "base.siskin"], "is an input file");
    assert_eq!(std::fs::read(path("base.siskin")).unwrap(), model);

    // Texts and configs are inputs, too.
    let texts = std::fs::read(path("texts/a.txt")).unwrap();
    rejected(&["train", "export", "small.toml", "-o", "texts/a.txt"], "is an input file");
    rejected(&["train", "export", "small.toml", "-o", "small.toml"], "is an input file");
    assert_eq!(std::fs::read(path("texts/a.txt")).unwrap(), texts);

    // Under a name derived from the config, only a trained model is overwritten.
    std::fs::write(path("small.siskin"), b"notes").unwrap();
    rejected(&["train", "export", "small.toml"], "was not written by Siskin");
    assert_eq!(std::fs::read(path("small.siskin")).unwrap(), b"notes");
    std::fs::write(path("small.siskin"), &model).unwrap();
    assert!(place.siskin(&["train", "export", "small.toml"]).status.success());
    std::fs::write(path("small.tokens"), b"notes").unwrap();
    rejected(&["train", "pack", "small.toml"], "was not written by Siskin");

    // An existing folder of the user is not a run folder.
    std::fs::create_dir(path("own")).unwrap();
    std::fs::write(path("own/log.jsonl"), b"{}").unwrap();
    rejected(&["train", "report", "own"], "not the folder of a run");
    rejected(&["train", "small.toml", "--folder", "own"], "not the folder of a run");
    assert_eq!(std::fs::read_dir(path("own")).unwrap().count(), 1);
}

/// A downloaded config may come with symbolic links under the output names of a run.
#[test]
#[cfg(unix)]
fn runs_do_not_follow_symbolic_links() {
    use std::os::unix::fs::symlink;
    let place = Place::new("links");
    place.write("");
    let path = |name: &str| place.0.join(name);
    let rejected = |arguments: &[&str]| {
        let output = place.siskin(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains("symbolic link"), "{arguments:?}: {}", text(&output.stderr));
    };
    std::fs::create_dir(path("elsewhere")).unwrap();
    symlink("elsewhere", path("small.run")).unwrap();
    rejected(&["train", "small.toml"]);
    assert_eq!(std::fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    std::fs::remove_file(path("small.run")).unwrap();
    symlink("elsewhere/new", path("small.siskin")).unwrap();
    rejected(&["train", "small.toml"]);
    std::fs::remove_file(path("small.siskin")).unwrap();

    assert!(place.siskin(&["train", "small.toml"]).status.success());
    std::fs::write(path("keys"), b"mine").unwrap();
    for name in ["report.html", "log.jsonl", "run.json"] {
        let own = place.run().join(name);
        let before = std::fs::read(&own).unwrap();
        std::fs::remove_file(&own).unwrap();
        symlink(path("keys"), &own).unwrap();
        let output = match name {
            "report.html" => place.siskin(&["train", "report", "small.run"]),
            _ => place.siskin(&["train", "resume", "small.toml"]),
        };
        assert!(!output.status.success(), "{name}: {}", text(&output.stderr));
        assert_eq!(std::fs::read(path("keys")).unwrap(), b"mine", "{name}");
        std::fs::remove_file(&own).unwrap();
        std::fs::write(&own, before).unwrap();
    }
    assert!(place.siskin(&["train", "report", "small.run"]).status.success());
}

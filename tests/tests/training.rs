//! Whole training runs: learning, resuming, and exported models.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::json;
use siskin::file::{Bytes, File};
use siskin::tokenizer::{EncodeOptions, Tokenizer};
use siskin::{CpuFeatures, DeviceKind};
use siskin_tests::golden;
use siskin_tests::training::{Notes, TrainingFolder, base, run, setup};
use siskin_trainer::data::source::Body;
use siskin_trainer::data::{
    self, PackedTokenFile, PackedWriter, ReadOptions, Records, Sink, Split, SplitSide, TaskBatch,
    TokenizedDocument, TrainingTask, packed,
};
use siskin_trainer::random::Random;
use siskin_trainer::run::{OpenedBase, Run, RunConfig, RunEnd, RunSetup, evaluate, trained_tokenizer};
use siskin_trainer::{Parameters, export, tokenizer};

/// Trains to the end and returns the reports.
fn train(run: &mut Run) -> Notes {
    let mut notes = Notes::default();
    let stop = notes.stop.clone();
    assert_eq!(run.train(&stop, &mut notes).unwrap(), RunEnd::Completed);
    notes
}

const ADAMW: &str = "[schedule]\nlearning_rate = 5e-3\nwarmup_steps = 4\n[batch]\nmax_tokens = 256\n";

#[test]
fn training_lowers_the_validation_loss() {
    let place = TrainingFolder::new("learn");
    let mut config = place.config(ADAMW);
    config.steps = 60;
    let notes = train(&mut run(config, None));
    let (first, last) = (notes.losses[0], notes.losses[59]);
    assert!(first > 5.0 && last < 2.6, "{first} to {last}");
    let (early, late) = (notes.validations[0].loss, notes.validations.last().unwrap().loss);
    assert!(late < 0.6 * early, "{early} to {late}");
}

#[test]
fn interrupted_runs_resume_bit_identically() {
    let more = "[ema]\ndecay = 0.9\n[checkpoint]\nevery_n_steps = 4\nkeep_last = 2\n";
    let adapters = "[adapters]\nrank = 2\nmethod = \"dora\"\n";
    let qat = "[qat]\nweight_type = \"W8r\"\n";
    for (optimizer, besides) in [("adamw", adapters), ("adamw_8bit", ""), ("muon", ""), ("adam", qat)] {
        let place = TrainingFolder::new(optimizer);
        let config = || place.config(&format!("{ADAMW}{more}{besides}[optimizer]\nname = {optimizer:?}\n"));
        let mut whole = run(config(), None);
        let want = train(&mut whole);
        let folder = place.0.join("run");
        let mut first = run(config(), Some(&folder));
        let mut notes = Notes { stop_after: Some(7), ..Notes::default() };
        let stop = notes.stop.clone();
        assert_eq!(first.train(&stop, &mut notes).unwrap(), RunEnd::Interrupted);
        let mut second = run(config(), Some(&folder));
        assert!(second.resume(&mut notes).unwrap());
        assert_eq!(second.steps(), 7);
        let rest = train(&mut second);
        assert_eq!([notes.losses, rest.losses].concat(), want.losses, "{optimizer}");
        assert_eq!(second.parameters().unwrap(), whole.parameters().unwrap(), "{optimizer}");
    }
}

#[test]
fn resuming_with_changed_data_settings_is_rejected() {
    let place = TrainingFolder::new("same");
    let mut first = run(place.config(ADAMW), None);
    let state = first.checkpoint();
    assert!(first.restore(&state).is_ok());
    let rejected = |change: &dyn Fn(&mut RunConfig), key: &str, what: &str| {
        let mut config = place.config(ADAMW);
        change(&mut config);
        let mut other = run(config.clone(), None);
        let error = other.restore(&state).unwrap_err();
        assert!(error.location() == key && error.message().contains(what), "{error}");
        // Entries that an old checkpoint lacks are not compared.
        let mut old = state.clone();
        old.state.as_object_mut().unwrap().remove("data").unwrap();
        other.restore(&old).unwrap();
    };
    rejected(&|config| config.batch.max_tokens = 128, "batch.max_tokens", "256 when the run began, 128 now");
    rejected(&|config| config.batch.max_examples = 3, "batch.max_examples", "0 when the run began, 3 now");
    rejected(&|config| config.batch.pool_size = 9, "batch.pool_size", "4096 when the run began, 9 now");
    rejected(
        &|config| config.batch.group_by_length = false,
        "batch.group_by_length",
        "true when the run began",
    );
    rejected(&|config| config.batch.shuffle = false, "batch.shuffle", "true when the run began");
    rejected(&|config| config.data.settings.max_length = 16, "data", "examples");
    rejected(
        &|config| config.data.validation_split = 0.3,
        "data.train",
        "differs from the texts that the run began with",
    );
    // Another text of as many tokens.
    let path = place.0.join("text.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("The siskin sings", "The siskin sungs", 1)).unwrap();
    rejected(&|_| {}, "data.train", "differs from the texts that the run began with");
    std::fs::write(&path, text).unwrap();
    assert!(run(place.config(ADAMW), None).restore(&state).is_ok());
    // As packed tokens, the texts are the same.
    let mut config = place.config(ADAMW);
    let packed = place.0.join("a.tokens");
    siskin_trainer::run::pack(&config, &base(), &packed).unwrap();
    (config.data.train, config.data.validation_split) = (vec![packed.display().to_string()], 0.0);
    assert!(run(config, None).restore(&state).is_ok());
}

/// Returns the tokenizer of the trained model.
fn own_tokenizer() -> Tokenizer {
    let OpenedBase::New { tokenizer, .. } = base() else { panic!("a file") };
    Tokenizer::open(Bytes::new(tokenizer)).unwrap()
}

/// Packs some documents of a text; `identity` identifies the tokenizer.
fn pack(path: &Path, documents: &[&str], identity: u64) {
    let tokenizer = own_tokenizer();
    let mut writer = PackedWriter::create(path, tokenizer.vocabulary_size(), 1, identity).unwrap();
    for document in documents {
        let parts = vec![tokenizer.encode(document, EncodeOptions::default()).unwrap()];
        writer.push(&TokenizedDocument { parts, ..TokenizedDocument::default() }).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn packed_token_files_train_like_their_texts() {
    let place = TrainingFolder::new("mapped");
    let text = std::fs::read_to_string(place.0.join("text.txt")).unwrap();
    let documents: Vec<&str> = text.split("\n\n").filter(|document| !document.is_empty()).collect();
    let path = |name: &str| place.0.join(name).display().to_string();
    let identity = packed::identity(&own_tokenizer()).unwrap();
    pack(&place.0.join("b.tokens"), &documents[40..90], identity);
    for (name, part) in [("a.txt", 0..40), ("c.txt", 90..100), ("d.txt", 100..documents.len())] {
        std::fs::write(place.0.join(name), documents[part].join("\n\n")).unwrap();
    }
    let config = |training: &[&str], share: f64| {
        let mut config = place.config(ADAMW);
        config.data.train = training.iter().map(|name| path(name)).collect();
        (config.data.validation_split, config.data.validation) = (share, vec![path("a.txt")]);
        config
    };
    let texts = train(&mut run(config(&["text.txt"], 0.0), None));
    let mixed = train(&mut run(config(&["a.txt", "b.tokens", "c.txt", "d.txt"], 0.0), None));
    assert_eq!((texts.losses, texts.validations), (mixed.losses, mixed.validations));
    // The split of packed records is the same as that of documents read one by one.
    let mut config = config(&["b.tokens"], 0.3);
    config.data.validation.clear();
    // Long enough that each document is one example.
    config.data.settings.max_length = 1000;
    let divided = setup(&config);
    let rows =
        |task: &dyn TrainingTask| (0..task.count()).map(|example| task.rows(example)).collect::<Vec<_>>();
    let split = Split { validation_split: 0.3, seed: config.seed };
    let mut wanted = [Vec::new(), Vec::new()];
    for document in data::documents(&[place.0.join("b.tokens")], &ReadOptions::default()).unwrap() {
        let document = document.unwrap();
        let Body::Tokens(parts) = &document.body else { panic!("texts") };
        // One row per token: the end token is only a target.
        wanted[usize::from(split.side(document.hash()) == SplitSide::Validation)].push(parts[0].len());
    }
    assert_eq!([rows(&*divided.training), rows(&*divided.validation.unwrap())], wanted);
    assert!(wanted.iter().all(|side| side.len() > 5), "{wanted:?}");
}

#[test]
fn tokens_of_another_tokenizer_are_rejected() {
    let place = TrainingFolder::new("foreign");
    let mut config = place.config(ADAMW);
    let path = place.0.join("a.tokens");
    config.data.train = vec![path.display().to_string()];
    let rejected = |what: &str| {
        let error = RunSetup::new(&config, base()).err().unwrap();
        assert!(error.to_string().contains(what) && error.location().contains("a.tokens"), "{error}");
    };
    let other = tokenizer::train(["other words than these"].into_iter(), 280, &["<|endoftext|>"]).unwrap();
    let other = siskin_convert::tokenizer_of_json(other.to_string().as_bytes()).unwrap();
    let other = Tokenizer::open(Bytes::new(other)).unwrap();
    pack(&path, &["one", "two"], packed::identity(&other).unwrap());
    rejected("different tokenizer");
    let size = own_tokenizer().vocabulary_size();
    PackedWriter::create(&path, size + 1, 1, 0).unwrap().finish().unwrap();
    rejected("pack the texts again with the model's tokenizer");
    let writer = PackedWriter::create(&path, size, 2, 0).unwrap();
    writer.finish().unwrap();
    rejected("have 2 token lists");
}

#[test]
fn gradient_accumulation_matches_one_large_batch() {
    let place = TrainingFolder::new("accumulate");
    let step = |examples: usize, accumulate: usize| -> Parameters<f32> {
        let mut config = place.config(
            "[schedule]\nname = \"constant\"\nlearning_rate = 1.0\n[optimizer]\nname = \
             \"sgd\"\n[batch]\nmax_tokens = 100000\n",
        );
        (config.steps, config.max_grad_norm, config.batch.shuffle) = (1, None, false);
        (config.batch.max_examples, config.batch.gradient_accumulation_steps, config.batch.group_by_length) =
            (examples, accumulate, false);
        let mut run = run(config, None);
        train(&mut run);
        run.parameters().unwrap()
    };
    let (together, apart) = (step(32, 1), step(4, 8));
    for (one, other) in together.list.iter().zip(&apart.list) {
        let largest = one.numbers.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let pairs = one.numbers.iter().zip(&other.numbers);
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= 2e-6 * largest.max(1.0), "{}: {worst}", one.name);
    }
}

#[test]
fn exported_files_contain_the_trained_weights() {
    let place = TrainingFolder::new("export");
    let mut run = run(place.config(ADAMW), None);
    train(&mut run);
    let parameters = run.parameters().unwrap();
    let path = place.0.join("model.siskin");
    let out = siskin::file::AtomicFile::create(&path).unwrap();
    export::write(&run.setup().file_contents, &parameters, out).unwrap().commit().unwrap();
    let file = File::open(&path).unwrap();
    let read = Parameters::<f32>::read(&run.setup().program.graph.weights, &file).unwrap();
    assert_eq!(read, parameters);
    // The runtime's loss of a text is the trainer's.
    let model = golden::model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let ids: Vec<u32> = (0..24).map(|i| 97 + i % 17).collect();
    let logits = golden::score(&model, &ids, 32);
    let mut batch = siskin_trainer::batch::TrainingBatch::default();
    batch.decoder.push(&ids, &[]);
    batch.decoder.output_all();
    let targets = siskin_trainer::loss::Targets {
        ids: ids.clone(),
        weights: vec![1.0; ids.len()],
        ..Default::default()
    };
    let loss = siskin_trainer::loss::CrossEntropy::default();
    let goal = siskin_trainer::TrainingObjective { loss: &loss, targets: &targets, scale: 1.0 };
    let mut own = Vec::new();
    let mut see = |_, numbers: &[f32]| own.extend_from_slice(numbers);
    let program = run.setup().program.clone();
    let mut runner = siskin_trainer::Runner::new(program, Default::default(), |_| false).unwrap();
    runner.evaluate(&parameters, &batch, goal, Some(&mut see)).unwrap();
    assert!(golden::relative_error(&own, &logits) < 1e-5);
}

#[test]
fn every_example_config_is_valid() {
    let folder = siskin_tests::paths::root().join("examples/train");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let config = RunConfig::parse(&std::fs::read_to_string(&path).unwrap());
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        siskin_trainer::data::TaskEntry::of(&config.data.task).unwrap();
        siskin_trainer::loss::named(&config.loss).unwrap();
        siskin_trainer::LearningRateSchedule::new(&config.schedule, config.steps).unwrap();
        if let Some(family) = &config.model.family {
            let (head, config) = (config.model.head.as_deref(), config.model.config.clone());
            siskin_trainer::InitialModel::new(family, head, config).unwrap();
        }
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn merged_adapters_match_separate_adapters() {
    const ADAPTERS: &str = "[adapters]\nrank = 4\ntensors = [\"*attn_qkv*\", \"*ffn_up*\"]\n";
    let place = TrainingFolder::new("adapters");
    let before = run(place.config(ADAMW), None).parameters().unwrap();
    let mut tuned = run(place.config(&format!("{ADAMW}{ADAPTERS}")), None);
    let begun = tuned.evaluate().unwrap().unwrap();
    let plain = run(place.config(ADAMW), None).evaluate().unwrap().unwrap();
    assert_eq!(begun, plain, "initial adapters change nothing");
    train(&mut tuned);
    let after = tuned.parameters().unwrap();
    assert_eq!(after.list[..before.list.len()], before.list[..], "base weights do not change");
    let want = tuned.evaluate().unwrap().unwrap();
    assert!(want.mean() < begun.mean() - 0.05, "{} to {}", begun.mean(), want.mean());
    let merged = tuned.result().unwrap();
    let path = place.0.join("merged.siskin");
    let out = siskin::file::AtomicFile::create(&path).unwrap();
    export::write(&tuned.setup().file_contents, &merged, out).unwrap().commit().unwrap();
    let config = place.config(ADAMW);
    let setup = RunSetup::new(&config, OpenedBase::File(Box::new(File::open(&path).unwrap()))).unwrap();
    let got = Run::new(config, setup, None).unwrap().evaluate().unwrap().unwrap();
    assert!((got.mean() - want.mean()).abs() < 1e-5, "{} and {}", got.mean(), want.mean());
}

/// Writes the model of a run, and opens it.
fn file_of(place: &TrainingFolder, run: &mut Run) -> File {
    let result = run.result().unwrap();
    let path = place.0.join("result.siskin");
    let out = siskin::file::AtomicFile::create(&path).unwrap();
    export::write(&run.setup().file_contents, &result, out).unwrap().commit().unwrap();
    File::open(&path).unwrap()
}

fn of_file(config: RunConfig, file: &File) -> Run {
    let setup = RunSetup::new(&config, OpenedBase::File(Box::new(file.clone()))).unwrap();
    Run::new(config, setup, None).unwrap()
}

#[test]
fn qat_weights_equal_the_exported_quantized_weights() {
    for kind in ["W4i", "W8r", "Q4_0"] {
        let place = TrainingFolder::new(&format!("rounded-{kind}"));
        let mut config = place.config(&format!("{ADAMW}[qat]\nweight_type = {kind:?}\n"));
        config.steps = 30;
        let mut rounded = run(config, None);
        let begun = rounded.evaluate().unwrap().unwrap().mean();
        let exact = run(place.config(ADAMW), None).evaluate().unwrap().unwrap().mean();
        assert_ne!(begun, exact, "{kind}: rounding changes what is computed");
        train(&mut rounded);
        let want = rounded.evaluate().unwrap().unwrap();
        assert!(want.mean() < begun - 1.0, "{kind}: {begun} to {}", want.mean());
        let result = rounded.result().unwrap();
        let file = file_of(&place, &mut rounded);
        let read = Parameters::<f32>::read(&rounded.setup().program.graph.weights, &file).unwrap();
        let mut packed = 0;
        for (trained, read) in result.list.iter().zip(&read.list) {
            assert_eq!(trained.part(0..trained.rows)[..], read.numbers[..], "{kind}: {}", read.name);
            let panel = file.tensor(&read.name).unwrap().panel.name();
            packed += usize::from(panel != "F32");
            assert_eq!(panel != "F32", trained.numbers != read.numbers, "{kind}: {}", read.name);
        }
        assert_eq!(packed, 8, "{kind}: four matrices of two layers");
        let got = of_file(place.config(ADAMW), &file).evaluate().unwrap().unwrap();
        assert_eq!(got, want, "{kind}");
    }
}

#[test]
fn unsuitable_qat_and_export_settings_are_rejected() {
    let place = TrainingFolder::new("types");
    let rejected = |more: &str| {
        let config = place.config(&format!("{ADAMW}{more}"));
        let setup = setup(&config);
        Run::new(config, setup, None).err().unwrap()
    };
    let error = rejected("[qat]\nweight_type = \"W4j\"\n");
    assert!(error.message().contains("did you mean `W4i`"), "{error}");
    let error = rejected("[qat]\nweight_type = \"Q4_K\"\n");
    assert!(error.message().contains("has 32 columns"), "{error}");
    let error = rejected("[qat]\nweight_type = \"W8r\"\ntensors = [\"none\"]\n");
    assert_eq!(error.location(), "qat.tensors");
    assert_eq!(rejected("[qat]\nweight_type = \"W8r\"\n[adapters]\nrank = 2\n").location(), "qat");
    let apart = "[export]\nadapter = true\n";
    assert_eq!(rejected(apart).location(), "export.adapter");
    assert_eq!(rejected(&format!("{apart}[adapters]\nrank = 2\n")).location(), "export.adapter");
}

#[test]
fn adapters_train_on_quantized_bases_and_export_separately() {
    let place = TrainingFolder::new("packed");
    let mut first = run(place.config(&format!("{ADAMW}[qat]\nweight_type = \"W8r\"\n")), None);
    train(&mut first);
    let base = file_of(&place, &mut first);
    for method in ["lora", "dora"] {
        let more = format!(
            "{ADAMW}[export]\nadapter = true\n[adapters]\nrank = 4\nmethod = {method:?}\ntensors = \
             [\"*ffn_up*\"]\n"
        );
        let mut tuned = of_file(place.config(&more), &base);
        let whole = of_file(place.config(ADAMW), &base);
        let (frozen, all) = (tuned.memory().unwrap(), whole.memory().unwrap());
        // Two layers of 128 × 32, with 128 DoRA magnitudes each.
        let trained = 2 * (4 * 32 + 4 * 128 + if method == "dora" { 128 } else { 0 });
        assert_eq!((frozen.gradients, frozen.optimizer), (4 * trained, 8 * trained), "{method}");
        assert!(frozen.parameters < all.parameters, "{frozen:?} and {all:?}");
        let begun = tuned.evaluate().unwrap().unwrap();
        train(&mut tuned);
        let want = tuned.evaluate().unwrap().unwrap();
        assert!(want.mean() < begun.mean(), "{method}: {} to {}", begun.mean(), want.mean());
        let adapter = tuned.adapter().unwrap().unwrap();
        adapter.check_base(&base).unwrap();
        let mut again = of_file(place.config(&more), &base);
        again.load_adapter(&adapter).unwrap();
        assert_eq!(again.evaluate().unwrap().unwrap(), want, "{method}");
        let mut other = adapter.clone();
        other.parts.pop();
        assert!(again.load_adapter(&other).is_err());
    }
}

#[test]
fn non_finite_values_are_reported() {
    let place = TrainingFolder::new("finder");
    let config = place.config(ADAMW);
    let setup = setup(&config);
    let mut parameters = setup.parameters(1).unwrap();
    let broken = parameters.list.iter_mut().find(|parameter| parameter.name == "blk.1.ffn_up.weight");
    broken.unwrap().numbers[7] = f32::INFINITY;
    let mut batch = siskin_trainer::batch::TrainingBatch::default();
    batch.decoder.push(&[97, 98, 99], &[]);
    batch.decoder.output_all();
    let program = setup.program.clone();
    let mut runner = siskin_trainer::Runner::new(program, Default::default(), |_| true).unwrap();
    let found = runner.find_non_finite(&parameters, &batch).unwrap().unwrap();
    assert!(found.contains("Linear with blk.1.ffn_up.weight"), "{found}");
}

#[test]
fn trained_tokenizers_are_kept_in_the_run_folder() {
    let place = TrainingFolder::new("learned");
    let folder = place.0.join("texts/deeper");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("one.txt"), "a siskin sings\n\na siskin sings again").unwrap();
    let mut config = place.config(ADAMW);
    config.data.train = vec![place.0.join("texts").display().to_string()];
    config.model.tokenizer_vocab_size = Some(270);
    let kept = place.0.join("run");
    let learn = |config: &RunConfig, goes_on: bool| trained_tokenizer(config, &kept, goes_on).unwrap();
    let first = learn(&config, false);
    assert!(siskin_convert::tokenizer_of_json(&first).is_ok());
    let own = ["a siskin sings", "a siskin sings again"];
    let want = tokenizer::train(own.into_iter(), 270, &["<|endoftext|>"]).unwrap();
    assert_eq!(first, want.to_string().into_bytes(), "folders are read recursively");
    // The tokenizer in the folder is used, not trained again.
    std::fs::write(kept.join("tokenizer.json"), b"kept").unwrap();
    assert_eq!(learn(&config, false), b"kept");
    std::fs::write(folder.join("two.txt"), "a wren waits, a wren waits").unwrap();
    assert_eq!(learn(&config, true), b"kept", "a resumed run keeps its tokenizer");
    let other = learn(&config, false);
    assert!(other != b"kept" && other != first, "other texts give another tokenizer");
    std::fs::write(kept.join("tokenizer.json"), b"kept").unwrap();
    config.data.text_fields = vec!["body".to_owned()];
    assert_eq!(learn(&config, false), other, "other fields give another tokenizer");
    config.model.tokenizer_vocab_size = Some(265);
    assert_ne!(learn(&config, false), other);
}

/// Writes texts with classes, in fields with other names than the task's own.
fn classes(place: &TrainingFolder, data: &str) -> RunConfig {
    let lines = ["yes", "no", "perhaps"].map(|class| {
        (0..8)
            .map(|number| json!({"body": format!("bird {number}"), "kind": class}).to_string() + "\n")
            .collect()
    });
    let lines: String = lines.into_iter().collect::<Vec<String>>().concat();
    let path = place.0.join("a.jsonl");
    std::fs::write(&path, lines).unwrap();
    let path = path.display().to_string();
    let text = format!(
        "steps = 3\n[model]\nfamily = \"bert\"\nhead = \"sequence_classification\"\n\
         config = {{ vocab_size = 280, hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, \
         intermediate_size = 64, max_position_embeddings = 64, num_labels = 3 }}\n[data]\n\
         task = \"sequence_classification\"\ntrain = [{path:?}]\n{data}\n[schedule]\nlearning_rate = 1e-3\n"
    );
    RunConfig::parse(&text).unwrap()
}

const NAMED: &str =
    "text_fields = [\"body\"]\nlabel_field = \"kind\"\nclass_names = [\"no\", \"yes\", \"perhaps\"]";

#[test]
fn text_fields_and_class_names_can_be_set() {
    let place = TrainingFolder::new("named");
    let named = setup(&classes(&place, NAMED));
    let mut made = TaskBatch::default();
    let mut random = Random::new(1, &[]);
    (0..24).for_each(|example| named.training.add(example, &mut random, &mut made).unwrap());
    let wanted: Vec<u32> = [1, 0, 2].into_iter().flat_map(|class| [class; 8]).collect();
    assert_eq!(made.targets.ids, wanted);
    let packed = place.0.join("a.tokens");
    let config = classes(&place, NAMED);
    let (written, _) = siskin_trainer::run::pack(&config, &base(), &packed).unwrap();
    assert_eq!(written.documents, 24);
    let of_tokens = |data: &str| {
        let mut config = classes(&place, data);
        config.data.train = vec![packed.display().to_string()];
        config
    };
    let texts = train(&mut run(config, None));
    assert_eq!(texts.losses, train(&mut run(of_tokens(NAMED), None)).losses);

    let rejected = |config: &RunConfig, key: &str, what: &str| {
        let error = RunSetup::new(config, base()).err().unwrap_or_else(|| panic!("{what}"));
        let text = error.to_string();
        assert!(text.contains(key) && text.contains(what), "{error}");
    };
    let (two, fewer) = ("text_fields = [\"a\", \"b\"]", NAMED.replace(", \"perhaps\"", ""));
    for (data, key, what) in [
        ("", "data.text_fields", "no such field"),
        (two, "data.text_fields", "2 names, but sequence_classification has the fields text"),
        ("text_fields = [\"body\"]", "data.label_field", "no such field"),
        ("text_fields = [\"body\"]\nlabel_field = \"kind\"", "data.class_names", "unknown class \"yes\""),
        (&fewer, "data.class_names", "unknown class \"perhaps\""),
        (&NAMED.replace("perhaps", "no"), "data.class_names", "contains \"no\" twice"),
        (&format!("{NAMED}\nsettings = {{ num_classes = 4 }}"), "data.class_names", "3 names"),
    ] {
        rejected(&classes(&place, data), key, what);
    }
    rejected(
        &of_tokens(&fewer),
        "data.class_names",
        "record 16: its class is out of range for the 2 classes",
    );
    let mut causal = place.config(ADAMW);
    causal.data.label_field = Some("kind".to_owned());
    rejected(&causal, "data.label_field", "the task causal_lm has no classes");
    causal.data.label_field = None;
    causal.data.class_names = vec!["no".to_owned()];
    rejected(&causal, "data.class_names", "the task causal_lm has no classes");
    let error = RunConfig::parse("[schedule]\nlearning_rate = 1\n[data]\ntext_field = [\"a\"]").unwrap_err();
    assert!(
        error.location() == "data.text_field" && error.message().contains("did you mean `text_fields`"),
        "{error}"
    );
}

#[test]
fn optional_text_fields_may_be_omitted() {
    let place = TrainingFolder::new("pairs");
    let lines: String =
        (0..6).map(|n| format!("{{\"a\": \"bird {n}\", \"b\": \"sings\", \"c\": \"x\"}}\n")).collect();
    let path = place.0.join("a.jsonl");
    std::fs::write(&path, lines).unwrap();
    let pack = |fields: &[&str]| {
        let mut config = place.config(ADAMW);
        config.data.task = "contrastive".to_owned();
        config.data.validation_split = 0.0;
        config.data.train = vec![path.display().to_string()];
        config.data.text_fields = fields.iter().map(|name| (*name).to_owned()).collect();
        let packed = place.0.join("a.tokens");
        siskin_trainer::run::pack(&config, &base(), &packed)?;
        let packed = PackedTokenFile::open(packed)?;
        Ok::<_, siskin::Error>((packed.parts(), packed.list(0, packed.parts() - 1)?.is_empty()))
    };
    assert_eq!(pack(&["a", "b"]).unwrap(), (2, false));
    assert_eq!(pack(&["a", "b", "c"]).unwrap(), (3, false));
    assert_eq!(pack(&["a", "b", "d"]).unwrap(), (3, true));
    for wrong in [&["a"][..], &["a", "b", "c", "d"]] {
        let error = pack(wrong).unwrap_err();
        assert!(
            error.location() == "data.text_fields" && error.message().contains("anchor, positive, negative"),
            "{error}"
        );
    }
}

#[test]
fn evaluation_needs_no_optimizer_or_training_data() {
    let place = TrainingFolder::new("measure");
    let config = place.config(ADAMW);
    let want = run(config.clone(), None).evaluate().unwrap().unwrap();
    // Evaluation needs neither gradients nor an optimizer: training with these settings would be rejected.
    let mut config = config;
    config.optimizer.name = "none".to_owned();
    config.model.trainable = vec!["no such tensor".to_owned()];
    let setup = RunSetup::for_evaluation(&config, base()).unwrap();
    assert_eq!(setup.training.count(), 0, "training data is not loaded");
    assert_eq!(evaluate(&config, &setup, None).unwrap().unwrap(), want);
}

/// Returns a config that overfits one text and validates on another.
fn by_heart(place: &TrainingFolder, more: &str) -> RunConfig {
    let other: String =
        (0..40).map(|i| format!("Newt {i} otter heron {} wren badger.\n\n", i * 7 % 11)).collect();
    std::fs::write(place.0.join("other.txt"), other).unwrap();
    let mut config = place.config(&format!("[schedule]\nname = \"constant\"\nlearning_rate = 1e-2\n{more}"));
    config.data.validation = vec![place.0.join("other.txt").display().to_string()];
    (config.data.validation_split, config.steps, config.validation.every_n_steps) = (0.0, 120, 3);
    (config.batch.max_tokens, config.validation.batches) = (256, 0);
    config
}

#[test]
fn the_best_weights_are_exported() {
    let place = TrainingFolder::new("best");
    for (metric, larger) in [("loss", false), ("accuracy", true)] {
        let folder = place.0.join(format!("run-{metric}"));
        let more =
            format!("[early_stopping]\nmetric = {metric:?}\npatience = 4\n[checkpoint]\nkeep_last = 1\n");
        let mut stopped = run(by_heart(&place, &more), Some(&folder));
        let mut notes = Notes::default();
        let stop = notes.stop.clone();
        assert_eq!(stopped.train(&stop, &mut notes).unwrap(), RunEnd::EarlyStopped, "{metric}");
        let number = |seen: &siskin_trainer::run::Validation| if larger { -seen.accuracy } else { seen.loss };
        let best = notes.validations.iter().min_by(|a, b| number(a).total_cmp(&number(b))).unwrap();
        let last = stopped.steps();
        assert!(best.step + 3 * 4 <= last && best.best, "{metric}: {best:?} of {last}");
        let after = stopped.evaluate().unwrap().unwrap();
        assert_ne!(after.mean(), best.loss, "{metric}");
        assert_eq!(stopped.load_export_weights().unwrap(), best.step, "{metric}");
        assert_eq!(stopped.evaluate().unwrap().unwrap().mean(), best.loss, "{metric}");
        let mut again = run(by_heart(&place, "[export]\nweights = \"last\"\n"), Some(&folder));
        assert!(again.resume(&mut notes).unwrap());
        assert_eq!(again.load_export_weights().unwrap(), last, "{metric}: the newest stays where it was");
    }
    // When a run is resumed, another metric may be watched, or a metric for the first time: the best value is reset.
    let folder = place.0.join("run-loss");
    for more in ["[early_stopping]\nmetric = \"accuracy\"\npatience = 4\n", ""] {
        let mut config = by_heart(&place, more);
        config.steps = 200;
        let mut on = run(config, Some(&folder));
        let mut notes = Notes::default();
        assert!(on.resume(&mut notes).unwrap());
        notes.stop_after = Some(on.steps() + 3);
        let stop = notes.stop.clone();
        assert_eq!(on.train(&stop, &mut notes).unwrap(), RunEnd::Interrupted);
        assert!(notes.validations[0].best, "{more:?}: {:?}", notes.validations);
    }
    let blind = |more: &str| {
        let mut config = place.config(&format!("{ADAMW}{more}"));
        config.data.validation_split = 0.0;
        let setup = setup(&config);
        Run::new(config, setup, None).err().map(|error| error.location().to_owned())
    };
    assert_eq!(blind("[early_stopping]\npatience = 2\n").as_deref(), Some("early_stopping"));
    assert_eq!(blind("[export]\nweights = \"best\"\n").as_deref(), Some("export.weights"));
    assert_eq!(blind(""), None);
}

#[test]
fn validation_samples_all_lengths() {
    let place = TrainingFolder::new("lengths");
    let text: String = (0..300).map(|i| format!("{}\n\n", "wren ".repeat(1 + i % 12))).collect();
    std::fs::write(place.0.join("other.txt"), text).unwrap();
    let mut config = place.config(ADAMW);
    config.data.validation = vec![place.0.join("other.txt").display().to_string()];
    (config.data.validation_split, config.batch.max_tokens, config.validation.batches) = (0.0, 64, 12);
    let setup = setup(&config);
    let rows = || -> Vec<Vec<usize>> {
        let batches = setup.validation_batches(&config).unwrap().unwrap();
        batches.map(|step| step.unwrap().batch.decoder.spans().map(|span| span.len()).collect()).collect()
    };
    let seen = rows();
    assert_eq!((seen.len(), &seen), (12, &rows()), "each validation has the same batches");
    config.validation.batches = 0;
    let all: Vec<usize> = setup
        .validation_batches(&config)
        .unwrap()
        .unwrap()
        .flat_map(|step| step.unwrap().batch.decoder.sequences)
        .map(|sequence| sequence.rows.len())
        .collect();
    let (longest, shortest) = (all.iter().max().unwrap(), all.iter().min().unwrap());
    let half = (longest + shortest) / 2;
    let long = seen.iter().filter(|batch| batch.iter().all(|rows| *rows > half)).count();
    assert!((2..12).contains(&long), "{long} of 12 batches are of long texts: {seen:?}");
}

/// Makes the folder of a run unavailable for some steps.
struct Thief<'a> {
    folder: &'a std::path::Path,
    notes: Vec<String>,
}

impl siskin_trainer::run::RunCallbacks for Thief<'_> {
    fn step(&mut self, progress: &siskin_trainer::run::StepReport) {
        // Steps continue while a checkpoint is written: the third step's has time to succeed, and the sixth step's to
        // fail.
        let wait = || std::thread::sleep(std::time::Duration::from_secs(3));
        let hidden = self.folder.with_extension("hidden");
        match progress.step {
            5 => {
                wait();
                std::fs::rename(self.folder, hidden).unwrap();
                std::fs::write(self.folder, b"no folder").unwrap();
            }
            7 => {
                wait();
                std::fs::remove_file(self.folder).unwrap();
                std::fs::rename(hidden, self.folder).unwrap();
            }
            _ => {}
        }
    }

    fn warning(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

#[test]
fn unwritable_checkpoints_are_reported_and_do_not_end_the_run() {
    let place = TrainingFolder::new("unwritten");
    let folder = place.0.join("run");
    let mut config = place.config(&format!("{ADAMW}[checkpoint]\nevery_n_steps = 3\nkeep_last = 9\n"));
    config.validation.every_n_steps = 0;
    let mut thief = Thief { folder: &folder, notes: Vec::new() };
    let mut whole = run(config.clone(), Some(&folder));
    let stop = std::sync::atomic::AtomicBool::new(false);
    assert_eq!(whole.train(&stop, &mut thief).unwrap(), RunEnd::Completed);
    assert_eq!(thief.notes.len(), 1, "{:?}", thief.notes);
    assert!(thief.notes[0].contains("a checkpoint could not be written"), "{:?}", thief.notes);
    let steps = siskin_trainer::checkpoint::CheckpointFolder::new(&folder, 9).unwrap().steps().unwrap();
    assert_eq!(steps, [3, 9, 12]);
}

#[test]
fn distillation_lowers_the_divergence_from_the_teacher() {
    let place = TrainingFolder::new("taught");
    let mut config = place.config(ADAMW);
    config.steps = 40;
    let mut teacher = run(config, None);
    train(&mut teacher);
    let file = file_of(&place, &mut teacher);
    let distil = "[loss]\nname = \"distillation\"\nkd_ratio = 1.0\ntemperature = 1.0\n";
    let mut config = place.config(&format!("{ADAMW}{distil}"));
    (config.steps, config.seed) = (60, 5);
    let taught = |config: &RunConfig| setup(config).with_teacher(&file).unwrap();
    let mut learner = Run::new(config.clone(), taught(&config), None).unwrap();
    let notes = train(&mut learner);
    let (first, last) = (notes.validations[0].loss, notes.validations.last().unwrap().loss);
    assert!(last < 0.3 * first, "{first} to {last}: how far the one is from the other");
    // The teacher has zero divergence from itself.
    let own = RunSetup::new(&config, OpenedBase::File(Box::new(file.clone())))
        .unwrap()
        .with_teacher(&file)
        .unwrap();
    let own = evaluate(&config, &own, None).unwrap().unwrap();
    assert!(own.mean().abs() < 1e-6 && own.weight > 0.0, "{own:?}");
    let measured = evaluate(&config, &taught(&config), None).unwrap().unwrap();
    assert!(measured.mean() > first, "before its first step: {}", measured.mean());

    let alone = Run::new(config.clone(), setup(&config), None).err().unwrap();
    assert!(alone.location() == "loss" && alone.message().contains("[teacher]"), "{alone}");
    let plain = place.config(ADAMW);
    assert_eq!(Run::new(plain.clone(), taught(&plain), None).err().unwrap().location(), "teacher");
    let mut wider = place.config(ADAMW);
    wider.model.config.insert("vocab_size".to_owned(), 300.into());
    let error = setup(&wider).with_teacher(&file).err().unwrap();
    assert!(error.location() == "teacher.from" && error.message().contains("280 logits"), "{error}");
    let other = tokenizer::train(["another text"].into_iter(), 280, &["<|endoftext|>"]).unwrap();
    let tokenizer = siskin_convert::tokenizer_of_json(other.to_string().as_bytes()).unwrap();
    let other = RunSetup::new(&plain, OpenedBase::New { tokenizer, template: None }).unwrap();
    let error = other.with_teacher(&file).err().unwrap();
    assert!(error.message().contains("different tokenizer"), "{error}");
}

//! Diagnostics of training runs: checks before a run, statistics, profiles, samples.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use siskin::file::{AtomicFile, File};
use siskin::{CpuFeatures, DeviceKind};
use siskin_tests::golden;
use siskin_tests::training::{self, TrainingFolder, setup};
use siskin_trainer::profile::{self, Event, ProfileRow, ProfiledThread};
use siskin_trainer::run::{
    Check, Depth, OpenedBase, Outcome, Run, RunCallbacks, RunConfig, RunEnd, RunSetup, Sample, StepReport,
};
use siskin_trainer::statistics::StepStatistics;
use siskin_trainer::{Recompute, Runner, export};

/// Returns a config of six steps, with the settings in `more`.
fn short(place: &TrainingFolder, more: &str) -> RunConfig {
    let mut config =
        place.config(&format!("[schedule]\nlearning_rate = 5e-3\n[batch]\nmax_tokens = 256\n{more}"));
    config.steps = 6;
    (config.validation.every_n_steps, config.validation.batches) = (3, 2);
    config
}

fn run(config: RunConfig) -> Run {
    training::run(config, None)
}

/// Records reports.
#[derive(Default)]
struct Notes {
    progress: Vec<StepReport>,
    statistics: Vec<StepStatistics>,
    profiles: Vec<Vec<Event>>,
    samples: Vec<(u64, Vec<Sample>)>,
}

impl RunCallbacks for Notes {
    fn step(&mut self, progress: &StepReport) {
        self.progress.push(*progress);
    }

    fn statistics(&mut self, statistics: &StepStatistics) {
        self.statistics.push(statistics.clone());
    }

    fn profile(&mut self, events: &[Event]) {
        self.profiles.push(events.to_vec());
    }

    fn samples(&mut self, step: u64, samples: &[Sample]) {
        self.samples.push((step, samples.to_vec()));
    }
}

fn train(run: &mut Run) -> Notes {
    let mut notes = Notes::default();
    assert_eq!(run.train(&AtomicBool::new(false), &mut notes).unwrap(), RunEnd::Completed);
    notes
}

fn losses(notes: &Notes) -> Vec<f64> {
    notes.progress.iter().map(|progress| progress.loss).collect()
}

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

#[test]
fn sound_runs_pass_all_checks_and_keep_their_state() {
    let place = TrainingFolder::new("good");
    for more in ["", "[adapters]\nrank = 4\n"] {
        let mut checked = run(short(&place, more));
        let before = checked.parameters().unwrap();
        for depth in [Depth::Brief, Depth::Full] {
            let checks = checked.check(depth).unwrap();
            // Adapters on random matrices overfit slowly.
            let may_warn = |check: &Check| !more.is_empty() && check.name == "overfits a batch";
            let fine = |check: &Check| match check.outcome {
                Outcome::Pass => true,
                Outcome::Warning => may_warn(check),
                Outcome::Fail => false,
            };
            assert!(checks.iter().all(fine), "{checks:#?}");
            assert!(Check::reject(&checks).is_ok());
            let attention = &find(&checks, "attention").result;
            assert!(attention.contains("weights of 2 operations sum to one"), "{attention}");
            assert!(find(&checks, "initial loss").result.contains("ln(280)"), "{checks:?}");
            if depth == Depth::Full {
                assert!(
                    find(&checks, "short sequences").result.ends_with("of 1, 2, 7 tokens"),
                    "{checks:#?}"
                );
                assert_eq!(checks.len(), 7);
            }
        }
        assert_eq!(checked.parameters().unwrap(), before);
        let want = losses(&train(&mut run(short(&place, more))));
        assert_eq!(losses(&train(&mut checked)), want, "observation changes no step");
    }
}

/// Returns the same model with a tensor filled with `number`.
fn changed(place: &TrainingFolder, config: &RunConfig, tensor: &str, number: f32) -> OpenedBase {
    let mut begun = run(short(place, ""));
    let mut parameters = begun.parameters().unwrap();
    let tensor = parameters.list.iter_mut().find(|parameter| parameter.name == tensor).unwrap();
    tensor.numbers.fill(number);
    let path = place.0.join(format!("{}-{number}.siskin", config.seed));
    let out = AtomicFile::create(&path).unwrap();
    export::write(&begun.setup().file_contents, &parameters, out).unwrap().commit().unwrap();
    OpenedBase::File(Box::new(File::open(&path).unwrap()))
}

#[test]
fn defective_runs_fail_with_advice() {
    let place = TrainingFolder::new("bad");
    // Gradients of the trained tensors are zero.
    let mut config = short(&place, "");
    config.model.trainable = vec!["blk.1.attn_qkv.*".to_owned()];
    let setup = RunSetup::new(&config, changed(&place, &config, "blk.1.attn_output.weight", 0.0)).unwrap();
    let mut checked = Run::new(config, setup, None).unwrap();
    let checks = checked.check(Depth::Full).unwrap();
    let gradients = find(&checks, "gradients");
    assert_eq!(gradients.outcome, Outcome::Fail);
    assert!(gradients.result.contains("zero for 2 tensors: blk.1.attn_qkv."), "{gradients:?}");
    assert_eq!(find(&checks, "overfits a batch").outcome, Outcome::Fail);
    let error = Check::reject(&checks).unwrap_err();
    assert!(error.location() == "check: gradients" && error.message().contains("model.trainable"), "{error}");
    let brief = checked.check(Depth::Brief).unwrap();
    assert!(Check::reject(&brief).is_ok(), "before a run it is only a warning");
    assert_eq!(find(&brief, "gradients").outcome, Outcome::Warning);

    // NaN or infinity is reported with its tensor.
    let config = short(&place, "");
    let base = changed(&place, &config, "blk.0.ffn_up.weight", f32::INFINITY);
    let setup = RunSetup::new(&config, base).unwrap();
    let checks = Run::new(config, setup, None).unwrap().check(Depth::Brief).unwrap();
    assert_eq!(checks.len(), 1);
    assert!(checks[0].result.contains("blk.0.ffn_up.weight"), "{checks:?}");

    // Sequences longer than the table of positions.
    for packing in [true, false] {
        let mut too_long = short(&place, "");
        (too_long.data.settings.max_length, too_long.data.settings.packing) = (65, packing);
        let checks = run(too_long).check(Depth::Brief).unwrap();
        let error = Check::reject(&checks).unwrap_err();
        assert_eq!(error.location(), "check: maximum length");
        assert!(error.message().contains("data.settings.max_length is 65"), "{error}");
        assert!(error.message().contains("the model has 64 positions"), "{error}");
    }
}

#[test]
fn the_default_maximum_length_is_the_context_of_the_model() {
    let place = TrainingFolder::new("context");
    for (max_length, want) in [(0, 64), (16, 16)] {
        let mut config = short(&place, "");
        (config.data.settings.max_length, config.data.settings.packing) = (max_length, true);
        let mut packed = run(config);
        let lengths: Vec<usize> = (0..packed.setup().training.count())
            .map(|example| packed.setup().training.rows(example))
            .collect();
        assert_eq!(lengths.iter().max(), Some(&want), "{lengths:?}");
        assert!(Check::reject(&packed.check(Depth::Brief).unwrap()).is_ok());
        train(&mut packed);
    }
}

#[test]
fn qat_models_overfit_a_batch() {
    let place = TrainingFolder::new("rounded");
    let mut config = short(&place, "[qat]\nweight_type = \"W8r\"\n");
    config.model.trainable = ["up", "down"].map(|name| format!("blk.*.ffn_{name}.weight")).to_vec();
    let checks = run(config).check(Depth::Full).unwrap();
    let learns = find(&checks, "overfits a batch");
    assert_ne!(learns.outcome, Outcome::Fail, "{learns:?}");
}

#[test]
fn statistics_cover_every_operation_and_change_no_bit() {
    let place = TrainingFolder::new("statistics");
    let mut watched = run(short(&place, "[statistics]\nevery_n_steps = 2\n"));
    let notes = train(&mut watched);
    assert_eq!(losses(&notes), losses(&train(&mut run(short(&place, "")))), "observation changes no step");
    let steps: Vec<u64> = notes.statistics.iter().map(|own| own.step).collect();
    assert_eq!(steps, [2, 4, 6]);
    let program = &watched.setup().program;
    for own in &notes.statistics {
        let names: Vec<&String> = own.outputs.iter().map(|(name, _)| name).collect();
        assert_eq!(names, program.names().iter().collect::<Vec<_>>(), "every operation, including the head");
        // The norm of all gradients is the one that the step reports.
        let square: f64 = own.gradients.iter().map(|(_, own)| own.sum_of_squares).sum();
        let norm = notes.progress[own.step as usize - 1].grad_norm;
        assert!((square.sqrt() - norm).abs() < 1e-9 * norm, "{square} and {norm}");
        let rows = notes.progress[own.step as usize - 1].tokens as u64;
        let (name, scores) = own.outputs.last().unwrap();
        assert!(name.contains("Linear"), "{name}");
        assert_eq!(scores.count, rows * 280, "logits of all rows, for any chunking");
        assert!(own.outputs.iter().all(|(_, own)| own.non_finite == 0 && own.rms() > 0.0));
    }
}

#[test]
fn profiles_contain_every_operation_of_their_steps() {
    let place = TrainingFolder::new("profile");
    let more = "[profile]\nsteps = [2, 2]\n";
    let mut watched = run(short(&place, more));
    let notes = train(&mut watched);
    assert_eq!(losses(&notes), losses(&train(&mut run(short(&place, "")))), "observation changes no step");
    assert_eq!(notes.profiles.len(), 1);
    let events = &notes.profiles[0];
    let named = |name: &str| events.iter().filter(|event| event.name == name).count();
    assert_eq!([named("step"), named("optimizer"), named("grad norm"), named("loss")], [2; 4]);
    let program = &watched.setup().program;
    for name in program.names() {
        let phases: Vec<&str> = events
            .iter()
            .filter(|event| event.name == name)
            .map(|event| event.node.as_ref().unwrap().phase)
            .collect();
        assert_eq!(phases.iter().filter(|phase| **phase == "forward").count(), 2, "{name}");
        assert_eq!(phases.iter().filter(|phase| **phase == "backward").count(), 2, "{name}");
    }
    // Events lie within their steps, and their total is at most that of the steps.
    let of_steps = |event: &&Event| event.worker == ProfiledThread::Steps;
    let whole: f64 =
        events.iter().filter(|event| event.name == "step").map(|event| event.length.as_secs_f64()).sum();
    let parts =
        events.iter().filter(of_steps).filter(|event| !["step", "validation"].contains(&&*event.name));
    let sum: f64 = parts.map(|event| event.length.as_secs_f64()).sum();
    assert!(sum <= whole && sum > 0.3 * whole, "{sum} of {whole}");
    let rows = ProfileRow::of(events);
    let linear = rows.iter().find(|row| row.name == "Linear forward").unwrap();
    let products = program.graph.nodes.iter().filter(|node| format!("{:?}", node.op).starts_with("Linear"));
    assert_eq!(linear.calls, 2 * products.count());
    assert!(linear.gflop_per_second > 0.0);
    assert!((rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let trace = profile::trace(events);
    assert_eq!(trace["traceEvents"].as_array().unwrap().len(), 3 + events.len());
}

#[test]
fn flops_of_a_step_match_a_count_by_hand() {
    let place = TrainingFolder::new("work");
    let config = short(&place, "");
    let setup = setup(&config);
    let parameters = setup.parameters(1).unwrap();
    let mut batch = siskin_trainer::batch::TrainingBatch::default();
    batch.decoder.push(&[97; 10], &[]);
    batch.decoder.push(&[98; 6], &[]);
    batch.decoder.output_all();
    let runner =
        |trained: bool| Runner::<f32>::new(setup.program.clone(), Recompute::None, |_| trained).unwrap();
    // Computed by hand: two layers of 12 · 32² weights and scores of 280 ids over 16 rows; pairs of queries and keys.
    let products = 2.0 * 16.0 * (2.0 * 12.0 * 32.0 * 32.0 + 280.0 * 32.0);
    let pairs = 2.0 * 4.0 * 32.0 * (10.0 * 11.0 / 2.0 + 6.0 * 7.0 / 2.0);
    assert_eq!(runner(false).flops(&parameters, &batch).unwrap(), products + pairs);
    assert_eq!(runner(true).flops(&parameters, &batch).unwrap(), 3.0 * (products + pairs));
}

#[test]
fn samples_match_the_exported_model() {
    let place = TrainingFolder::new("samples");
    let more =
        "[report]\nprompts = [\"The siskin\", \"The otter waits\"]\nmax_new_tokens = 12\ntemperature = 0\n";
    let mut config = short(&place, more);
    config.steps = 40;
    let mut trained = run(config);
    let notes = train(&mut trained);
    assert_eq!(notes.samples.len(), 14, "one at each validation");
    let (step, samples) = notes.samples.last().unwrap();
    assert_eq!((*step, samples.len()), (40, 2));
    let path = place.0.join("model.siskin");
    let out = AtomicFile::create(&path).unwrap();
    let parameters = trained.result().unwrap();
    export::write(&trained.setup().file_contents, &parameters, out).unwrap().commit().unwrap();
    let file = File::open(&path).unwrap();
    let model = golden::model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let tokenizer = model.tokenizer().unwrap();
    for sample in samples {
        let mut ids = tokenizer.encode(&sample.prompt, Default::default()).unwrap();
        let begun = ids.len();
        while ids.len() < begun + 12 && !tokenizer.end_ids().contains(ids.last().unwrap()) {
            let scores = golden::score(&model, &ids, 64);
            let last = &scores[(ids.len() - 1) * 280..];
            let best = (0..280).reduce(|best, id| if last[id] > last[best] { id } else { best }).unwrap();
            ids.push(best as u32);
        }
        let options = siskin::tokenizer::DecodeOptions { skip_special: true };
        let want = tokenizer.decode(&ids[begun..], options).unwrap();
        assert_eq!(sample.text.as_bytes(), want, "after {:?}", sample.prompt);
        assert!(!sample.text.is_empty());
    }
}

#[test]
fn samples_contain_only_tokens_of_the_vocabulary() {
    let place = TrainingFolder::new("rows");
    let more = "[report]\nprompts = [\"The\", \"a text that is longer than all of the positions: \
                0123456789 0123456789 0123456789 0123456789 0123456789\"]\nmax_new_tokens = \
                    40\ntemperature = 50.0\n";
    let mut config = short(&place, more);
    config.model.config.insert("vocab_size".to_owned(), 4000.into());
    let mut wide = run(config);
    let samples = wide.samples().unwrap();
    assert_eq!(samples.len(), 2);
    assert!(!samples[0].text.is_empty() && samples[1].text.is_empty(), "{samples:?}");
    assert_eq!(wide.samples().unwrap(), samples, "the same step has the same samples");
}

#[test]
fn prompts_are_rejected_for_encoders() {
    let place = TrainingFolder::new("prompts");
    let mut config = short(&place, "[report]\nprompts = [\"x\"]\n");
    config.model.family = Some("bert".to_owned());
    config.data.task = "contrastive".to_owned();
    let lines = place.0.join("lines.jsonl");
    std::fs::write(&lines, "{\"anchor\": \"x\", \"positive\": \"y\"}\n".repeat(8)).unwrap();
    config.data.train = vec![lines.display().to_string()];
    let bert = serde_json::json!({
        "vocab_size": 280, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 40, "type_vocab_size": 2,
    });
    config.model.config = bert.as_object().unwrap().clone();
    let setup = setup(&config);
    let error = Run::new(config, setup, None).err().unwrap();
    assert_eq!(error.location(), "report.prompts");
}

#[test]
fn checks_pass_for_every_kind_of_task() {
    let place = TrainingFolder::new("tasks");
    let words = ["siskin", "wren", "heron", "otter", "badger", "newt"];
    let line = |i: usize| {
        let (one, other) = (words[i % 6], words[i * 5 / 3 % 6]);
        let text = format!("the {one} waits for the {other}");
        serde_json::json!({
            "text": text, "label": i % 3, "anchor": text, "positive": format!("for the {other} the {one} \
                waits"),
            "source": text, "target": format!("the {other} is waited for"),
        })
    };
    let lines: String = (0..60).map(|i| format!("{}\n", line(i))).collect();
    let path = place.0.join("lines.jsonl");
    std::fs::write(&path, lines).unwrap();
    let bert = "vocab_size = 280, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, \
                intermediate_size = 64, max_position_embeddings = 40, type_vocab_size = 2, num_labels = 3";
    let t5 = "vocab_size = 280, d_model = 32, d_kv = 8, d_ff = 64, num_layers = 2, num_heads = 4";
    for (task, family, head, model, loss, settings) in [
        (
            "sequence_classification",
            "bert",
            "sequence_classification",
            bert,
            "cross_entropy",
            "num_classes = 3",
        ),
        ("contrastive", "bert", "none", bert, "contrastive", "max_length = 32"),
        ("seq2seq", "t5", "none", t5, "cross_entropy", "max_length = 32, decoder_start_token_id = 279"),
    ] {
        let config = RunConfig::parse(&format!(
            "steps = 2\n[model]\nfamily = {family:?}\nhead = {head:?}\nconfig = {{ {model} }}\n[data]\n\
             task = {task:?}\ntrain = [{:?}]\nsettings = {{ {settings} }}\n[loss]\nname = {loss:?}\n\
             [schedule]\nlearning_rate = 1e-3\n",
            path.display().to_string()
        ));
        let mut checked = run(config.unwrap());
        let checks = checked.check(Depth::Full).unwrap();
        assert!(Check::reject(&checks).is_ok(), "{task}: {checks:#?}");
        assert_eq!(find(&checks, "gradients").outcome, Outcome::Pass, "{task}: {checks:#?}");
        let attention = &find(&checks, "attention").result;
        let count = if family == "t5" { "weights of 6 operations" } else { "weights of 2 operations" };
        assert!(attention.starts_with(count), "{task}: {attention}");
    }
}

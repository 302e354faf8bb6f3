//! Adapters: training, training data, and the outputs of adapted models.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use siskin::file::{Bytes, File};
use siskin::{Adapter, DeviceKind, ErrorKind, LoraMatrix, Model, ModelOptions};
use siskin_convert::import::{peft, safetensors};
use siskin_convert::{AdapterSource, open_adapter};
use siskin_tests::{golden, gradients, paths};
use siskin_trainer::adapters::{self, AdapterKind, AdapterOptions};
use siskin_trainer::batch::TrainingBatch;
use siskin_trainer::loss::{CrossEntropy, Targets};
use siskin_trainer::{
    ForwardWeights, Gradients, Parameters, Program, Real, Recompute, Runner, TrainingObjective, export,
};

/// Returns the tokens of a golden model, each with the next one as target.
fn texts(ids: &[Vec<u32>]) -> (TrainingBatch, Targets) {
    let (mut batch, mut targets) = (TrainingBatch::default(), Targets::default());
    for ids in ids {
        batch.decoder.push(ids, &[]);
        targets.ids.extend(ids[1..].iter().chain([&0]));
        targets.weights.extend((1..=ids.len()).map(|place| if place < ids.len() { 1.0 } else { 0.0 }));
    }
    batch.decoder.output_all();
    (batch, targets)
}

/// A program with adapters, its parameters, and the adapters.
struct Adapted<T> {
    program: Program,
    own: usize,
    parameters: Parameters<T>,
    adapters: Vec<adapters::TrainedAdapter>,
    options: AdapterOptions,
}

impl<T: Real> Adapted<T> {
    fn new(file: &File, method: AdapterKind, packed: bool) -> Self {
        let tensors = ["*attn_q.weight", "*attn_v.weight", "*ffn_down.weight"];
        let tensors = tensors.map(str::to_owned).to_vec();
        let options = AdapterOptions { method, rank: 4, alpha: 8.0, tensors };
        let mut program = Program::of_file(file).unwrap();
        let own = program.graph.weights.len();
        let adapters = adapters::insert_adapters(&mut program, &options).unwrap();
        let mut parameters =
            Parameters::read_with_packed(&program.graph.weights[..own], file, |_| packed).unwrap();
        adapters::initialize(&program, &adapters, &options, &mut parameters, 3);
        Self { program, own, parameters, adapters, options }
    }

    fn runner(&self) -> (Runner<T>, Gradients<T>) {
        let gradients = Gradients::zeros(&self.parameters, |tensor| adapters::is_trained(&tensor.name));
        let trains = |weight| gradients.has(weight);
        (Runner::new(self.program.clone(), Recompute::None, trains).unwrap(), gradients)
    }

    /// Returns the loss and computes its gradients.
    fn step(&self, ids: &[Vec<u32>], run: &mut (Runner<T>, Gradients<T>)) -> f64 {
        let (batch, targets) = texts(ids);
        let loss = CrossEntropy::default();
        let scale = 1.0 / f64::from(targets.weights.iter().sum::<f32>());
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale };
        run.1.clear();
        run.0.run(&self.parameters, &batch, goal, &mut run.1).unwrap().mean()
    }

    /// Plain gradient descent.
    fn descend(&mut self, gradients: &Gradients<T>, rate: f64) {
        for (parameter, gradient) in self.parameters.list.iter_mut().zip(&gradients.list) {
            for (x, g) in parameter.numbers.iter_mut().zip(gradient.iter().flatten()) {
                *x -= T::of(rate * g.f64());
            }
        }
        adapters::update_norms(&mut self.parameters, &self.adapters, &self.options);
    }

    fn train(&mut self, ids: &[Vec<u32>], steps: usize) -> Vec<f64> {
        let mut run = self.runner();
        let mut losses = Vec::new();
        for _ in 0..steps {
            losses.push(self.step(ids, &mut run));
            let gradients = run.1.clone();
            self.descend(&gradients, 0.5);
        }
        losses
    }

    /// Returns the program's logits of each token.
    fn logits(&self, ids: &[u32]) -> Vec<f32> {
        let (batch, targets) = texts(&[ids.to_vec()]);
        let loss = CrossEntropy::default();
        let mut all = Vec::new();
        let mut see = |_, numbers: &[T]| all.extend(numbers.iter().map(|x| x.f64() as f32));
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale: 1.0 };
        self.runner().0.evaluate(&self.parameters, &batch, goal, Some(&mut see)).unwrap();
        all
    }
}

impl Adapted<f32> {
    fn apart(&self, base: &File) -> Adapter {
        adapters::extract(&self.parameters, &self.adapters, &self.options, base)
    }

    fn merged(&self, base: &File) -> File {
        let merged = adapters::merge(&self.parameters, self.own, &self.adapters, &self.options);
        let metadata = base.metadata();
        let frame = export::FileContents {
            architecture: metadata.architecture.clone(),
            config: metadata.config.clone(),
            ..export::FileContents::default()
        };
        let out = export::write(&frame, &merged, std::io::Cursor::new(Vec::new())).unwrap();
        File::from_bytes(out.into_inner()).unwrap()
    }
}

/// Converts the adapter to its form in a file.
fn in_file(adapter: &Adapter) -> Adapter {
    let out = adapter.write(None, Default::default(), std::io::Cursor::new(Vec::new())).unwrap();
    Adapter::from_file(&File::from_bytes(out.into_inner()).unwrap()).unwrap()
}

fn model(file: &File, adapter: &Adapter, device: DeviceKind, threads: usize) -> Model {
    let options = ModelOptions { threads, device, ..ModelOptions::default() };
    Model::with_adapter(file.clone(), adapter, &options).unwrap()
}

fn quantized(name: &str, recipe: &str) -> golden::GoldenModel {
    golden::load_as(name, Some(recipe.parse().unwrap()))
}

/// Reads the results of `tests/golden-scripts/make_adapters.py`.
fn reference() -> HashMap<String, Vec<f64>> {
    let bytes = std::fs::read(paths::data("adapters").join("dora.safetensors")).unwrap();
    let tensors = safetensors::parse(Bytes::new(bytes)).unwrap();
    let numbers = |data: &Bytes| data.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    tensors.into_iter().map(|(name, tensor)| (name, numbers(&tensor.data))).collect()
}

#[test]
fn dora_magnitudes_match_pytorch() {
    let golden = golden::load("qwen2");
    let want = reference();
    let mut adapted = Adapted::<f64>::new(&golden.file, AdapterKind::Dora, false);
    // The reference numbers adapters by layer: queries, values, down projection.
    for (number, adapter) in adapted.adapters.iter().enumerate() {
        let first = &mut adapted.parameters.list[adapter.a];
        let columns = first.columns;
        for (index, x) in first.numbers.iter_mut().enumerate() {
            let (i, j) = ((index / columns) as f64, (index % columns) as f64);
            *x = (0.7 * i + 1.3 * j + number as f64).sin() / 8.0;
        }
    }
    let mut losses = adapted.train(&golden.ids, 20);
    let mut run = adapted.runner();
    losses.push(adapted.step(&golden.ids, &mut run));
    for (got, want) in losses.iter().zip(&want["losses"]) {
        assert!((got - want).abs() < 1e-6 * want, "{losses:?}\n{:?}", want);
    }
    assert_eq!(losses.len(), want["losses"].len());
    let mut seen = 0;
    for adapter in &adapted.adapters {
        let name = &adapted.parameters.list[adapter.base].name;
        let mut parts = name.split('.');
        let (layer, kind) = (parts.nth(1).unwrap(), parts.next().unwrap());
        let kind = match kind {
            "attn_q" => "q_proj",
            "attn_v" => "v_proj",
            _ => "down_proj",
        };
        let lengths = adapter.dora.unwrap();
        for (part, weight) in [("a", adapter.a), ("b", adapter.b), ("m", lengths.magnitude)] {
            let key = format!("{layer}.{kind}.{part}");
            let gradient = run.1.list[weight].as_ref().unwrap();
            for (key, got) in
                [(key.clone(), &adapted.parameters.list[weight].numbers), (format!("{key}.grad"), gradient)]
            {
                let want = &want[&key];
                let largest = want.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
                let error = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
                assert!(got.len() == want.len() && error < 5e-5, "{key}: {error:e}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, want.len() - 1);
}

#[test]
fn initial_adapters_change_nothing() {
    let golden = golden::load("qwen2");
    for method in [AdapterKind::Lora, AdapterKind::Dora] {
        let adapted = Adapted::<f32>::new(&golden.file, method, false);
        let got = adapted.logits(&golden.ids[0]);
        let error = golden::relative_error(&got, &golden.logits[0]);
        assert!(error < 1e-5, "{method:?}: {error:e}");
        let plain = Adapted { options: AdapterOptions { rank: 1, ..adapted.options.clone() }, ..adapted };
        assert_eq!(plain.options.factor(), 8.0);
    }
}

#[test]
fn inference_with_adapters_matches_training() {
    for (name, recipe) in [("qwen2", None), ("qwen2", Some("q8_0")), ("llama", Some("w4i")), ("gemma2", None)]
    {
        for method in [AdapterKind::Lora, AdapterKind::Dora] {
            let golden = recipe.map_or_else(|| golden::load(name), |recipe| quantized(name, recipe));
            let ids = &golden.ids[0];
            let mut adapted = Adapted::<f32>::new(&golden.file, method, true);
            let before = adapted.logits(ids);
            adapted.train(&golden.ids, 4);
            let want = adapted.logits(ids);
            assert!(golden::relative_error(&before, &want) > 0.01, "{name}: something was learned");
            let adapter = in_file(&adapted.apart(&golden.file));
            adapter.check_base(&golden.file).unwrap();
            let one = model(&golden.file, &adapter, DeviceKind::Cpu, 1);
            let got = golden::score(&one, ids, 32);
            // Kernels of quantized weights round their inputs.
            let limit = if recipe.is_none() { 1e-4 } else { 0.05 };
            let error = golden::relative_error(&got, &want);
            assert!(error < limit, "{name} {recipe:?} {method:?}: {error:e}");
            for device in golden::devices() {
                let other = golden::score(&model(&golden.file, &adapter, device, 3), ids, 7);
                assert!(other == got, "{name} {recipe:?} {method:?}: other bits with {device:?}");
            }
            let merged =
                golden::model(&adapted.merged(&golden.file), DeviceKind::Cpu, 1, siskin::CpuFeatures::NONE);
            let error = golden::relative_error(&golden::score(&merged, ids, 32), &want);
            assert!(error < limit, "{name} {recipe:?} {method:?}, merged: {error:e}");
            let plain = golden::model(&golden.file, DeviceKind::Cpu, 1, siskin::CpuFeatures::NONE);
            assert_ne!(one.identity(), plain.identity());
        }
    }
}

#[test]
fn base_weights_stay_packed() {
    let golden = quantized("qwen2", "q8_0");
    let mut packed = Adapted::<f32>::new(&golden.file, AdapterKind::Dora, true);
    let mut plain = Adapted::<f32>::new(&golden.file, AdapterKind::Dora, false);
    let stays = |adapted: &Adapted<f32>| {
        adapted
            .parameters
            .list
            .iter()
            .filter(|tensor| matches!(tensor.forward, ForwardWeights::Packed(_)))
            .count()
    };
    assert!(stays(&packed) > 10 && stays(&plain) == 0, "{}", stays(&packed));
    let bytes = |adapted: &Adapted<f32>| -> usize {
        adapted.parameters.list[..adapted.own].iter().map(siskin_trainer::Parameter::bytes).sum()
    };
    assert!(bytes(&packed) * 2 < bytes(&plain), "{} and {}", bytes(&packed), bytes(&plain));
    assert_eq!(packed.train(&golden.ids, 3), plain.train(&golden.ids, 3), "the same numbers");
    let merged = packed.merged(&golden.file);
    let mut kept = 0;
    for tensor in golden.file.tensors() {
        let now = merged.tensor(&tensor.name).unwrap();
        let changed = packed.adapters.iter().any(|a| packed.parameters.list[a.base].name == tensor.name);
        let same = now.panel == tensor.panel && now.data[..] == tensor.data[..];
        assert_eq!(same, !changed, "{}", tensor.name);
        kept += usize::from(same);
    }
    assert!(kept > 10 && kept + 6 == golden.file.tensors().len(), "{kept}");
}

#[test]
fn frozen_weights_have_no_gradients_or_optimizer_state() {
    let golden = quantized("qwen2", "q8_0");
    let adapted = Adapted::<f32>::new(&golden.file, AdapterKind::Lora, true);
    let (_, gradients) = adapted.runner();
    let own: usize = adapted.parameters.list[adapted.own..].iter().map(|tensor| tensor.numbers.len()).sum();
    assert_eq!(gradients.list.iter().flatten().map(Vec::len).sum::<usize>(), own);
    let options = serde_json::from_str(r#"{"name": "adamw"}"#).unwrap();
    let optimizer = siskin_trainer::Optimizer::new(&options, &adapted.parameters, &gradients).unwrap();
    assert_eq!(optimizer.bytes(), 2 * 4 * own);
}

#[test]
fn adapters_that_fit_no_model_are_rejected() {
    let golden = golden::load("llama");
    let good = in_file(&Adapted::<f32>::new(&golden.file, AdapterKind::Lora, true).apart(&golden.file));
    let other = golden::load("mistral");
    assert_eq!(good.check_base(&other.file).unwrap_err().location(), "adapter.architecture");
    let packed = quantized("llama", "q8_0");
    let error = good.check_base(&packed.file).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Argument, "adapter.base"));
    let out = good.write(None, Default::default(), std::io::Cursor::new(Vec::new())).unwrap();
    let file = File::from_bytes(out.into_inner()).unwrap();
    let error = Model::from_file(file, &ModelOptions::default()).err().unwrap();
    assert!(error.message().contains("an adapter without a model"), "{error}");
    // Can be used on request: the shapes fit.
    model(&packed.file, &good, DeviceKind::Cpu, 1);
    let rejected = |change: &dyn Fn(&mut LoraMatrix)| {
        let mut adapter = good.clone();
        change(&mut adapter.parts[0]);
        Model::with_adapter(golden.file.clone(), &adapter, &ModelOptions::default()).err().unwrap().kind()
    };
    assert_eq!(rejected(&|part| part.tensor = "blk.9.attn_q.weight".to_owned()), ErrorKind::Missing);
    assert_eq!(rejected(&|part| part.tensor = "token_embd.weight".to_owned()), ErrorKind::Shape);
    assert_eq!(rejected(&|part| part.rank = 0), ErrorKind::Shape);
    assert_eq!(rejected(&|part| part.rows *= 2), ErrorKind::Shape);
    let wide = |part: &mut LoraMatrix| {
        part.columns *= 2;
        part.a.extend(part.a.clone());
    };
    assert_eq!(rejected(&wide), ErrorKind::Shape);
    assert_eq!(rejected(&|part| part.a[3] = f32::INFINITY), ErrorKind::Corrupt);
    let table = |part: &mut LoraMatrix| {
        (part.tensor, part.rows, part.b) = ("token_embd.weight".to_owned(), 256, vec![0.0; 1024]);
    };
    assert_eq!(rejected(&table), ErrorKind::Unsupported);
}

#[test]
fn peft_adapters_match_pytorch() {
    let golden = golden::load("qwen2");
    let folder = paths::data("adapters").join("peft");
    let adapter = open_adapter(AdapterSource { path: &folder, any_base: false }, &golden.file).unwrap();
    assert_eq!((adapter.parts.len(), adapter.base), (6, None));
    let io = std::fs::read(folder.join("io.safetensors")).unwrap();
    let io = safetensors::parse(Bytes::new(io)).unwrap();
    let want: Vec<f32> =
        io["logits"].data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert!(golden::relative_error(&golden.logits[0], &want) > 0.1, "the adapter changes something");
    for adapter in [&adapter, &in_file(&adapter)] {
        let model = model(&golden.file, adapter, DeviceKind::Cpu, 2);
        let error = golden::relative_error(&golden::score(&model, &golden.ids[0], 32), &want);
        assert!(error < 1e-4, "{error:e}");
    }
}

#[test]
fn the_fuzzer_has_adapter_seeds() {
    let base = File::open(paths::data("fuzz/container/small.bin")).unwrap();
    let adapter = Adapter::open(paths::data("fuzz/adapter/small.bin")).unwrap();
    adapter.check_base(&base).unwrap();
    model(&base, &adapter, DeviceKind::Cpu, 1);
    let both = std::fs::read(paths::data("fuzz/adapter/peft.bin")).unwrap();
    let zero = both.iter().position(|byte| *byte == 0).unwrap();
    let config = serde_json::from_slice(&both[..zero]).unwrap();
    let tensors = safetensors::parse(Bytes::new(both[zero + 1..].to_vec())).unwrap();
    let adapter = peft::of(&config, &tensors, &base).unwrap();
    assert_eq!(adapter.parts[0].scale, (2.0 / 2.0_f64.sqrt()) as f32);
    model(&base, &adapter, DeviceKind::Cpu, 1);
}

#[test]
fn peft_adapters_with_unsupported_settings_are_rejected() {
    let golden = golden::load("qwen2");
    let folder = paths::data("adapters").join("peft");
    let text = std::fs::read(folder.join("adapter_config.json")).unwrap();
    let config: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let tensors = std::fs::read(folder.join("adapter_model.safetensors")).unwrap();
    let tensors = safetensors::parse(Bytes::new(tensors)).unwrap();
    let rejected = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config.insert(key.to_owned(), value);
        let error = peft::of(&config, &tensors, &golden.file).unwrap_err();
        assert!(error.location().contains(key), "{error}");
        error.kind()
    };
    assert_eq!(rejected("peft_type", "IA3".into()), ErrorKind::Unsupported);
    assert_eq!(rejected("bias", "all".into()), ErrorKind::Unsupported);
    assert_eq!(rejected("modules_to_save", serde_json::json!(["lm_head"])), ErrorKind::Unsupported);
    assert_eq!(rejected("lora_alpha", serde_json::Value::Null), ErrorKind::Missing);
    assert_eq!(rejected("alpha_pattern", serde_json::json!({"q.*": 3})), ErrorKind::Unsupported);
    let changed = |change: &dyn Fn(&mut HashMap<String, safetensors::SafetensorsTensor>)| {
        let mut tensors = tensors.clone();
        change(&mut tensors);
        peft::of(&config, &tensors, &golden.file).unwrap_err().kind()
    };
    let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
    assert_eq!(changed(&|tensors| drop(tensors.remove(name))), ErrorKind::Missing);
    let other = name.replace("layers.0", "layers.7");
    let moved = |tensors: &mut HashMap<String, safetensors::SafetensorsTensor>| {
        let tensor = tensors.remove(name).unwrap();
        tensors.insert(other.clone(), tensor);
    };
    assert_eq!(changed(&moved), ErrorKind::Missing);
    assert_eq!(changed(&|tensors| tensors.get_mut(name).unwrap().shape = vec![32, 8]), ErrorKind::Shape);
    assert_eq!(changed(&|tensors| tensors.get_mut(name).unwrap().dtype = "I64"), ErrorKind::Unsupported);
    // Families that store queries, keys and values differently are rejected.
    let neox = golden::load("gpt-neox");
    let mut fused = HashMap::new();
    for part in ["A", "B"] {
        let name = format!("base_model.model.gpt_neox.layers.0.attention.query_key_value.lora_{part}.weight");
        fused.insert(name, tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].clone());
    }
    let error = peft::of(&config, &fused, &neox.file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn adapters_recompute_bit_identically() {
    let case = gradients::load("llama");
    let mut adapted = Adapted::<f32>::new(&case.file, AdapterKind::Dora, true);
    let ids = golden::load("llama").ids;
    adapted.train(&ids, 2);
    let mut run = adapted.runner();
    adapted.step(&ids, &mut run);
    for recompute in [Recompute::Layers(1), Recompute::Attention, Recompute::Cost(0), Recompute::Cost(48)] {
        let runner = Runner::new(adapted.program.clone(), recompute, |weight| run.1.has(weight)).unwrap();
        let mut again = (runner, run.1.clone());
        adapted.step(&ids, &mut again);
        assert_eq!(again.1, run.1, "{recompute:?}");
    }
}

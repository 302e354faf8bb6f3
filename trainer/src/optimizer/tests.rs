use siskin_format::ErrorKind;

use super::*;
use crate::state::{restore, save};

/// Tensors with more elements than a task processes; the last is not trained.
fn tensors() -> (Parameters<f32>, Gradients<f32>) {
    let parameter = |(index, (name, rows, columns)): (usize, (&str, usize, usize))| Parameter {
        name: name.to_owned(),
        rows,
        columns,
        role: if rows == 1 { WeightRole::Vector } else { WeightRole::Matrix },
        numbers: (0..rows * columns).map(|i| ((i * 7 + index) as f32).sin()).collect(),
        forward: Default::default(),
    };
    let shapes = [
        ("token_embd.weight", 700, 60),
        ("up.weight", 301, 130),
        ("norm.weight", 1, 40_000),
        ("down.weight", 20, 300),
        ("still.weight", 4, 4),
    ];
    let parameters = Parameters { list: shapes.into_iter().enumerate().map(parameter).collect() };
    let gradients = Gradients::zeros(&parameters, |parameter| parameter.name != "still.weight");
    (parameters, gradients)
}

/// Runs some steps, starting with number `first`.
fn steps(
    optimizer: &mut Optimizer,
    parameters: &mut Parameters<f32>,
    gradients: &mut Gradients<f32>,
    first: usize,
) {
    for step in first..first + 3 {
        for (index, gradient) in gradients.list.iter_mut().enumerate() {
            for (i, number) in gradient.iter_mut().flatten().enumerate() {
                *number = ((i * 3 + step * 11 + index) as f32).cos() * 1e-2;
            }
        }
        let arguments = StepArguments { learning_rate: 0.01 / (step + 1) as f64, grad_factor: 0.5 };
        optimizer.step(parameters, gradients, arguments).unwrap();
    }
}

fn options(name: &str) -> OptimizerOptions {
    let settings = if name == "sgd" { serde_json::json!({ "momentum": 0.9 }) } else { serde_json::json!({}) };
    OptimizerOptions {
        name: name.to_owned(),
        groups: Vec::new(),
        settings: serde_json::from_value(settings).unwrap(),
    }
}

#[test]
fn steps_are_bit_identical_for_any_thread_count() {
    for name in names() {
        let results = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (mut parameters, mut gradients) = tensors();
                let mut optimizer = Optimizer::new(&options(name), &parameters, &gradients).unwrap();
                steps(&mut optimizer, &mut parameters, &mut gradients, 0);
                let norm = crate::clip::GradientNorm::of(&gradients).norm;
                (parameters, save(&[&optimizer]), norm)
            })
        });
        assert!(results[0] == results[1], "{name}");
    }
}

#[test]
fn restored_state_continues_bit_identically() {
    for name in names() {
        let (mut parameters, mut gradients) = tensors();
        let still = parameters.list[4].clone();
        let mut optimizer = Optimizer::new(&options(name), &parameters, &gradients).unwrap();
        steps(&mut optimizer, &mut parameters, &mut gradients, 0);
        let (mut later, tables) = (parameters.clone(), save(&[&optimizer]));
        steps(&mut optimizer, &mut parameters, &mut gradients, 3);
        let mut other = Optimizer::new(&options(name), &later, &gradients).unwrap();
        restore(&mut other, &tables).unwrap();
        assert_eq!(other.count(), 3);
        steps(&mut other, &mut later, &mut gradients, 3);
        assert!(later == parameters, "{name}: parameters");
        assert!(save(&[&other]) == save(&[&optimizer]), "{name}: state");
        assert!(parameters.list[4] == still, "{name}: what is not trained stays");
    }
}

#[test]
fn state_of_the_wrong_size_is_rejected_by_name() {
    let (mut parameters, mut gradients) = tensors();
    let mut optimizer = Optimizer::new(&options("adamw"), &parameters, &gradients).unwrap();
    steps(&mut optimizer, &mut parameters, &mut gradients, 0);
    let tables = save(&[&optimizer]);
    let name = "optimizer.adamw.second.up.weight";
    let change = |change: &dyn Fn(&mut Tables)| {
        let mut tables = tables.clone();
        change(&mut tables);
        tables
    };
    let without = change(&|tables| drop(tables.remove(name)));
    let short = change(&|tables| drop(tables.insert(name.to_owned(), TableData::Numbers(vec![0.0; 3]))));
    let bytes = change(&|tables| drop(tables.insert(name.to_owned(), TableData::Bytes(vec![0; 301 * 130]))));
    let more =
        change(&|tables| drop(tables.insert("optimizer.lion".to_owned(), TableData::Bytes(Vec::new()))));
    for (tables, kind, place) in [
        (without, ErrorKind::Missing, name),
        (short, ErrorKind::Shape, name),
        (bytes, ErrorKind::Shape, name),
        (more, ErrorKind::Argument, "optimizer.lion"),
    ] {
        let mut other = Optimizer::new(&options("adamw"), &parameters, &gradients).unwrap();
        let error = restore(&mut other, &tables).unwrap_err();
        assert_eq!((error.kind(), error.location()), (kind, &*format!("table {place}")));
        assert_eq!(other.count(), 0, "the state stays as it was");
    }
    let others = change(&|tables| drop(tables.insert("ema.steps".to_owned(), TableData::Bytes(Vec::new()))));
    restore(&mut optimizer, &others).unwrap();
    let mut lion = Optimizer::new(&options("lion"), &parameters, &gradients).unwrap();
    assert_eq!(restore(&mut lion, &tables).unwrap_err().kind(), ErrorKind::Missing);
}

#[test]
fn steps_with_other_tensors_are_rejected() {
    let (mut parameters, mut gradients) = tensors();
    let mut optimizer = Optimizer::new(&options("sgd"), &parameters, &gradients).unwrap();
    gradients.list[1] = None;
    let arguments = StepArguments { learning_rate: 0.1, grad_factor: 1.0 };
    let error = optimizer.step(&mut parameters, &gradients, arguments).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Shape, "tensor up.weight"));
    gradients.list.pop();
    let error = optimizer.step(&mut parameters, &gradients, arguments).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Shape, "optimizer"));
    assert_eq!(optimizer.count(), 0);
}

#[test]
fn groups_set_the_weight_decay() {
    let (parameters, gradients) = tensors();
    let mut options = options("adamw");
    let decays = |options: &OptimizerOptions| {
        let optimizer = Optimizer::new(options, &parameters, &gradients).unwrap();
        (0..5).map(|weight| optimizer.factors(weight).map(|factors| factors.weight_decay)).collect::<Vec<_>>()
    };
    assert_eq!(decays(&options), [Some(1.0), Some(1.0), Some(0.0), Some(1.0), None]);
    let group = |tensors: &str, decay| Group {
        tensors: tensors.to_owned(),
        weight_decay_factor: Some(decay),
        lr_factor: None,
    };
    options.groups = vec![group("*", 0.5), group("token_*", 0.0), group("norm.*", 2.0)];
    assert_eq!(decays(&options), [Some(0.0), Some(0.5), Some(2.0), Some(0.5), None]);
    options.groups = vec![group("still.*", 0.5)];
    let error = Optimizer::new(&options, &parameters, &gradients).map(|_| ()).unwrap_err();
    assert_eq!(error.location(), "optimizer.groups[0].tensors");
}

#[test]
fn state_sizes_are_exact() {
    let (parameters, gradients) = tensors();
    let [embd, up, norm, down] = [700 * 60, 301 * 130, 40_000, 20 * 300];
    let all = embd + up + norm + down;
    let blocks: usize = [embd, up, norm, down].iter().map(|count: &usize| count.div_ceil(256)).sum();
    for (name, want) in [
        ("adamw", 8 * all),
        ("adam", 8 * all),
        ("sgd", 4 * all),
        ("lion", 4 * all),
        ("adafactor", 4 * (700 + 60 + 301 + 130 + 20 + 300 + norm)),
        ("muon", 4 * (up + down) + 8 * (embd + norm)),
        ("adamw_8bit", 2 * all + 8 * blocks),
    ] {
        let optimizer = Optimizer::new(&options(name), &parameters, &gradients).unwrap();
        assert_eq!(optimizer.bytes(), want, "{name}");
    }
}

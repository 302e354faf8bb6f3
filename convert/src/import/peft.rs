//! PEFT adapters: a folder with `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};
use siskin_format::file::{File, StorageRole, parse_json};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::adapter::{Adapter, LoraMatrix};
use siskin_graph::arch::{FamilyDescriptor, TensorRule, TensorTransform};
use siskin_kernels::quant::BlockType;

use super::map::map;
use super::names;
use super::read::{MAX_VALUES, read};
use super::safetensors::{self, SafetensorsTensor};

const CONFIG: &str = "adapter_config.json";
const MODEL: &str = "adapter_model.safetensors";

/// Returns true if there is such an adapter at `path`.
pub(crate) fn is_there(path: &Path) -> bool {
    path.join(CONFIG).is_file()
}

/// The adapter tensors of one module, under PEFT's names.
#[derive(Default)]
struct Module<'a> {
    a: Option<&'a SafetensorsTensor>,
    b: Option<&'a SafetensorsTensor>,
    lengths: Option<&'a SafetensorsTensor>,
}

/// Opens the adapter in `folder`, for the model in `base`.
///
/// # Errors
/// If the adapter changes more than linear layers by LoRA or DoRA, or applies to a module that the model stores in
/// another form.
pub fn open(folder: &Path, base: &File) -> Result<Adapter> {
    let config = read(&folder.join(CONFIG), CONFIG)?
        .ok_or_else(|| Error::new(ErrorKind::Missing, CONFIG, "missing from the folder"))?;
    let config: Map<String, Value> = parse_json(&config, CONFIG, MAX_VALUES)?;
    if !folder.join(MODEL).is_file() {
        let message = "missing from the PEFT folder; only safetensors adapters are supported";
        return Err(Error::new(ErrorKind::Missing, MODEL, message));
    }
    let tensors = safetensors::parse(map(&folder.join(MODEL))?)?;
    of(&config, &tensors, base)
}

/// Builds the adapter from the contents of both files, for the model in `base`; see [`open`].
pub fn of(
    config: &Map<String, Value>,
    tensors: &HashMap<String, SafetensorsTensor>,
    base: &File,
) -> Result<Adapter> {
    check(config)?;
    let architecture = base.metadata().architecture.clone();
    let rules = FamilyDescriptor::named(&architecture)?.hugging_face.rules;
    let ours = our_names(base, rules);
    let mut parts = Vec::new();
    for (module, found) in modules(tensors)? {
        let location = || format!("{MODEL}: {module}");
        let (Some(a), Some(b)) = (found.a, found.b) else {
            return Err(Error::new(
                ErrorKind::Missing,
                location(),
                "only one of lora_A and lora_B; both are required",
            ));
        };
        let (tensor, take) = ours.get(names::bare(&module)).ok_or_else(|| {
            Error::new(
                ErrorKind::Missing,
                location(),
                "the model has no such matrix; was the adapter trained for this model?",
            )
        })?;
        if !matches!(take, TensorTransform::Whole | TensorTransform::Transposed) {
            let message =
                "the model stores this matrix in other parts; merge the adapter into its base first";
            return Err(Error::unsupported(location(), message));
        }
        let ((rank, columns), (rows, again)) = (shape(a, &module)?, shape(b, &module)?);
        if rank != again {
            let message = format!("lora_A has {rank} rows, lora_B {again} columns");
            return Err(Error::new(ErrorKind::Shape, location(), message));
        }
        parts.push(LoraMatrix {
            tensor: tensor.clone(),
            rows,
            columns,
            rank,
            scale: factor(config, &module, rank)?,
            a: numbers(a, &module)?,
            b: numbers(b, &module)?,
            magnitudes: found.lengths.map_or_else(|| Ok(Vec::new()), |tensor| numbers(tensor, &module))?,
        });
    }
    match parts.is_empty() {
        true => Err(Error::new(ErrorKind::Missing, MODEL, "holds no adapter")),
        false => Ok(Adapter { architecture, base: None, parts }),
    }
}

/// Rejects adapters that change a model other than by LoRA or DoRA.
fn check(config: &Map<String, Value>) -> Result<()> {
    let reject = |key: &str, message: &str| Err(Error::unsupported(format!("{CONFIG}: {key}"), message));
    match config.get("peft_type").and_then(Value::as_str) {
        Some("LORA") => {}
        Some(other) => {
            return reject("peft_type", &format!("{other}; only LORA is supported, with or without DoRA"));
        }
        None => return reject("peft_type", "missing"),
    }
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    for key in [
        "modules_to_save",
        "lora_bias",
        "layer_replication",
        "trainable_token_indices",
        "alora_invocation_tokens",
    ] {
        if config.get(key).is_some_and(|value| !empty(value)) {
            return reject(key, "changes more than linear layers; merge the adapter into its base first");
        }
    }
    match config.get("bias").and_then(Value::as_str) {
        None | Some("none") => Ok(()),
        Some(_) => {
            reject("bias", "biases in adapters are not supported; merge the adapter into its base first")
        }
    }
}

/// Returns the LoRA scaling factor of a module.
fn factor(config: &Map<String, Value>, module: &str, rank: usize) -> Result<f32> {
    let missing = || Error::new(ErrorKind::Missing, format!("{CONFIG}: lora_alpha"), "not a number");
    let mut alpha = config.get("lora_alpha").and_then(Value::as_f64).ok_or_else(missing)?;
    for (key, value) in config.get("alpha_pattern").and_then(Value::as_object).into_iter().flatten() {
        let location = || format!("{CONFIG}: alpha_pattern.{key}");
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return Err(Error::unsupported(
                location(),
                "regular expressions are not supported, only module names",
            ));
        }
        if module == key || module.strip_suffix(key.as_str()).is_some_and(|front| front.ends_with('.')) {
            alpha = value.as_f64().ok_or_else(|| Error::corrupt(location(), "not a number"))?;
        }
    }
    let rank = rank as f64;
    let root = config.get("use_rslora").and_then(Value::as_bool).unwrap_or(false);
    Ok((alpha / if root { rank.sqrt() } else { rank }) as f32)
}

/// Groups the tensors by module, in order of name.
fn modules(tensors: &HashMap<String, SafetensorsTensor>) -> Result<BTreeMap<String, Module<'_>>> {
    const ENDS: [(&str, usize); 6] = [
        (".lora_A.weight", 0),
        (".lora_A.default.weight", 0),
        (".lora_B.weight", 1),
        (".lora_B.default.weight", 1),
        (".lora_magnitude_vector", 2),
        (".lora_magnitude_vector.weight", 2),
    ];
    let mut modules: BTreeMap<String, Module<'_>> = BTreeMap::new();
    for (name, tensor) in tensors {
        let found = ENDS.iter().find_map(|(end, part)| Some((name.strip_suffix(end)?, part)));
        let Some((module, part)) = found else {
            let message = "not a LoRA or DoRA tensor of a linear layer";
            return Err(Error::unsupported(format!("{MODEL}: {name}"), message));
        };
        let module = module.strip_prefix("base_model.model.").unwrap_or(module);
        let entry = modules.entry(module.to_owned()).or_default();
        match part {
            0 => entry.a = Some(tensor),
            1 => entry.b = Some(tensor),
            _ => entry.lengths = Some(tensor),
        }
    }
    Ok(modules)
}

/// Maps Hugging Face module names, without wrapper prefixes, to the model's matrices and their transforms.
fn our_names(base: &File, rules: &[&[TensorRule]]) -> HashMap<String, (String, TensorTransform)> {
    let matrices = base.tensors().iter().filter(|tensor| tensor.role == StorageRole::Matrix);
    let name = |tensor: &siskin_format::file::Tensor| {
        let (source, take) = names::apply(rules, &tensor.name)?;
        let module = names::bare(source.strip_suffix(".weight")?).to_owned();
        Some((module, (tensor.name.clone(), take)))
    };
    matrices.filter_map(name).collect()
}

fn shape(tensor: &SafetensorsTensor, module: &str) -> Result<(usize, usize)> {
    let size = |size: u64| usize::try_from(size).ok();
    match tensor.shape[..] {
        [rows, columns] => size(rows).zip(size(columns)),
        _ => None,
    }
    .ok_or_else(|| Error::new(ErrorKind::Shape, format!("{MODEL}: {module}"), "expected a matrix"))
}

fn numbers(tensor: &SafetensorsTensor, module: &str) -> Result<Vec<f32>> {
    let location = || format!("{MODEL}: {module}");
    let (block, size) = match tensor.dtype {
        "F32" => (BlockType::F32, 4),
        "F16" => (BlockType::F16, 2),
        "BF16" => (BlockType::BF16, 2),
        other => {
            return Err(Error::unsupported(location(), format!("values of type {other} are not supported")));
        }
    };
    let mut numbers = vec![0.0; tensor.data.len() / size];
    match block.dequantize_row(&tensor.data, &mut numbers) {
        true => Ok(numbers),
        false => Err(Error::corrupt(location(), "the length does not match the type")),
    }
}

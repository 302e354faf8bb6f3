//! Exports read back identically: tensors bit by bit, blocks byte by byte.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Folder, data, packed, packed_with};
use siskin_convert::export::{self, Dtype, ExportOptions, ExportReport, FORMATS};
use siskin_convert::import::gguf::Gguf;
use siskin_convert::{PackOptions, Recipe};
use siskin_format::ErrorKind;
use siskin_format::file::{File, FileWriter, Metadata, StorageRole, TensorSpec};
use siskin_kernels::panel::PanelType;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

fn written(file: &File, to: &Path, options: &ExportOptions<'_>) -> siskin_format::Result<ExportReport> {
    export::export(file, export::format_for(None, to)?, to, options)
}

/// The golden models whose sources store tensors interleaved.
const INTERLEAVED: [&str; 3] = ["gpt-oss", "qwen3-next", "qwen3-5"];

fn goldens() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let mut folders = Vec::new();
    for set in ["golden", "golden-texts"] {
        for entry in std::fs::read_dir(root.join(set)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.join("config.json").is_file() && !INTERLEAVED.contains(&name) {
                folders.push(path);
            }
        }
    }
    folders.sort();
    assert!(folders.len() > 40, "{}", folders.len());
    folders
}

fn assert_same_tensors(one: &File, other: &File, what: &str) {
    let names =
        |file: &File| file.tensors().iter().map(|tensor| tensor.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names(one), names(other), "{what}");
    for tensor in one.tensors() {
        let again = other.tensor(&tensor.name).unwrap();
        assert_eq!(
            (tensor.rows, tensor.columns, tensor.panel),
            (again.rows, again.columns, again.panel),
            "{what}"
        );
        assert!(tensor.data[..] == again.data[..], "{what}: {} differs", tensor.name);
    }
}

#[test]
fn folders_come_back_to_the_bit() {
    for golden in goldens() {
        let folder = Folder::new("export-folder");
        let name = golden.display().to_string();
        let file = packed(&golden, &folder);
        let to = folder.join("out");
        written(&file, &to, &ExportOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let inner = Folder::new("export-folder-again");
        let again = packed(&to, &inner);
        assert_same_tensors(&file, &again, &name);
        assert_eq!(file.metadata().architecture, again.metadata().architecture);
        let (mut ours, mut theirs) = (file.metadata().config.clone(), again.metadata().config.clone());
        for key in ["dtype", "torch_dtype"] {
            ours.remove(key);
            theirs.remove(key);
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn names_and_shapes_are_those_of_the_source() {
    for golden in goldens() {
        let folder = Folder::new("export-names");
        let name = golden.display().to_string();
        written(&packed(&golden, &folder), &folder.join("out"), &ExportOptions::default()).unwrap();
        let source = crate::common::floats(&golden.join("model.safetensors"));
        let made = crate::common::floats(&folder.join("out/model.safetensors"));
        for (tensor, (shape, values)) in &made {
            // Some sources store tensors without the prefix of their class.
            let theirs = source
                .iter()
                .filter(|(theirs, _)| tensor == *theirs || tensor.ends_with(&format!(".{theirs}")));
            // Some have an offset of one that importing adds and exporting subtracts.
            let close = |numbers: &[f32]| numbers.iter().zip(values).all(|(a, b)| (a - b).abs() < 1e-6);
            let same = theirs.clone().any(|(_, (other, numbers))| other == shape && close(numbers));
            assert!(same, "{name}: {tensor} {shape:?} is not in the source");
        }
    }
}

#[test]
fn blocks_come_back_to_the_byte() {
    let folder = Folder::new("export-gguf");
    let source = data("gguf/tiny.gguf");
    let file = packed(&source, &folder);
    let to = folder.join("again.gguf");
    let report = written(&file, &to, &ExportOptions::default()).unwrap();
    let (source, again) = (Gguf::open(&source).unwrap(), Gguf::open(&to).unwrap());
    assert_eq!(source.tensors.len(), again.tensors.len());
    let mut lost = 0;
    for tensor in &source.tensors {
        let other = again.tensor(&tensor.name).unwrap_or_else(|| panic!("{} is missing", tensor.name));
        assert_eq!(tensor.dims, other.dims, "{}", tensor.name);
        if tensor.ggml_type == other.ggml_type {
            assert!(tensor.data[..] == other.data[..], "{} differs", tensor.name);
        } else {
            lost += 1;
        }
    }
    let told = report.notes.iter().any(|note| note.starts_with(&format!("{lost} tensors")));
    assert!(told || lost == 0, "{lost} {:?}", report.notes);
    for key in ["general.name", "general.license", "tokenizer.chat_template"] {
        assert_eq!(source.string(key).unwrap(), again.string(key).unwrap(), "{key}");
    }
    let inner = Folder::new("export-gguf-again");
    let file_again = packed(&to, &inner);
    assert_eq!(file.metadata().config, file_again.metadata().config);
    assert_eq!(
        file.tokenizer().map(|bytes| bytes.to_vec()),
        file_again.tokenizer().map(|bytes| bytes.to_vec())
    );
    if lost == 0 {
        assert_same_tensors(&file, &file_again, "tiny.gguf");
    }
}

/// Writes `file` again with the code 3, which is no ternary digit, everywhere in its ternary panels.
fn with_code_3(file: &File, types: serde_json::Value, to: &Path) -> File {
    let mut writer = FileWriter::new(std::fs::File::create(to).unwrap()).unwrap();
    for tensor in file.tensors() {
        let mut bytes = tensor.data.to_vec();
        let (rows, columns) = (tensor.rows as u64, tensor.columns as u64);
        let spec = match tensor.role {
            StorageRole::Vector => TensorSpec::vector(&tensor.name, columns),
            StorageRole::Matrix => TensorSpec::matrix(&tensor.name, tensor.panel, rows, columns),
        };
        if spec.role == StorageRole::Matrix && tensor.panel == PanelType::TERNARY {
            let block = tensor.panel.block_bytes();
            bytes.chunks_exact_mut(block).for_each(|block| block[64..].fill(0xff));
        }
        writer.tensor(&spec, |sink| sink.write(&bytes)).unwrap();
    }
    let mut metadata: Metadata = file.metadata().clone();
    metadata.quantization.insert("types".to_owned(), types);
    writer.finish(&metadata).unwrap();
    File::open(to).unwrap()
}

#[test]
fn weights_that_the_block_type_cannot_hold_are_rejected() {
    let folder = Folder::new("export-ternary");
    let file = packed(&data("gguf/tiny.gguf"), &folder);
    let name = "blk.1.ffn_up.weight";
    assert_eq!(file.tensor(name).unwrap().panel, PanelType::TERNARY);
    let cases = [
        (serde_json::json!({"TQ1_0": 1}), None),
        (serde_json::json!({"TQ1_0": 1, "TQ2_0": 1}), Some(35)),
        (serde_json::json!({}), Some(35)),
    ];
    for (types, exported) in cases {
        let model = with_code_3(&file, types.clone(), &folder.join("model.siskin"));
        let to = folder.join("model.gguf");
        match written(&model, &to, &ExportOptions { force: true, ..ExportOptions::default() }) {
            Ok(_) => assert_eq!(Some(Gguf::open(&to).unwrap().tensor(name).unwrap().ggml_type), exported),
            Err(error) => {
                assert_eq!((exported, error.kind(), error.location()), (None, ErrorKind::Unsupported, name));
                assert!(error.message().contains("TQ1_0"), "{types}: {error}");
            }
        }
    }
}

#[test]
fn every_family_that_llama_cpp_knows_becomes_a_gguf_file() {
    for golden in goldens() {
        let folder = Folder::new("export-gguf-families");
        let name = golden.display().to_string();
        let file = packed(&golden, &folder);
        let to = folder.join("model.gguf");
        match written(&file, &to, &ExportOptions::default()) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                assert!(error.message().contains("llama.cpp"), "{name}: {error}");
            }
            Ok(report) if report.notes.iter().any(|note| note.contains("head")) => {}
            Ok(_) => {
                let inner = Folder::new("export-gguf-families-again");
                let again = packed(&to, &inner);
                for tensor in file.tensors() {
                    let ours = tensor.name.replace("ffn_single", "ffn_up");
                    let other = again.tensor(&ours).unwrap_or_else(|| panic!("{name}: {ours} is missing"));
                    assert!(tensor.data[..] == other.data[..], "{name}: {ours} differs");
                }
            }
        }
    }
}

#[test]
fn rows_with_rotation_are_rotated_back() {
    let folder = Folder::new("export-rows");
    let recipe: Recipe = "w8r,always".parse().unwrap();
    let options = PackOptions { recipe: Some(recipe), ..PackOptions::default() };
    let file = packed_with(&crate::common::golden("llama"), &folder, &options);
    written(&file, &folder.join("out"), &ExportOptions { dtype: Dtype::F32, ..ExportOptions::default() })
        .unwrap();
    let source = crate::common::floats(&crate::common::golden("llama").join("model.safetensors"));
    let made = crate::common::floats(&folder.join("out/model.safetensors"));
    for (name, (_, values)) in &made {
        let (error, signal) =
            source[name].1.iter().zip(values).fold((0.0, 0.0), |(error, signal), (a, b)| {
                (error + f64::from(a - b).powi(2), signal + f64::from(*a).powi(2))
            });
        assert!((error / signal).sqrt() < 0.02, "{name}: {}", (error / signal).sqrt());
    }
}

#[test]
fn nothing_is_replaced_unless_that_is_wanted() {
    let folder = Folder::new("export-force");
    let file = packed(&crate::common::golden("llama"), &folder);
    for format in FORMATS {
        let to = folder.join(format.name).with_extension(format.ending);
        let write = |force: bool| {
            export::export(&file, format, &to, &ExportOptions { force, ..ExportOptions::default() })
        };
        write(false).unwrap();
        assert_eq!(write(false).unwrap_err().kind(), ErrorKind::Argument, "{}", format.name);
        write(true).unwrap();
    }
    let inputs = vec![folder.join("packed.siskin")];
    let options = ExportOptions { force: true, inputs, ..ExportOptions::default() };
    let onnx = export::format_for(Some("onnx"), Path::new("")).unwrap();
    assert_eq!(
        export::export(&file, onnx, &folder.join("packed.siskin"), &options).unwrap_err().kind(),
        ErrorKind::Argument
    );
}

#[test]
fn what_is_interleaved_is_rejected() {
    for name in INTERLEAVED {
        let folder = Folder::new("export-interleaved");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden").join(name);
        let file = packed(&path, &folder);
        for out in ["out", "model.onnx"] {
            let error = written(&file, &folder.join(out), &ExportOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        }
        let gguf = folder.join("model.gguf");
        if written(&file, &gguf, &ExportOptions::default()).is_ok() {
            let inner = Folder::new("export-interleaved-again");
            let again = packed(&gguf, &inner);
            for tensor in file.tensors() {
                let other = again.tensor(&tensor.name).unwrap_or_else(|| panic!("{name}: {}", tensor.name));
                assert!(tensor.data[..] == other.data[..], "{name}: {} differs", tensor.name);
            }
        }
    }
}

/// Returns the fields of a protobuf message: numbers and byte ranges.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        number
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => {
                let number = varint(&mut bytes);
                fields.push((tag >> 3, number, &bytes[..0]));
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (data, rest) = bytes.split_at(length);
                fields.push((tag >> 3, 0, data));
                bytes = rest;
            }
            5 => bytes = &bytes[4..],
            other => panic!("wire type {other}"),
        }
    }
    fields
}

fn texts<'a>(message: &[(u64, u64, &'a [u8])], field: u64) -> Vec<&'a str> {
    let fields = message.iter().filter(|(number, ..)| *number == field);
    fields.map(|(.., text)| std::str::from_utf8(text).unwrap()).collect()
}

#[test]
fn onnx_models_name_nothing_that_is_not_there() {
    let mut rejected = 0;
    for golden in goldens() {
        let folder = Folder::new("export-onnx");
        let name = golden.display().to_string();
        let file = packed(&golden, &folder);
        let to = folder.join("model.onnx");
        match written(&file, &to, &ExportOptions::default()) {
            Ok(_) => {}
            Err(error) if error.to_string().contains("cannot be exported to ONNX") => {
                rejected += 1;
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        let bytes = std::fs::read(&to).unwrap();
        let model = fields(&bytes);
        let opset = fields(model.iter().find(|field| field.0 == 8).unwrap().2);
        assert!(opset.contains(&(2, 17, &[])), "{name}");
        let graph = fields(model.iter().find(|field| field.0 == 7).unwrap().2);
        let mut known: HashMap<String, usize> = HashMap::new();
        for (field, _, part) in &graph {
            let names = match field {
                5 => texts(&fields(part), 8),
                11 => texts(&fields(part), 1),
                _ => continue,
            };
            assert_eq!(names.len(), 1, "{name}");
            assert_eq!(known.insert(names[0].to_owned(), 0), None, "{name}: {} twice", names[0]);
        }
        let mut nodes = 0;
        for (_, _, node) in graph.iter().filter(|field| field.0 == 1) {
            let node = fields(node);
            for input in texts(&node, 1) {
                *known.get_mut(input).unwrap_or_else(|| panic!("{name}: {input} is not there yet")) += 1;
            }
            for output in texts(&node, 2) {
                assert_eq!(known.insert(output.to_owned(), 0), None, "{name}: {output} twice");
            }
            nodes += 1;
        }
        assert!(nodes > 20, "{name}: {nodes} nodes");
        let outputs: Vec<_> = graph.iter().filter(|field| field.0 == 12).collect();
        assert!(!outputs.is_empty());
        for (_, _, output) in outputs {
            let output = fields(output);
            assert!(known.contains_key(texts(&output, 1)[0]), "{name}");
        }
    }
    assert!(rejected < 13, "{rejected} goldens were rejected");
}

#[test]
fn many_weights_stand_in_a_file_of_their_own() {
    let folder = Folder::new("export-onnx-data");
    let file = packed(&crate::common::golden("gpt2"), &folder);
    let (inside, outside) = (folder.join("inside.onnx"), folder.join("outside.onnx"));
    written(&file, &inside, &ExportOptions::default()).unwrap();
    let options = ExportOptions { max_inline_bytes: 1000, ..ExportOptions::default() };
    let report = written(&file, &outside, &options).unwrap();
    assert_eq!(report.files, [outside.clone(), folder.join("outside.onnx.data")]);
    let [inside, outside, data] =
        [inside, outside, folder.join("outside.onnx.data")].map(|path| std::fs::read(path).unwrap());
    let weights = |bytes: &[u8]| {
        let model = fields(bytes);
        let graph = fields(model.iter().find(|field| field.0 == 7).unwrap().2);
        let weights = graph.iter().filter(|field| field.0 == 5).map(|field| {
            let tensor = fields(field.2);
            let facts: HashMap<String, String> = tensor
                .iter()
                .filter(|field| field.0 == 13)
                .map(|field| {
                    let entry = fields(field.2);
                    (texts(&entry, 1)[0].to_owned(), texts(&entry, 2)[0].to_owned())
                })
                .collect();
            let raw = tensor.iter().find(|field| field.0 == 9).map(|field| field.2.to_vec());
            let raw = raw.unwrap_or_else(|| {
                assert_eq!(facts["location"], "outside.onnx.data");
                let number = |key: &str| facts[key].parse::<usize>().unwrap();
                assert_eq!(number("offset") % 64, 0);
                data[number("offset")..][..number("length")].to_vec()
            });
            (texts(&tensor, 8)[0].to_owned(), raw)
        });
        weights.collect::<HashMap<_, _>>()
    };
    assert!(outside.len() < inside.len() / 2);
    assert_eq!(weights(&inside), weights(&outside));
}

#[test]
fn what_is_left_of_another_model_stops_the_export_or_goes() {
    let folder = Folder::new("export-leftovers");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden/llama");
    let file = packed(&golden, &folder);
    let to = folder.join("out");
    std::fs::create_dir_all(to.join("1_Pooling")).unwrap();
    let others =
        ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "1_Pooling/config.json"];
    for name in others.into_iter().chain(["vocab.txt", "notes.md"]) {
        std::fs::write(to.join(name), b"another").unwrap();
    }
    let error = written(&file, &to, &ExportOptions::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.message().contains("--force"), "{error}");
    assert!(others.iter().all(|name| to.join(name).is_file()) && !to.join("config.json").exists());
    let inputs = vec![to.join(others[0])];
    let forced = ExportOptions { force: true, inputs, ..ExportOptions::default() };
    assert_eq!(written(&file, &to, &forced).unwrap_err().kind(), ErrorKind::Argument, "it is read");
    assert!(to.join(others[0]).is_file());
    let report = written(&file, &to, &ExportOptions { inputs: Vec::new(), ..forced }).unwrap();
    assert!(others.iter().all(|name| !to.join(name).exists()), "nothing of the other is left");
    assert!(to.join("notes.md").is_file() && to.join("vocab.txt").is_file());
    assert!(report.notes.iter().any(|note| note.starts_with("vocab.txt existed")), "{:?}", report.notes);
    assert_same_tensors(&file, &packed(&to, &Folder::new("export-leftovers-again")), "llama");
    // External data next to an ONNX model that has none.
    let graph = folder.join("MODEL.ONNX");
    let data = folder.join("MODEL.onnx.data");
    std::fs::write(&data, b"another").unwrap();
    assert_eq!(written(&file, &graph, &ExportOptions::default()).unwrap_err().kind(), ErrorKind::Argument);
    written(&file, &graph, &ExportOptions { force: true, ..ExportOptions::default() }).unwrap();
    assert!(graph.is_file() && !data.exists());
    assert_eq!(export::format_for(None, Path::new("a/MODEL.GGUF")).unwrap().name, "gguf");
    assert_eq!(export::format_for(None, Path::new("a/Qwen2.5-0.5B")).unwrap().name, "safetensors");
    let unknown = export::format_for(None, Path::new("a/model.xyz")).err().unwrap();
    assert!(unknown.message().contains("`xyz`") && unknown.message().contains("gguf"), "{unknown}");
}

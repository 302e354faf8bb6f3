//! Adapter files: round trips, and rejection of malformed files.

use serde_json::{Map, Value, json};

use super::*;
use siskin_format::file::{FileWriter, Metadata, TensorSpec};

fn adapter() -> Adapter {
    let numbers = |count: usize| (0..count).map(|i| i as f32 * 0.25 - 1.0).collect::<Vec<f32>>();
    let part = |tensor: &str, lengths: usize| LoraMatrix {
        tensor: tensor.to_owned(),
        rows: 6,
        columns: 5,
        rank: 2,
        scale: 1.5,
        a: numbers(10),
        b: numbers(12),
        magnitudes: numbers(lengths),
    };
    let parts = vec![part("blk.0.attn_q.weight", 0), part("blk.0.attn_v.weight", 6)];
    Adapter { architecture: "llama".to_owned(), base: Some([0xa7; 32]), parts }
}

fn file(adapter: &Adapter) -> File {
    let out = adapter.write(Some("small"), Map::new(), std::io::Cursor::new(Vec::new())).unwrap();
    File::from_bytes(out.into_inner()).unwrap()
}

/// Builds a file whose section is `section`, with 28 values.
fn made(section: &str) -> Result<Adapter> {
    let mut writer = FileWriter::new(std::io::Cursor::new(Vec::new())).unwrap();
    writer.tensor(&TensorSpec::vector("adapter", 28), |sink| sink.write(&[0; 4 * 28])).unwrap();
    writer.section(SectionKind::Adapter, section.as_bytes()).unwrap();
    let metadata = Metadata { architecture: "llama".to_owned(), ..Metadata::default() };
    let bytes = writer.finish(&metadata).unwrap().into_inner();
    Adapter::from_file(&File::from_bytes(bytes).unwrap())
}

fn good() -> Value {
    let part = json!({"tensor": "t", "rows": 6, "columns": 5, "rank": 2, "factor": 1.0, "lengths": true});
    json!({"version": 1, "base": null, "parts": [part]})
}

#[test]
fn what_is_written_is_read() {
    let adapter = adapter();
    let file = file(&adapter);
    assert_eq!(Adapter::from_file(&file).unwrap(), adapter);
    assert_eq!(file.metadata().name.as_deref(), Some("small"));
    file.verify(&mut |_, _| true).unwrap();
    let mut other = adapter.clone();
    other.parts[1].magnitudes[3] += 1.0;
    assert_ne!(other.identity(), adapter.identity());
}

#[test]
fn what_is_not_made_so_is_rejected() {
    made(&good().to_string()).unwrap();
    let change = |path: &str, value: Value| {
        let mut section = good();
        *section.pointer_mut(path).unwrap() = value;
        made(&section.to_string()).unwrap_err()
    };
    for (path, value, kind) in [
        ("/version", json!(2), ErrorKind::Version),
        ("/version", json!("1"), ErrorKind::Corrupt),
        ("/base", json!("00"), ErrorKind::Corrupt),
        ("/base", json!("é".repeat(32)), ErrorKind::Corrupt),
        ("/parts", json!([]), ErrorKind::Corrupt),
        ("/parts", json!([good()["parts"][0], good()["parts"][0]]), ErrorKind::Corrupt),
        ("/parts/0/lengths", json!(false), ErrorKind::Shape),
        ("/parts/0/rank", json!(0), ErrorKind::Shape),
        ("/parts/0/rank", json!(1), ErrorKind::Shape),
        ("/parts/0/rank", json!(u64::MAX), ErrorKind::Shape),
        ("/parts/0/rank", json!(-1), ErrorKind::Corrupt),
        ("/parts/0/rows", json!(12), ErrorKind::Shape),
        ("/parts/0/rows", json!(u64::MAX / 2), ErrorKind::Shape),
        ("/parts/0/columns", json!(0), ErrorKind::Shape),
        ("/parts/0/factor", json!(1e300), ErrorKind::Corrupt),
        ("/parts/0", json!(3), ErrorKind::Corrupt),
    ] {
        let error = change(path, value.clone());
        assert_eq!(error.kind(), kind, "{path} = {value}: {error}");
    }
    assert_eq!(made("{").unwrap_err().kind(), ErrorKind::Corrupt);
    let mut plain = FileWriter::new(std::io::Cursor::new(Vec::new())).unwrap();
    plain.section(SectionKind::Adapter, good().to_string().as_bytes()).unwrap();
    let metadata = Metadata { architecture: "llama".to_owned(), ..Metadata::default() };
    let plain = File::from_bytes(plain.finish(&metadata).unwrap().into_inner()).unwrap();
    assert_eq!(Adapter::from_file(&plain).unwrap_err().location(), "tensor adapter");
}

#[test]
fn what_is_no_number_is_not_written() {
    let mut broken = adapter();
    broken.parts[0].b[5] = f32::NAN;
    let error = broken.write(None, Map::new(), std::io::Cursor::new(Vec::new())).unwrap_err();
    assert!(error.location().contains("blk.0.attn_q.weight"), "{error}");
}

#[test]
fn an_adapter_knows_its_base() {
    let base = file(&adapter());
    let of = |base: Option<[u8; 32]>, architecture: &str| Adapter {
        base,
        architecture: architecture.to_owned(),
        ..adapter()
    };
    of(Some(base.digest()), "llama").check_base(&base).unwrap();
    of(None, "llama").check_base(&base).unwrap();
    let other = of(Some([1; 32]), "llama").check_base(&base).unwrap_err();
    assert_eq!(other.location(), "adapter.base");
    let other = of(None, "gpt2").check_base(&base).unwrap_err();
    assert_eq!(other.location(), "adapter.architecture");
}

//! Measures how much of a file with many experts a token loads into memory, as Linux counts it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use siskin::{CpuFeatures, DeviceKind};
use siskin_benches::{BenchRandom, vector};
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_tests::golden::{model, session};
use std::io::Write as _;
use std::path::Path;

const EXPERTS: usize = 32;
const CHOSEN: usize = 2;
const WIDTH: usize = 128;
const FEED_FORWARD: usize = 512;
const VOCABULARY: usize = 64;

/// The bytes of one expert's three matrices.
const EXPERT_BYTES: usize = 3 * WIDTH * FEED_FORWARD * 4;

#[test]
fn a_token_brings_in_the_pages_of_its_experts_alone() {
    let folder = std::env::temp_dir().join(format!("siskin-expert-pages-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    write_model(&folder);
    let options = OpenOptions { cache: PackedCache::NextToSource, ..OpenOptions::default() };
    // Packing touches all pages; the measurement uses a new map.
    drop(open_any(&folder, &options).unwrap());
    let file = open_any(&folder, &options).unwrap();
    let model = model(&file, DeviceKind::Cpu, 1, CpuFeatures::NONE);
    let mut session = session(&model, 16);
    let packed = folder.join("model.siskin");
    let before = resident(&packed);
    session.prefill(&[5]).unwrap();
    let touched = resident(&packed) - before;
    std::fs::remove_dir_all(&folder).unwrap();
    // Tensors other than experts are small, and a page fault loads some neighboring pages at either end of a matrix.
    let around = 3 * CHOSEN * 2 * 65_536 + 1_000_000;
    println!("{touched} bytes were touched; an expert has {EXPERT_BYTES}, {CHOSEN} of {EXPERTS} were chosen");
    assert!(touched >= CHOSEN * EXPERT_BYTES, "{touched} bytes are not {CHOSEN} experts");
    assert!(touched <= CHOSEN * EXPERT_BYTES + around, "{touched} bytes are more than {CHOSEN} experts");
}

/// Returns the resident bytes of this process's maps of `file`.
fn resident(file: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut ours, mut kilobytes) = (false, 0);
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if first.contains('-') && !first.ends_with(':') {
            ours = line.ends_with(&*file.to_string_lossy());
        } else if ours && first == "Rss:" {
            let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
            kilobytes += number.unwrap_or(0);
        }
    }
    kilobytes * 1024
}

/// Writes a folder with one layer of `EXPERTS` experts of random weights.
fn write_model(folder: &Path) {
    let config = format!(
        r#"{{"model_type": "mixtral", "hidden_size": {WIDTH}, "intermediate_size": {FEED_FORWARD},
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": {VOCABULARY},
            "max_position_embeddings": 64, "num_local_experts": {EXPERTS}, "num_experts_per_tok": {CHOSEN},
            "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}}"#
    );
    std::fs::write(folder.join("config.json"), config).unwrap();
    let layer = "model.layers.0";
    let mut tensors = vec![
        ("model.embed_tokens".to_owned(), vec![VOCABULARY, WIDTH]),
        ("lm_head".to_owned(), vec![VOCABULARY, WIDTH]),
        ("model.norm".to_owned(), vec![WIDTH]),
        (format!("{layer}.input_layernorm"), vec![WIDTH]),
        (format!("{layer}.post_attention_layernorm"), vec![WIDTH]),
        (format!("{layer}.block_sparse_moe.gate"), vec![EXPERTS, WIDTH]),
    ];
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        tensors.push((format!("{layer}.self_attn.{name}"), vec![WIDTH, WIDTH]));
    }
    for expert in 0..EXPERTS {
        let name = format!("{layer}.block_sparse_moe.experts.{expert}");
        tensors.push((format!("{name}.w1"), vec![FEED_FORWARD, WIDTH]));
        tensors.push((format!("{name}.w3"), vec![FEED_FORWARD, WIDTH]));
        tensors.push((format!("{name}.w2"), vec![WIDTH, FEED_FORWARD]));
    }
    let (mut header, mut offset) = (serde_json::Map::new(), 0);
    for (name, shape) in &tensors {
        let end = offset + 4 * shape.iter().product::<usize>();
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [offset, end]});
        header.insert(format!("{name}.weight"), entry);
        offset = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = std::fs::File::create(folder.join("model.safetensors")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&header).unwrap();
    let mut random = BenchRandom::new(11);
    for (_, shape) in &tensors {
        for number in vector(shape.iter().product(), &mut random) {
            file.write_all(&(0.1 * number).to_le_bytes()).unwrap();
        }
    }
    file.flush().unwrap();
}

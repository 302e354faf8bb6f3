//! Models written by CTranslate2's own converter (`tests/golden-scripts/make_ctranslate2.py`), compared to the weights
//! of the original Hugging Face models.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{bits, data, floats};
use siskin_convert::import::ctranslate2::{
    Container, Ctranslate2Folder, DataType, ModelTopology, Names, VariableRows, VocabularyRole,
};
use siskin_format::ErrorKind;
use siskin_format::file::Bytes;
use std::collections::HashSet;

/// Model, layout, number of tensors, layers of encoder and decoder, dtype of the token embeddings.
type Case = (&'static str, ModelTopology, usize, (usize, usize), DataType);

const MODELS: &[Case] = &[
    ("whisper-int8", ModelTopology::Whisper, 74, (1, 2), DataType::Int8),
    ("marian-int16", ModelTopology::EncoderDecoder, 72, (1, 2), DataType::Int16),
    ("bart-bfloat16", ModelTopology::EncoderDecoder, 76, (1, 2), DataType::BFloat16),
    ("t5-float32", ModelTopology::EncoderDecoder, 39, (1, 2), DataType::Float32),
    ("flan-t5-int8_float16", ModelTopology::EncoderDecoder, 42, (1, 2), DataType::Int8),
    ("bert-float16", ModelTopology::Encoder, 23, (1, 0), DataType::Float16),
    ("llama-int8", ModelTopology::Decoder, 12, (0, 1), DataType::Int8),
    ("gemma2-int8_bfloat16", ModelTopology::Decoder, 13, (0, 1), DataType::Int8),
    ("gpt-neox-int8", ModelTopology::Decoder, 20, (0, 1), DataType::Int8),
];

fn folder(name: &str) -> Ctranslate2Folder {
    Ctranslate2Folder::open(&data(&format!("ctranslate2/{name}"))).unwrap()
}

fn values(matrix: &VariableRows) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows * matrix.columns];
    for (row, out) in values.chunks_exact_mut(matrix.columns).enumerate() {
        matrix.row_into(row, out).unwrap();
    }
    values
}

#[test]
fn tensors_are_those_of_the_model_that_was_converted() {
    for (model, layout, count, layers, table) in MODELS {
        let folder = folder(model);
        let names = Names::of(&folder.container).unwrap();
        assert_eq!(names.layout(), *layout, "{model}");
        assert_eq!((folder.layers("encoder"), folder.layers("decoder")), *layers, "{model}");
        let expected = floats(&data(&format!("ctranslate2/{model}.safetensors")));
        assert_eq!(expected.len(), *count, "{model}");
        for (name, (shape, wanted)) in &expected {
            let matrix = names.matrix(&folder.container, name).unwrap();
            let rows = if shape.len() == 1 { 1 } else { shape[0] };
            assert_eq!((matrix.rows, matrix.rows * matrix.columns), (rows, wanted.len()), "{model}: {name}");
            assert_eq!(bits(&values(&matrix)), bits(wanted), "{model}: {name}");
        }
        assert_eq!(names.matrix(&folder.container, "token_embd.weight").unwrap().data_type, *table);
        assert_eq!(names.unmapped(&folder.container).collect::<Vec<_>>(), [""; 0], "{model}");
    }
}

#[test]
fn every_variable_has_a_tensor_that_is_made_of_it() {
    for (model, ..) in MODELS {
        let folder = folder(model);
        let names = Names::of(&folder.container).unwrap();
        let expected = floats(&data(&format!("ctranslate2/{model}.safetensors")));
        let used: HashSet<usize> = expected
            .keys()
            .map(|name| folder.container.find(&names.find(&folder.container, name).unwrap().0).unwrap())
            .collect();
        for (index, variable) in folder.container.variables.iter().enumerate() {
            let is_tensor = !variable.dims.is_empty() && !variable.name.ends_with("_scale");
            assert_eq!(used.contains(&index), is_tensor, "{model}: {}", variable.name);
        }
    }
}

#[test]
fn tensors_that_a_model_has_not_are_missing() {
    let has = |folder: &Ctranslate2Folder, name: &str| {
        Names::of(&folder.container).unwrap().find(&folder.container, name).is_some()
    };
    let t5 = folder("t5-float32");
    for name in ["output.weight", "dec.token_embd.weight", "enc.blk.1.attn_q.weight", "enc.blk.0.attn_q.bias"]
    {
        assert!(!has(&t5, name), "{name}");
    }
    for name in
        ["dec.blk.1.attn_rel_b.weight", "enc.blk.0.ffn_gate.weight", "enc.blk.0.attn_q", "enc.conv1.weight"]
    {
        assert!(!has(&t5, name), "{name}");
    }
    assert!(has(&folder("llama-int8"), "output.weight"));
    let marian = folder("marian-int16");
    assert!(has(&marian, "output.bias") && !has(&marian, "output.weight"));
    let whisper = folder("whisper-int8");
    let names = Names::of(&whisper.container).unwrap();
    let keys = names.matrix(&whisper.container, "dec.blk.1.cross_attn_k.bias").unwrap();
    assert_eq!(
        values(&keys),
        [0.0; 8],
        "Whisper's keys have no bias; fused with those that have one it is zero"
    );
    let error = names.matrix(&whisper.container, "enc.blk.7.attn_q.weight").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
}

#[test]
fn settings_and_vocabularies_come_over() {
    let folder = folder("t5-float32");
    assert_eq!((folder.container.version, folder.container.revision), (6, 7));
    let settings = folder.settings();
    let number = |name: &str| settings[name].as_f64().unwrap();
    assert_eq!(settings["decoder_start_token"], "<pad>");
    assert_eq!(number("encoder/num_heads"), 2.0);
    assert_eq!(number("decoder/layer_1/self_attention/relative_attention_max_distance"), 128.0);
    assert_eq!(number("encoder/layer_0/self_attention/queries_scale"), 1.0);
    assert_eq!(number("decoder/scale_outputs"), f64::from(8f32.powf(-0.5)));
    let vocabulary = folder.vocabulary(VocabularyRole::Shared).unwrap();
    assert_eq!((vocabulary.tokens.len(), &*vocabulary.tokens[4]), (20, "t0"));
    assert!(folder.vocabulary(VocabularyRole::Target).is_none());
    assert!(Ctranslate2Folder::detect(&folder.path) && !Ctranslate2Folder::detect(&folder.path.join("..")));
    assert!(Ctranslate2Folder::files(&folder.path).contains(&folder.path.join("shared_vocabulary.json")));
    assert!(folder.read("config.json").unwrap().unwrap().starts_with(b"{"));
    assert_eq!(folder.read("tokenizer.json").unwrap(), None);
}

#[test]
fn every_type_is_read() {
    let bytes = Bytes::new(std::fs::read(data("ctranslate2/types.bin")).unwrap());
    let container = Container::parse(&bytes).unwrap();
    assert_eq!((&*container.spec, container.revision), ("TypesSpec", 9));
    let expected = floats(&data("ctranslate2/types.safetensors"));
    for (name, data_type) in [
        ("a/weight", DataType::Int8),
        ("b/weight", DataType::Int16),
        ("c/weight", DataType::Float16),
        ("d/weight", DataType::BFloat16),
        ("e/weight", DataType::Float32),
    ] {
        let matrix = container.matrix(name).unwrap();
        assert_eq!((matrix.rows, matrix.columns, matrix.data_type), (4, 6, data_type));
        assert_eq!(bits(&values(&matrix)), bits(&expected[name].1), "{name}");
        let part = matrix.slice(1..3).unwrap();
        assert_eq!(bits(&values(&part)), bits(&expected[name].1[6..18]), "{name}");
        for row in 0..4 {
            let scale = expected.get(&name.replace("weight", "scale")).map(|(_, scales)| scales);
            assert_eq!(matrix.scale(row), scale.map(|scales| scales[row.min(scales.len() - 1)]), "{name}");
        }
        assert!(matrix.row_into(4, &mut [0.0; 6]).is_err() && matrix.row_into(0, &mut [0.0; 5]).is_err());
        assert!(matrix.slice(3..5).is_none() && matrix.scale(4).is_none() && matrix.row_bytes(4).is_none());
    }
    assert_eq!(container.aliases, [("f/weight".to_owned(), container.find("a/weight").unwrap())]);
    assert_eq!(container.find("f/weight_scale"), container.find("a/weight_scale"));
    assert_eq!(
        values(&container.matrix("f/weight").unwrap()),
        values(&container.matrix("a/weight").unwrap())
    );
    assert_eq!((container.number("flag"), container.number("count")), (Some(1.0), Some(-70000.0)));
    assert_eq!(container.number("size"), Some(f64::from(0.1f32)));
    assert_eq!(container.get("text").unwrap().text(), Some("</s>"));
    assert_eq!(Names::of(&container).unwrap_err().kind(), ErrorKind::Unsupported);
}

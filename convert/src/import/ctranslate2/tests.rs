//! Tests on handmade files, intact and corrupted.

use super::*;
use siskin_format::file::Bytes;
use siskin_format::{ErrorKind, Result};

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16 + 1).to_le_bytes());
    out.extend(text.as_bytes());
    out.push(0);
}

struct Made<'a> {
    name: &'a str,
    dims: &'a [u32],
    code: u8,
    length: u32,
    data: Vec<u8>,
}

fn made<'a>(name: &'a str, dims: &'a [u32], code: u8, data: &[u8]) -> Made<'a> {
    Made { name, dims, code, length: data.len() as u32, data: data.to_vec() }
}

fn file(version: u32, spec: &str, variables: &[Made<'_>], aliases: &[(&str, &str)]) -> Vec<u8> {
    let mut out = version.to_le_bytes().to_vec();
    text(&mut out, spec);
    out.extend(2u32.to_le_bytes());
    out.extend((variables.len() as u32).to_le_bytes());
    for variable in variables {
        text(&mut out, variable.name);
        out.push(variable.dims.len() as u8);
        out.extend(variable.dims.iter().flat_map(|size| size.to_le_bytes()));
        out.push(variable.code);
        out.extend(variable.length.to_le_bytes());
        out.extend(&variable.data);
    }
    out.extend((aliases.len() as u32).to_le_bytes());
    for (alias, name) in aliases {
        text(&mut out, alias);
        text(&mut out, name);
    }
    out
}

fn parse(bytes: Vec<u8>) -> Result<Container> {
    Container::parse(&Bytes::new(bytes))
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn small() -> Vec<u8> {
    let variables = [
        made("a/weight", &[2, 3], 1, &[1, 2, 3, 0xFF, 0xFE, 0x80]),
        made("a/weight_scale", &[2], 0, &floats(&[2.0, 0.5])),
        made("b/weight", &[2], 2, &[0xE8, 3, 0x18, 0xFC]),
        made("heads", &[], 2, &[8, 0]),
    ];
    file(6, "Some", &variables, &[("z/weight", "a/weight")])
}

fn row(matrix: &VariableRows, row: usize) -> Vec<f32> {
    let mut values = vec![0.0; matrix.columns];
    matrix.row_into(row, &mut values).unwrap();
    values
}

#[test]
fn integers_are_divided_by_their_scales() {
    let container = parse(small()).unwrap();
    let matrix = container.matrix("z/weight").unwrap();
    assert_eq!(row(&matrix, 0), [0.5, 1.0, 1.5]);
    assert_eq!(row(&matrix, 1), [-2.0, -4.0, -256.0]);
    assert_eq!((matrix.scale(1), matrix.row_bytes(1)), (Some(0.5), Some(&[0xFF, 0xFE, 0x80][..])));
    assert_eq!(row(&container.matrix("b/weight").unwrap(), 0), [1.0, -1.0], "the scale of old files is 1000");
    let half = container.matrix("b/weight").unwrap().slice(1..2).unwrap();
    assert_eq!((half.rows, half.columns, row(&half, 0)), (1, 1, vec![-1.0]));
}

#[test]
fn version_three_says_the_size_of_elements() {
    let mut weight = made("w", &[2], 4, &floats(&[1.5, -2.0]));
    weight.length = 2;
    let container = parse(file(3, "Some", &[weight], &[])).unwrap();
    assert_eq!(row(&container.matrix("w").unwrap(), 0), [1.5, -2.0]);
}

#[test]
fn wrong_files_have_their_errors() {
    let one = |variable| file(6, "Some", &[variable], &[]);
    let mut trailing = small();
    trailing.push(0);
    let mut huge = small();
    huge[15..19].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, words) in [
        (b"GGUFGGUF".to_vec(), "not a CTranslate2 model"),
        (file(7, "Some", &[], &[]), "container version 7"),
        (file(2, "Some", &[], &[]), "container version 2"),
        (trailing, "1 bytes follow"),
        (huge, "model.bin: variables: claims 4294967295"),
        (one(made("x/y", &[2], 6, &[0; 8])), "variable 0 (x/y): unknown element type 6"),
        (
            one(made("x/y", &[3], 0, &[0; 8])),
            "variable 0 (x/y): the length does not match float32 of shape [3]",
        ),
        (one(made("x", &[u32::MAX; 8], 0, &[])), "the length does not match"),
        (one(made("x", &[1; 9], 1, &[0])), "9 dimensions"),
        (
            file(6, "Some", &[made("x", &[], 1, &[0]), made("x", &[], 1, &[0])], &[]),
            "variable 1 (x): occurs twice",
        ),
        (file(6, "Some", &[made("x", &[], 1, &[0])], &[("y", "w")]), "alias 0 (y): refers to 'w'"),
        (file(6, "Some", &[made("x", &[], 1, &[0])], &[("x", "x")]), "alias 0 (x): occurs twice"),
    ] {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn weights_that_cannot_be_read_have_their_errors() {
    let error = |variables: &[Made<'_>]| {
        let container = parse(file(6, "Some", variables, &[])).unwrap();
        container.matrix("w").unwrap_err()
    };
    let int8 = || made("w", &[2, 1], 1, &[1, 2]);
    let scales =
        |values: &[f32]| error(&[int8(), made("w_scale", &[values.len() as u32], 0, &floats(values))]);
    assert_eq!(error(&[made("v", &[], 1, &[0])]).kind(), ErrorKind::Missing);
    assert_eq!(error(&[int8()]).location(), "model.bin variable 0 (w): scale");
    assert!(scales(&[1.0]).message().contains("1 scales for 2 rows"));
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::from_bits(1)] {
        assert!(scales(&[1.0, bad]).message().contains("row 1"), "{bad}");
    }
    let packed = error(&[made("w", &[1, 1], 3, &[0; 4])]);
    assert_eq!(packed.kind(), ErrorKind::Unsupported);
    let packed = error(&[int8(), made("w_zero", &[1], 3, &[0; 4])]);
    assert!(packed.kind() == ErrorKind::Unsupported && packed.message().contains("AWQ"));
}

#[test]
fn damage_never_panics() {
    let whole = small();
    for length in 0..whole.len() {
        assert!(parse(whole[..length].to_vec()).is_err(), "cut at {length}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let Ok(container) = parse(bytes) else { continue };
            for variable in &container.variables {
                let Ok(matrix) = container.matrix(&variable.name) else { continue };
                (0..matrix.rows).for_each(|at| drop(row(&matrix, at)));
            }
        }
    }
}

#[test]
fn parts_follow_the_heads() {
    let parts = [
        RowSlice::Queries,
        RowSlice::Keys,
        RowSlice::Values,
        RowSlice::KeysOfTwo,
        RowSlice::ValuesOfTwo,
        RowSlice::Whole,
    ];
    let ranges = |rows, heads| parts.map(|part| part.range(rows, heads));
    assert_eq!(
        ranges(12, (1, 1)),
        [Some(0..4), Some(4..8), Some(8..12), Some(0..6), Some(6..12), Some(0..12)]
    );
    assert_eq!(ranges(12, (4, 1))[..3], [Some(0..8), Some(8..10), Some(10..12)]);
    assert_eq!(ranges(13, (4, 1)), [None, None, None, None, None, Some(0..13)]);
    assert_eq!(ranges(0, (0, 0))[0], None);
    assert_eq!(ranges(6, (usize::MAX, usize::MAX))[0], None);
}

#[test]
fn lines_are_tokens() {
    let tokens =
        |text: &str| TokenList::from_text(VocabularyRole::Model, text.as_bytes(), "v").unwrap().tokens;
    assert_eq!(tokens(""), [""; 0]);
    assert_eq!(tokens("a\n\nb"), ["a", "", "b"]);
    assert_eq!(tokens("a\r\nb\u{85}\r\n"), ["a", "b\u{85}"]);
    assert_eq!(tokens("a\r\nb\n"), ["a\r", "b"]);
    assert!(TokenList::from_text(VocabularyRole::Model, &[0xFF], "v").is_err());
    let json = TokenList::from_json(VocabularyRole::Target, br#"["\n", "\u00e9"]"#, "v").unwrap();
    assert_eq!(json.tokens, ["\n", "é"]);
    assert!(TokenList::from_json(VocabularyRole::Target, b"{}", "v").is_err());
}

#[test]
fn packed_models_are_rejected_by_their_configuration() {
    let path = std::env::temp_dir().join(format!("siskin-ctranslate2-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    assert_eq!(Ctranslate2Folder::open(&path).unwrap_err().kind(), ErrorKind::Missing);
    std::fs::write(path.join("model.bin"), small()).unwrap();
    assert!(Ctranslate2Folder::detect(&path) && Ctranslate2Folder::open(&path).unwrap().config.is_empty());
    std::fs::write(path.join("config.json"), r#"{"quantization_type": 1, "quantization_bits": 4}"#).unwrap();
    assert_eq!(Ctranslate2Folder::open(&path).unwrap_err().kind(), ErrorKind::Unsupported);
    std::fs::write(path.join("config.json"), r#"{"quantization_type": 0}"#).unwrap();
    std::fs::write(path.join("vocabulary.txt"), "a\nb\n").unwrap();
    std::fs::write(path.join("source_2_vocabulary.json"), r#"["x"]"#).unwrap();
    let folder = Ctranslate2Folder::open(&path).unwrap();
    assert_eq!(folder.vocabulary(VocabularyRole::Model).unwrap().tokens, ["a", "b"]);
    assert_eq!(folder.vocabulary(VocabularyRole::Source(1)).unwrap().tokens, ["x"]);
    assert_eq!(folder.settings()["heads"], 8);
    std::fs::remove_dir_all(&path).unwrap();
}

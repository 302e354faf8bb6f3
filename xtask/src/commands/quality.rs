//! `quality`: the quality loss of weight types.

use super::bench_peers::{peers, report::value};
use super::model;
use crate::Subcommand;
use crate::shell::{self, Result, cargo, output, program, run};
use std::fs;
use std::path::Path;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "quality",
    usage: "[--chunks N] TEXT [minilm|smollm2|gemma3]…",
    about: "measure how much each weight type changes a model's outputs on an English TEXT: sentence embeddings of MiniLM, \
            predictions of the others",
    run: quality,
};

/// A way to store matrices.
struct Recipe {
    title: &'static str,
    /// The arguments of `requantize` for MiniLM, and the rounding of matmul inputs; if empty, it is not measured.
    encoder: (&'static [&'static str], &'static str),
    /// The arguments of `siskin convert` for the other models.
    decoder: &'static [&'static str],
}

const BLOCKS: &str = "blocks";
const ROWS: &str = "rows";

/// All measured recipes. Adding one takes a line here.
const RECIPES: &[Recipe] = &[
    Recipe { title: "as its source has it", encoder: (&[], ""), decoder: &[] },
    Recipe { title: "Q8_0", encoder: (&["q8_0"], BLOCKS), decoder: &["--quant", "q8_0,tables=q8_0,always"] },
    Recipe { title: "W8r", encoder: (&["w8r"], ROWS), decoder: &["--quant", "w8r,tables=w8r,always"] },
    Recipe { title: "Q5_0", encoder: (&["q5_0"], BLOCKS), decoder: &["--quant", "q5_0,tables=q5_0,always"] },
    Recipe { title: "Q4_1", encoder: (&["q4_1"], BLOCKS), decoder: &["--quant", "q4_1,tables=q4_1,always"] },
    Recipe {
        title: "Q4_K",
        encoder: (&["q4_k", "q5_0"], BLOCKS),
        decoder: &["--quant", "q4_k,tables=q4_k,always"],
    },
    Recipe { title: "Q4_0", encoder: (&["q4_0"], BLOCKS), decoder: &["--quant", "q4_0,tables=q4_0,always"] },
    Recipe { title: "W4i", encoder: (&["w4i"], ROWS), decoder: &["--quant", "w4i,tables=w4i,always"] },
    Recipe { title: "Q4_K, tables Q8_0", encoder: (&[], ""), decoder: &["--quant", "q4_k,always"] },
    Recipe { title: "Q4_0, tables Q8_0", encoder: (&[], ""), decoder: &["--quant", "q4_0,always"] },
    Recipe { title: "W4i, tables W8r", encoder: (&[], ""), decoder: &["--quant", "w4i,always"] },
];

/// The default number of chunks of 512 tokens.
const CHUNKS: usize = 20;

fn quality(arguments: &[String]) -> Result {
    let mut chunks = CHUNKS;
    let mut rest = arguments;
    if let [flag, number, others @ ..] = rest
        && flag == "--chunks"
    {
        let parsed = number.parse().ok().filter(|number| *number > 0);
        chunks = parsed.ok_or_else(|| "--chunks needs a number of 1 or more".to_owned())?;
        rest = others;
    }
    let Some((text, names)) = rest.split_first() else {
        return Err(format!("usage: cargo xtask quality {}", SUBCOMMAND.usage));
    };
    let text = fs::canonicalize(text).map_err(|error| format!("{text}: {error}"))?;
    let all: Vec<_> = std::iter::once("minilm").chain(model::names()).collect();
    if let Some(name) = names.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("no model `{name}`; there are {}", all.join(", ")));
    }
    let wanted = |name: &&str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let programs = ["--package=siskin-cli", "--package=siskin-tests", "--bin=siskin", "--bin=requantize"];
    run(cargo(&["build", "--release", "--locked"]).args(programs))?;
    let folder = shell::models()?.join("quality");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    all.into_iter().filter(wanted).try_for_each(|name| match name {
        "minilm" => encoder(&folder, &text),
        name => decoder(name, &folder, &text, chunks),
    })
}

/// Prints the table of sentence embeddings.
fn encoder(folder: &Path, text: &Path) -> Result {
    let python = peers::python()?;
    let packages = ["numpy==2.4.6", "safetensors==0.8.0", "tokenizers==0.23.3"];
    peers::need(&python, "numpy, safetensors, tokenizers", &packages)?;
    let original = model::bring("minilm")?;
    let mut lines = Vec::new();
    for (title, rounding) in
        [("f32, inputs as for block types", BLOCKS), ("f32, inputs as for row types", ROWS)]
    {
        let found = embeddings(&python, &original, text, &original.join("model.safetensors"), rounding)?;
        lines.push(format!("| {title} | – | 32 | – | {found}"));
    }
    for recipe in RECIPES.iter().filter(|recipe| !recipe.encoder.0.is_empty()) {
        eprintln!("minilm: {}", recipe.title);
        let file = folder.join("minilm.safetensors");
        let mut requantize = program(shell::release("requantize"), &[]);
        requantize.arg(original.join("model.safetensors")).arg(&file).args(recipe.encoder.0);
        let report = output(&mut requantize)?;
        let number = |key| number(&report, key);
        let blocks = number("block_bits").map_or_else(|_| "–".to_owned(), |bits| format!("{bits:.2}"));
        let sizes = format!("{blocks} | {:.2} | {:.5}", number("panel_bits")?, number("relative_error")?);
        let title = match (recipe.encoder.0, number("others")?) {
            ([_, other], others) if others > 0.0 => {
                format!("{} ({others:.0} of {:.0} matrices {other})", recipe.title, number("matrices")?)
            }
            _ => recipe.title.to_owned(),
        };
        let found = embeddings(&python, &original, text, &file, recipe.encoder.1)?;
        lines.push(format!("| {title} | {sizes} | {found}"));
        remove(&file)?;
    }
    println!("\nall-MiniLM-L6-v2, 200 sentences\n");
    println!(
        "| type | bits a weight, GGUF | bits a weight, .siskin | error of weights | 1 − cosine, weights alone \
         | 1 − cosine | highest | rank correlation |"
    );
    println!("|---|---|---|---|---|---|---|---|\n{}", lines.join("\n"));
    Ok(())
}

/// Returns the cells of a row, after the sizes.
fn embeddings(python: &Path, folder: &Path, text: &Path, weights: &Path, rounding: &str) -> Result<String> {
    let mut script = program(python, &["xtask/python/quality_minilm.py"]);
    let said = output(script.arg(folder).arg(text).arg(weights).arg(rounding))?;
    Ok(said.split_whitespace().map(|cell| format!("{cell} | ")).collect::<String>().trim_end().to_owned())
}

/// Prints the table of next-token predictions, compared to the model in f16.
fn decoder(name: &str, folder: &Path, text: &Path, chunks: usize) -> Result {
    let source = model::bring(name)?;
    let (truth, file) = (folder.join(format!("{name}.f16.siskin")), folder.join(format!("{name}.siskin")));
    let truth_report = convert(&source, &truth, &["--quant", "f16,tables=f16,always"])?;
    let mut lines = Vec::new();
    let measure = |title: &str, file: &Path, converted: &str| -> Result<String> {
        eprintln!("{name}: {title}");
        let inspected = output(program(shell::release("siskin"), &["inspect", "--json"]).arg(file))?;
        let bits = 8.0 * tensor_bytes(&inspected)? / number(&inspected, "parameters")?;
        let mut command = program(shell::release("siskin"), &["perplexity"]);
        command.arg(file).arg(text).args([
            "--context",
            "512",
            "--chunks",
            &chunks.to_string(),
            "--json",
            "--against",
        ]);
        let found = output(command.arg(&truth))?;
        let number = |key| number(&found, key);
        let (perplexity, divergence) = (number("perplexity")?, number("kl_divergence")?);
        let agreement = 100.0 * number("top1_agreement")?;
        let error =
            self::number(converted, "relative_error").map_or_else(|_| "–".to_owned(), |e| format!("{e:.5}"));
        let types = types(converted);
        Ok(format!(
            "| {title} | {types} | {bits:.2} | {error} | {perplexity:.3} | {agreement:.2}% | {divergence:.5} |"
        ))
    };
    lines.push(measure("its numbers in f16", &truth, &truth_report)?);
    for recipe in RECIPES {
        let converted = convert(&source, &file, recipe.decoder)?;
        lines.push(measure(recipe.title, &file, &converted)?);
        remove(&file)?;
    }
    remove(&truth)?;
    println!("\n{name}, {chunks} chunks of 512\n");
    println!(
        "| type | matrices | bits a weight | error of weights | perplexity | same likeliest token | divergence, nats |"
    );
    println!("|---|---|---|---|---|---|---|\n{}", lines.join("\n"));
    Ok(())
}

fn convert(from: &Path, to: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = program(shell::release("siskin"), &["convert"]);
    output(command.arg(from).arg("-o").arg(to).args(arguments).args(["--json", "--quiet"]))
}

fn remove(file: &Path) -> Result {
    fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn number(json: &str, key: &str) -> Result<f64> {
    let number = value(json, key).and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("no number `{key}` in {json}"))
}

/// Returns the types of a conversion's matrices, as `210 Q4_K, 1 Q8_0`.
fn types(json: &str) -> String {
    let list = json.split_once("\"types\":{").and_then(|(_, rest)| rest.split_once('}'));
    let entries = list.map(|(list, _)| list).unwrap_or_default().split(',');
    let shown = entries.filter_map(|entry| entry.split_once(':'));
    let shown =
        shown.map(|(name, count)| (name.trim_matches('"'), count)).filter(|(name, _)| *name != "vector");
    shown.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// Returns the bytes of all tensors of an inspected file, with padding.
fn tensor_bytes(json: &str) -> Result<f64> {
    let before = json.split_once(",\"kind\":\"tensor data\"").map(|(before, _)| before);
    let digits =
        before.and_then(|before| before.rsplit_once(':')).and_then(|(_, digits)| digits.parse().ok());
    digits.ok_or_else(|| format!("no bytes of tensors in {json}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let json = r#"{"bytes":7,"quantization":{"types":{"Q4_K":180,"Q5_0":31,"vector":61},"x":1}}"#;
        assert_eq!(types(json), "180 Q4_K, 31 Q5_0");
        let json =
            r#"{"parameters":64,"sections":[{"bytes":736,"kind":"tensor data","offset":16384},{"bytes":2}]}"#;
        assert_eq!(tensor_bytes(json), Ok(736.0));
        assert!(tensor_bytes("{}").is_err());
    }
}

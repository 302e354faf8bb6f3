//! Exports a trained model as a `.siskin` file: the same values, packed as f32 or as the type that they were rounded
//! to, or the original panels of frozen matrices.

use std::io::{Seek, Write};

use serde_json::{Map, Value};
use siskin_format::Result;
use siskin_format::file::{FileWriter, Metadata, SectionKind, TensorSpec};
use siskin_graph::WeightRole;
use siskin_kernels::panel::ROWS;
use siskin_kernels::quant::BlockType;

use crate::parameters::{ForwardWeights, Parameters};
use crate::qat::WeightType;

/// The content of a file besides the tensors.
#[derive(Clone, Debug, Default)]
pub struct FileContents {
    /// The name of the family.
    pub architecture: String,
    /// The hyperparameters.
    pub config: Map<String, Value>,
    /// The model's name.
    pub name: Option<String>,
    /// The license of the base model.
    pub license: Option<String>,
    /// The provenance.
    pub provenance: Map<String, Value>,
    /// The tokenizer section.
    pub tokenizer: Option<Vec<u8>>,
    /// The chat template.
    pub template: Option<String>,
    /// f32 lists besides the trained tensors, by name: layers after pooling.
    pub vectors: Vec<(String, Vec<f32>)>,
}

/// Writes a `.siskin` file to `out`, which must be empty, and returns it.
pub fn write<W: Write + Seek + Send>(
    frame: &FileContents,
    parameters: &Parameters<f32>,
    out: W,
) -> Result<W> {
    let mut writer = FileWriter::new(out)?;
    let bytes = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
    for (name, numbers) in &frame.vectors {
        let spec = TensorSpec::vector(name, numbers.len() as u64);
        writer.tensor(&spec, |sink| sink.write(&bytes(numbers)))?;
    }
    for parameter in &parameters.list {
        let (rows, columns) = (parameter.rows as u64, parameter.columns as u64);
        match parameter.role {
            WeightRole::Vector => {
                let spec = TensorSpec::vector(&parameter.name, columns);
                writer.tensor(&spec, |sink| sink.write(&bytes(&parameter.numbers)))?;
            }
            WeightRole::Matrix => {
                let kind = match &parameter.forward {
                    ForwardWeights::Packed(packed) => {
                        let spec = TensorSpec::matrix(&parameter.name, packed.panel(), rows, columns);
                        writer.tensor(&spec, |sink| sink.write(packed.bytes()))?;
                        continue;
                    }
                    ForwardWeights::Rounded { kind, .. } => *kind,
                    ForwardWeights::Numbers => WeightType::Block(BlockType::F32),
                };
                let spec = TensorSpec::matrix(&parameter.name, kind.panel(), rows, columns);
                let size = kind.panel().panel_bytes(parameter.columns).unwrap_or(0);
                writer.tensor(&spec, |sink| {
                    let mut panel = vec![0; size];
                    for rows in parameter.numbers.chunks(ROWS * parameter.columns.max(1)) {
                        kind.pack(rows, parameter.columns, &mut panel);
                        sink.write(&panel)?;
                    }
                    Ok(())
                })?;
            }
        }
    }
    if let Some(tokenizer) = &frame.tokenizer {
        writer.section(SectionKind::Tokenizer, tokenizer)?;
    }
    if let Some(template) = &frame.template {
        writer.section(SectionKind::Template, template.as_bytes())?;
    }
    writer.finish(&Metadata {
        architecture: frame.architecture.clone(),
        config: frame.config.clone(),
        name: frame.name.clone(),
        license: frame.license.clone(),
        provenance: frame.provenance.clone(),
        quantization: Map::new(),
    })
}

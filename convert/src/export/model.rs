//! A packed model, opened for export.

use siskin_format::file::{File, Tensor};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{ConfigReader, ExportedModel, FamilyDescriptor, Graphs, ModelConfig, Topology};
use siskin_graph::{AttentionMask, Graph, Weight};
use siskin_kernels::panel::PanelType;
use siskin_kernels::quant::BlockType;

/// Returns the error for a missing tensor.
pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::Missing, name, "required by the model and missing from the file")
}

/// The parts of a packed file that every format needs.
pub(crate) struct ExportModel<'a> {
    pub(crate) file: &'a File,
    pub(crate) descriptor: &'static FamilyDescriptor,
    pub(crate) config: ConfigReader,
    pub(super) model_config: ModelConfig,
    pub(crate) graphs: Graphs,
}

impl<'a> ExportModel<'a> {
    pub(crate) fn of(file: &'a File) -> Result<Self> {
        let metadata = file.metadata();
        let descriptor =
            FamilyDescriptor::named(&metadata.architecture).map_err(|error| error.within("metadata"))?;
        let config = ConfigReader::new(metadata.config.clone());
        let (model_config, graphs) = descriptor.family.build(&config, &|name| file.tensor(name).is_some())?;
        Ok(Self { file, descriptor, config, model_config, graphs })
    }

    /// Calls `with` with the model as its family sees it.
    pub(super) fn seen_by_family<T>(&self, with: impl FnOnce(&ExportedModel<'_>) -> T) -> T {
        let has = |name: &str| self.file.tensor(name).is_some();
        with(&ExportedModel {
            config: &self.config,
            model_config: &self.model_config,
            graphs: &self.graphs,
            has: &has,
        })
    }

    /// Returns the graph that hyperparameters are taken from.
    pub(super) fn main_graph(&self) -> Option<&Graph> {
        self.graphs.decoder.as_ref().or(self.graphs.encoder.as_ref())
    }

    /// Returns true if the encoder is bidirectional: tokens attend to later ones.
    pub(super) fn is_bidirectional(&self) -> bool {
        let mut attentions = self.graphs.encoder.iter().flat_map(Graph::attentions);
        !attentions.any(|attention| matches!(attention.attention_mask, AttentionMask::CausalEncoder(_)))
    }

    /// Returns true if the model is a decoder that is used as an encoder.
    pub(super) fn is_reader(&self) -> bool {
        matches!(self.descriptor.family.topology, Topology::Decoder(_)) && self.graphs.decoder.is_none()
    }

    /// Returns the note of a format that does not support `key` of the embedding settings, if the model has that key.
    pub(super) fn note_without(&self, key: &str) -> Option<String> {
        self.config.get(&format!("sentence_transformers/{key}"))?;
        Some(format!("the file does not store the {key} of the model: embeddings differ without it"))
    }

    /// Returns the tensor of a weight and checks its shape.
    pub(super) fn tensor(&self, weight: &Weight) -> Result<&'a Tensor> {
        let tensor = self.file.tensor(&weight.name).ok_or_else(|| missing(&weight.name))?;
        if (tensor.rows, tensor.columns) != (weight.rows, weight.columns) {
            let message = format!(
                "{} x {} values, expected {} x {}",
                tensor.rows, tensor.columns, weight.rows, weight.columns
            );
            return Err(Error::new(ErrorKind::Shape, &weight.name, message));
        }
        Ok(tensor)
    }

    /// Returns the format that the model was packed from, or an empty string if unknown.
    pub(super) fn source(&self) -> &str {
        self.provenance("format")
    }

    /// Returns a string of the provenance, or an empty string if it is missing.
    pub(super) fn provenance(&self, key: &str) -> &str {
        self.file.metadata().provenance.get(key).and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    /// Returns the block type that matrices with these panels are exported as, or `None` if it must be a float type.
    ///
    /// Of several block types with one panel type, it is the last that the metadata counts, or the last of all if it
    /// counts none of them. Which tensor had which type is not recorded: [`rows::exact`](crate::rows::exact) fails for
    /// a row that blocks of this type cannot hold, and the export with it.
    pub(crate) fn block_of(&self, panel: PanelType) -> Option<BlockType> {
        let types = self.file.metadata().quantization.get("types");
        let counted = |block: &BlockType| types.is_some_and(|types| types.get(block.name()).is_some());
        let fitting = || BlockType::ALL.iter().filter(|block| block.codec().panel == panel);
        let is_recorded = fitting().any(counted);
        let mut possible = fitting().filter(|block| !is_recorded || counted(block));
        possible.rfind(|block| block.codec().can_unpack()).copied()
    }
}

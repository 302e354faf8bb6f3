//! A `.siskin` file as a source, to convert its matrices to other types: for example to quantize a model that was
//! trained or packed as floats.

use super::{ModelSource, SourceFormat, SourceTensor};
use crate::export::model::{ExportModel, missing};
use crate::rows;
use rayon::prelude::*;
use serde_json::{Map, Value};
use siskin_format::file::{Bytes, File, SectionKind, StorageRole, Tensor};
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, Family, TensorTransform};
use siskin_graph::{Weight, WeightRole};
use siskin_kernels::quant::BlockType;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Not in the list of formats: opening a packed file never packs it again.
pub(super) static FORMAT: SourceFormat = SourceFormat {
    name: "siskin",
    detect: super::is_packed,
    files: |path| Ok(vec![path.to_owned()]),
    open: |path| Ok(Box::new(Packed::open(path).map_err(|error| error.within(&path.display().to_string()))?)),
};

struct Packed {
    file: File,
    family: &'static Family,
    config: ConfigReader,
    /// The block type that a matrix holds losslessly; other matrices are read as floats.
    blocks: HashMap<String, BlockType>,
    /// Vectors that are not part of the graphs.
    lists: Vec<String>,
}

impl Packed {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let (family, config, blocks, lists) = {
            let model = ExportModel::of(&file)?;
            let weights = model.graphs.weights();
            let known: HashSet<&str> = weights.iter().map(|weight: &&Weight| weight.name.as_str()).collect();
            let matrices = weights.iter().filter(|weight| weight.role == WeightRole::Matrix);
            let block = |weight: &&Weight| {
                let panel = file.tensor(&weight.name)?.panel;
                Some((weight.name.clone(), model.block_of(panel)?))
            };
            let blocks = matrices.filter_map(block).collect();
            let beside = file.tensors().iter().filter(|tensor| !known.contains(tensor.name.as_str()));
            let lists =
                beside.filter(|tensor| tensor.role == StorageRole::Vector).map(|tensor| tensor.name.clone());
            let lists = lists.collect();
            (model.descriptor.family, model.config, blocks, lists)
        };
        Ok(Self { file, family, config, blocks, lists })
    }

    fn find(&self, name: &str) -> Result<&Tensor> {
        self.file.tensor(name).ok_or_else(|| missing(name))
    }

    /// Returns the rows of a matrix as blocks, and their type.
    fn rows(&self, tensor: &Tensor) -> Result<(BlockType, Vec<u8>)> {
        let all = |block: BlockType, write: fn(&Tensor, usize, BlockType, &mut [u8]) -> bool| {
            let size = block.row_bytes(tensor.columns).filter(|&size| size > 0)?;
            let mut out = vec![0; size.checked_mul(tensor.rows)?];
            let each = out.par_chunks_exact_mut(size).enumerate();
            let done = each.map(|(row, out)| write(tensor, row, block, out)).all(|done| done);
            done.then_some((block, out))
        };
        let exact = self.blocks.get(&tensor.name).and_then(|&block| all(block, rows::exact));
        let broken = || Error::corrupt(&tensor.name, "its rows cannot be read from the packed file");
        exact.or_else(|| all(BlockType::F32, rows::blocks)).ok_or_else(broken)
    }
}

impl ModelSource for Packed {
    fn family(&self) -> &'static Family {
        self.family
    }

    fn config(&self) -> &ConfigReader {
        &self.config
    }

    fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    fn tensor(&self, name: &str) -> Result<SourceTensor> {
        let tensor = self.find(name)?;
        let (block, data) = match tensor.role {
            StorageRole::Vector => {
                let bytes = tensor.floats().iter().flat_map(|number| number.to_le_bytes()).collect();
                (BlockType::F32, bytes)
            }
            StorageRole::Matrix => self.rows(tensor)?,
        };
        Ok(SourceTensor {
            name: name.to_owned(),
            block,
            rows: tensor.rows,
            columns: tensor.columns,
            data: Bytes::new(data),
            take: TensorTransform::Whole,
        })
    }

    fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.file.section(SectionKind::Tokenizer).map(|bytes| bytes.to_vec()))
    }

    fn template(&self) -> Option<&str> {
        self.file.template()
    }

    fn name(&self) -> Option<&str> {
        self.file.metadata().name.as_deref()
    }

    fn license(&self) -> Option<&str> {
        self.file.metadata().license.as_deref()
    }

    fn lists(&self) -> Result<Vec<(String, Vec<f32>)>> {
        self.lists.iter().map(|name| Ok((name.clone(), self.find(name)?.floats()))).collect()
    }

    fn provenance(&self) -> Map<String, Value> {
        let mut provenance = Map::new();
        provenance.insert("base".to_owned(), Value::Object(self.file.metadata().provenance.clone()));
        provenance
    }
}

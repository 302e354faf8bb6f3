//! A `.siskin` file as a source, to give its matrices other types: what was trained or packed as floats is made small.

use super::{Format, Source, SourceTensor};
use crate::export::model::Model;
use serde_json::{Map, Value};
use siskin::arch::{Config, Family, Take};
use siskin::file::{Bytes, File, Role, SectionKind, Tensor};
use siskin::graph::{self, Weight};
use siskin::{Error, ErrorKind, Result};
use siskin_kernels::panel::{self, ROWS};
use siskin_kernels::quant::BlockType;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Not in the list of formats: nobody opens a packed file by packing it again.
pub(super) static FORMAT: Format = Format {
    name: "siskin",
    detect: super::is_packed,
    files: |path| Ok(vec![path.to_owned()]),
    open: |path| Ok(Box::new(Packed::open(path).map_err(|error| error.within(&path.display().to_string()))?)),
};

struct Packed {
    file: File,
    family: &'static Family,
    config: Config,
    /// The type of blocks that a matrix holds to the byte; others are read as floats.
    blocks: HashMap<String, BlockType>,
    /// Vectors beside those of the graphs.
    lists: Vec<String>,
}

impl Packed {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let (family, config, blocks, lists) = {
            let model = Model::of(&file)?;
            let weights = model.graphs.weights();
            let known: HashSet<&str> = weights.iter().map(|weight: &&Weight| weight.name.as_str()).collect();
            let matrices = weights.iter().filter(|weight| weight.role == graph::Role::Matrix);
            let block = |weight: &&Weight| {
                let panel = file.tensor(&weight.name)?.panel;
                Some((weight.name.clone(), model.block_of(panel)?))
            };
            let blocks = matrices.filter_map(block).collect();
            let beside = file.tensors().iter().filter(|tensor| !known.contains(tensor.name.as_str()));
            let lists = beside.filter(|tensor| tensor.role == Role::Vector).map(|tensor| tensor.name.clone());
            let lists = lists.collect();
            (model.family, model.config, blocks, lists)
        };
        Ok(Self { file, family, config, blocks, lists })
    }

    fn find(&self, name: &str) -> Result<&Tensor> {
        let missing = || Error::new(ErrorKind::Missing, name, "the model needs it, and the file lacks it");
        self.file.tensor(name).ok_or_else(missing)
    }

    /// The rows of a matrix as blocks, and their type.
    fn rows(&self, tensor: &Tensor) -> Result<(BlockType, Vec<u8>)> {
        let broken = || Error::corrupt(&tensor.name, "its rows cannot be read from the packed file");
        let (rows, columns) = (tensor.rows, tensor.columns);
        let bytes = tensor.panel.panel_bytes(columns).filter(|&bytes| bytes > 0).ok_or_else(broken)?;
        let whole = |block: BlockType| -> Option<Vec<u8>> {
            let size = block.row_bytes(columns)?;
            let mut out = vec![0; size.checked_mul(rows)?];
            let each = out.chunks_exact_mut(size.max(1)).enumerate();
            for (row, out) in each {
                let panel = tensor.data.get(row / ROWS * bytes..)?.get(..bytes)?;
                panel::unpack(block, panel, row % ROWS, columns, out).then_some(())?;
            }
            Some(out)
        };
        if let Some(&block) = self.blocks.get(&tensor.name)
            && let Some(out) = whole(block)
        {
            return Ok((block, out));
        }
        let mut values = vec![0.0; columns];
        let mut out = Vec::with_capacity(rows * columns * size_of::<f32>());
        for row in 0..rows {
            let panel = tensor.data.get(row / ROWS * bytes..).and_then(|rest| rest.get(..bytes));
            let panel = panel.ok_or_else(broken)?;
            if !panel::row_values(tensor.panel, panel, row % ROWS, columns, &mut values) {
                return Err(broken());
            }
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Ok((BlockType::F32, out))
    }
}

impl Source for Packed {
    fn family(&self) -> &'static Family {
        self.family
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    fn tensor(&self, name: &str) -> Result<SourceTensor> {
        let tensor = self.find(name)?;
        let (block, data) = match tensor.role {
            Role::Vector => {
                let bytes = tensor.floats().iter().flat_map(|number| number.to_le_bytes()).collect();
                (BlockType::F32, bytes)
            }
            Role::Matrix => self.rows(tensor)?,
        };
        Ok(SourceTensor {
            name: name.to_owned(),
            block,
            rows: tensor.rows,
            columns: tensor.columns,
            data: Bytes::new(data),
            take: Take::Whole,
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

    fn licence(&self) -> Option<&str> {
        self.file.metadata().licence.as_deref()
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

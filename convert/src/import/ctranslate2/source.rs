//! A CTranslate2 folder as a source.

use super::settings::settings;
use super::{Ctranslate2Folder, ModelTopology, Names, VariableRows};
use crate::import::{ModelSource, SourceFormat, SourceTensor, tokenizer_json};
use serde_json::{Map, Value};
use siskin_format::file::Bytes;
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, DESCRIPTORS, Family, FamilyDescriptor, TensorTransform};
use siskin_kernels::quant::BlockType;

pub(in crate::import) static FORMAT: SourceFormat = SourceFormat {
    name: "CTranslate2 folder",
    detect: Ctranslate2Folder::detect,
    files: |path| Ok(Ctranslate2Folder::files(path).into_iter().filter(|file| file.is_file()).collect()),
    open: |path| {
        let location = path.display().to_string();
        let folder = Ctranslate2Folder::open(path)?;
        Ok(Box::new(CTranslate2::new(folder).map_err(|error| error.within(&location))?))
    },
};

/// Kernel size of a convolution.
const KERNEL: u16 = 3;
/// The logit bias of the start token with a zero embedding: it is never generated.
const NEVER: f32 = -1e9;

struct CTranslate2 {
    folder: Ctranslate2Folder,
    names: Names,
    descriptor: &'static FamilyDescriptor,
    config: ConfigReader,
    /// Whether the encoder and the decoder have separate token embeddings.
    two_tables: bool,
    /// Whether generated sequences start with a token with a zero embedding, appended after the last row of the table.
    zero_start: bool,
}

impl CTranslate2 {
    fn new(folder: Ctranslate2Folder) -> Result<Self> {
        let names = Names::of(&folder.container)?;
        if let Some(unknown) = names.unmapped(&folder.container).next() {
            let message = "unknown variable; convert the original model";
            return Err(Error::unsupported(format!("model.bin: {unknown}"), message));
        }
        let has = |name: &str| names.find(&folder.container, name).is_some();
        let specification = &*folder.container.spec;
        let is_of = |descriptor: &&&FamilyDescriptor| {
            descriptor.ctranslate2.specification == specification && (descriptor.ctranslate2.recognizes)(&has)
        };
        let descriptor = *DESCRIPTORS.iter().find(is_of).ok_or_else(|| {
            let message = match names.layout() {
                ModelTopology::Decoder => {
                    "decoder-only CTranslate2 models are not supported; convert the original model"
                }
                _ => "no family with this specification is supported; convert the original model",
            };
            Error::unsupported("model.bin specification", message)
        })?;
        let two_tables = has("dec.token_embd.weight");
        let flag = folder.container.number("decoder/start_from_zero_embedding");
        let zero_start = flag.is_some_and(|flag| flag != 0.0);
        let config = ConfigReader::new(settings(&folder, &names, descriptor, zero_start)?);
        Ok(Self { names, descriptor, config, two_tables, zero_start, folder })
    }

    /// Translates a weight's name to one that `Names` knows.
    fn known<'a>(&self, name: &'a str) -> Option<&'a str> {
        match name {
            "token_embd.weight" if self.two_tables => None,
            "enc.token_embd.weight" => self.two_tables.then_some("token_embd.weight"),
            "output_bias" => Some("output.bias"),
            other => Some(other),
        }
        .filter(|name| self.names.find(&self.folder.container, name).is_some())
    }

    /// Returns the value of the extra row or element for the start token, if `name` needs one.
    fn last_row(&self, name: &str) -> Option<f32> {
        match name {
            _ if !self.zero_start => None,
            "token_embd.weight" | "enc.token_embd.weight" | "dec.token_embd.weight" | "output.weight" => {
                Some(0.0)
            }
            "output_bias" => Some(NEVER),
            _ => None,
        }
    }
}

impl ModelSource for CTranslate2 {
    fn family(&self) -> &'static Family {
        self.descriptor.family
    }

    fn config(&self) -> &ConfigReader {
        &self.config
    }

    fn has(&self, name: &str) -> bool {
        self.known(name).is_some() || name == "output_bias" && self.zero_start
    }

    fn tensor(&self, name: &str) -> Result<SourceTensor> {
        let take = match name {
            "enc.conv1.weight" | "enc.conv2.weight" => TensorTransform::Neighbors(KERNEL),
            _ => TensorTransform::Whole,
        };
        let last = self.last_row(name);
        let Some(known) = self.known(name) else {
            return match (name, last) {
                ("output_bias", Some(last)) => self.bias_of_start(last),
                _ => Err(Error::new(
                    siskin_format::ErrorKind::Missing,
                    name,
                    "model.bin has no variable for it",
                )),
            };
        };
        let matrix = self.names.matrix(&self.folder.container, known)?;
        let VariableRows { rows, columns, .. } = matrix;
        let source = matrix.name.clone();
        let (block, data) = match (matrix.data_type.block(), last) {
            (Some(block), None) => (block, matrix.data),
            (_, last) => (BlockType::F32, floats(&matrix, last)?),
        };
        let is_list = rows == 1 && known.ends_with(".bias");
        let (rows, columns) = match last {
            None => (rows, columns),
            Some(_) if is_list => (rows, columns + 1),
            Some(_) => (rows + 1, columns),
        };
        Ok(SourceTensor { name: source, block, rows, columns, data, take })
    }

    fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        let Some(tokenizer) = self.folder.read("tokenizer.json")? else { return Ok(None) };
        let config = self.folder.read("tokenizer_config.json")?;
        tokenizer_json::vocabulary(&tokenizer, config.as_deref())?.write().map(Some)
    }

    fn template(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> Option<&str> {
        None
    }

    fn license(&self) -> Option<&str> {
        None
    }

    fn provenance(&self) -> Map<String, Value> {
        let container = &self.folder.container;
        let entries =
            [("specification", Value::from(&*container.spec)), ("revision", Value::from(container.revision))];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl CTranslate2 {
    /// Returns a bias that only keeps the start token from being generated.
    fn bias_of_start(&self, last: f32) -> Result<SourceTensor> {
        let columns = self.config.required(&["vocab_size"])?;
        let mut bytes = vec![0; columns.saturating_sub(1).saturating_mul(4)];
        bytes.extend_from_slice(&last.to_le_bytes());
        Ok(SourceTensor {
            name: "output_bias".to_owned(),
            block: BlockType::F32,
            rows: 1,
            columns,
            data: Bytes::new(bytes),
            take: TensorTransform::Whole,
        })
    }
}

/// Returns the values of all rows. If there is a `last`, appends a row filled with it, or one value to a vector.
fn floats(matrix: &VariableRows, last: Option<f32>) -> Result<Bytes> {
    let max_bytes =
        matrix.rows.checked_add(1).and_then(|rows| rows.checked_mul(matrix.columns)?.checked_mul(4));
    let mut bytes = Vec::new();
    max_bytes.and_then(|max_bytes| bytes.try_reserve_exact(max_bytes).ok()).ok_or_else(|| {
        Error::new(
            siskin_format::ErrorKind::Memory,
            &matrix.name,
            "cannot allocate memory for its values as floats",
        )
    })?;
    let mut values = vec![0.0; matrix.columns];
    for row in 0..matrix.rows {
        matrix.row_into(row, &mut values)?;
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    if let Some(last) = last {
        let count = if last == NEVER { 1 } else { matrix.columns };
        bytes.extend(std::iter::repeat_n(last.to_le_bytes(), count).flatten());
    }
    Ok(Bytes::new(bytes))
}

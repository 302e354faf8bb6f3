//! What a model is, and the memory that it needs: from its files, or from the first bytes of a GGUF file.

use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::options::{DEFAULT_CONTEXT, ModelArgs, OpenArgs};
use siskin::file::{File, StorageRole};
use siskin::{CacheType, Error, Result, SessionOptions};
use siskin_convert::import::{self, ModelSource};
use siskin_hub::ModelHead;

/// The weights, the configuration and the KV cache of a model.
pub(crate) struct ModelSummary {
    pub(crate) architecture: String,
    pub(crate) parameters: u64,
    /// The type of most bytes of the weights.
    pub(crate) quantization: Option<String>,
    pub(crate) has_template: bool,
    pub(crate) license: Option<String>,
    /// The maximum context length in tokens.
    pub(crate) max_context: usize,
    kv_cache: KvCacheBytes,
}

/// The bytes of the KV cache for a context length.
type KvCacheBytes = Box<dyn Fn(usize) -> u64>;

impl ModelSummary {
    /// Summarizes the model at a path; `None` for formats that are converted or checked when they are opened.
    pub(crate) fn of_path(path: &Path, open: &OpenArgs) -> Result<Option<Self>> {
        if path.extension().is_some_and(|ending| ending == "siskin") {
            return Self::of_packed(path, open).map(Some);
        }
        match import::format_of(path)?.name {
            "GGUF" | "Hugging Face folder" => Self::of_source(&*import::open(path)?).map(Some),
            _ => Ok(None),
        }
    }

    /// Summarizes a GGUF file whose weights have not arrived.
    pub(crate) fn of_head(head: &ModelHead) -> Result<Self> {
        let file = SparseFile::create(head)?;
        Self::of_source(&*import::open(&file.path)?)
    }

    fn of_source(source: &dyn ModelSource) -> Result<Self> {
        let (config, graphs) = source.family().build(source.config(), &|name| source.has(name))?;
        let (mut parameters, mut types) = (0_u64, BTreeMap::new());
        for weight in graphs.weights() {
            parameters =
                parameters.saturating_add((weight.rows as u64).saturating_mul(weight.columns as u64));
            if let Ok(tensor) = source.tensor(&weight.name) {
                *types.entry(tensor.block.name().to_owned()).or_default() += tensor.data.len();
            }
        }
        let quantization = most(types);
        // As the CPU's backend does.
        let cache = if quantization.as_deref() == Some("F32") { CacheType::F32 } else { CacheType::F16 };
        let block_words = |head_size: usize| cache.words(head_size) as u64;
        let tokens_of_block = CacheType::F32.words(16) / 16;
        let mut seen = HashSet::new();
        let attentions = graphs.decoder.iter().flat_map(|graph| graph.attentions());
        let layers: Vec<(u64, Option<usize>)> = attentions
            .filter(|attention| seen.insert(attention.layer))
            .map(|attention| {
                let words = block_words(attention.head_size).saturating_mul(attention.kv_heads as u64);
                (words.saturating_mul(2 * 4), config.windows.get(attention.layer).copied().flatten())
            })
            .collect();
        Ok(Self {
            architecture: source.family().name.to_owned(),
            parameters,
            quantization,
            has_template: source.template().is_some(),
            license: source.license().map(str::to_owned),
            max_context: config.context,
            kv_cache: Box::new(move |context| {
                let bytes = |(block, window): &(u64, Option<usize>)| {
                    let tokens = window.map_or(context, |window| window.min(context));
                    block.saturating_mul(tokens.div_ceil(tokens_of_block) as u64)
                };
                layers.iter().map(bytes).fold(0, u64::saturating_add)
            }),
        })
    }

    fn of_packed(path: &Path, open: &OpenArgs) -> Result<Self> {
        let file = File::open(path)?;
        let model = open.model(path, &ModelArgs::default())?;
        let metadata = file.metadata();
        let mut types = BTreeMap::new();
        let mut parameters = 0_u64;
        for tensor in file.tensors() {
            parameters =
                parameters.saturating_add((tensor.rows as u64).saturating_mul(tensor.columns as u64));
            if tensor.role == StorageRole::Matrix {
                *types.entry(tensor.panel.name().to_owned()).or_default() += tensor.data.len();
            }
        }
        Ok(Self {
            architecture: metadata.architecture.clone(),
            parameters,
            quantization: most(types),
            has_template: file.template().is_some(),
            license: metadata.license.clone(),
            max_context: model.config().context,
            kv_cache: Box::new(move |context| {
                let options = SessionOptions { context, ..SessionOptions::default() };
                // Encoders have no sessions.
                model.memory(&options).map_or(0, |memory| memory.cache as u64)
            }),
        })
    }

    /// Returns the context length that sessions have unless another one is given.
    pub(crate) fn context(&self) -> usize {
        self.max_context.min(DEFAULT_CONTEXT)
    }

    /// Returns the bytes of weights and the KV cache.
    pub(crate) fn memory(&self, weights: u64, context: usize) -> u64 {
        weights.saturating_add((self.kv_cache)(context))
    }

    /// Returns the longest context with which a model fits into memory; `None` if there is none.
    pub(crate) fn longest_context(&self, weights: u64, memory: u64) -> Option<usize> {
        let (mut fits, mut exceeds) = (0, self.max_context.saturating_add(1));
        while exceeds - fits > 1 {
            let context = fits.midpoint(exceeds);
            match self.memory(weights, context) <= memory {
                true => fits = context,
                false => exceeds = context,
            }
        }
        (fits > 0).then_some(fits)
    }
}

/// Returns the name of the type with the most bytes.
fn most(types: BTreeMap<String, usize>) -> Option<String> {
    types.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name)
}

/// A temporary file with the first bytes of another one, and its length.
struct SparseFile {
    path: PathBuf,
}

impl SparseFile {
    fn create(head: &ModelHead) -> Result<Self> {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let path = std::env::temp_dir().join(format!("siskin-head-{}-{time}.gguf", std::process::id()));
        let failed = |error: std::io::Error| Error::io(path.display().to_string(), &error);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let written = file.write_all(&head.bytes).and_then(|()| file.set_len(head.file_bytes));
        let created = Self { path: path.clone() };
        written.map(|()| created).map_err(failed)
    }
}

impl Drop for SparseFile {
    fn drop(&mut self) {
        // What stays is in the folder of temporary files.
        let _ = std::fs::remove_file(&self.path);
    }
}

//! Writes the model of a source as a `.siskin` file, tensor by tensor.

mod mix;
mod recipe;
mod rows;
mod target;

pub use mix::QuantMix;
pub use recipe::Recipe;
pub use target::WeightTarget;

use crate::calibrate::Calibration;
use crate::import::{self, ModelSource, SourceFormat};
use crate::progress::{NoProgress, ProgressSink};
use mix::MixLayout;
use rayon::prelude::*;
use rows::{PackScratch, RoundingMethod, Squares, TensorRows};
use serde_json::{Map, Value, json};
use siskin_format::file::{self, AtomicFile, FileWriter, Metadata, SectionKind, TensorSink, TensorSpec};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::ModelConfig;
use siskin_graph::{Weight, WeightRole};
use std::collections::{BTreeMap, HashSet};
use std::io::{Seek, Write};
use std::path::Path;

/// Packed bytes per chunk. Two chunks are in memory at a time.
const CHUNK: usize = 4 << 20;

/// Options for packing.
pub struct PackOptions<'a> {
    /// Which weight type each matrix gets. Without a recipe, weights keep the source's values exactly.
    pub recipe: Option<Recipe>,
    /// Receives the progress.
    pub progress: &'a dyn ProgressSink,
    /// Activation statistics: matrices are rounded to minimize the error of their outputs.
    pub calibration: Option<&'a Calibration>,
    /// Additional entries for the provenance.
    pub provenance: Map<String, Value>,
    /// Returns the goldens of the packed file, which [`pack_file`] adds to it; `None`: it gets none.
    pub goldens: Option<ComputeGoldens<'a>>,
}

/// A function that returns the *goldens* section of a file, if it can have one.
pub type ComputeGoldens<'a> = &'a (dyn Fn(&file::File) -> Result<Option<Vec<u8>>> + Sync);

impl Default for PackOptions<'_> {
    fn default() -> Self {
        Self { recipe: None, progress: &NoProgress, calibration: None, provenance: Map::new(), goldens: None }
    }
}

/// Packs the model at `from`, in any format, into the file `to`, which is created atomically when complete. `to` must
/// not be a file of the model. A `.siskin` file is accepted if there is a recipe that changes the types of its
/// matrices: exact weights stay exact where the recipe keeps them. Such a file is held in memory as a whole.
pub fn pack_file(from: &Path, to: &Path, options: &PackOptions<'_>) -> Result<()> {
    let format = import::format_to_pack(from, options.recipe.is_some())?;
    let source = (format.open)(from)?;
    let mut inputs = (format.files)(from)?;
    inputs.push(from.to_owned());
    let out = AtomicFile::create_from(to, &inputs)?;
    let mut out = pack_as(format, from, source.as_ref(), out, options)?;
    if let Some(goldens) = options.goldens {
        let file = file::File::open_descriptor(out.reopen()?, 0, None)?;
        if let Some(goldens) = goldens(&file)? {
            out = file.append_section(out, SectionKind::Goldens, &goldens)?;
        }
    }
    out.commit()
}

/// Packs, and records the format and the files in the provenance.
pub(crate) fn pack_as<W: Write + Seek + Send>(
    format: &SourceFormat,
    from: &Path,
    source: &dyn ModelSource,
    out: W,
    options: &PackOptions<'_>,
) -> Result<W> {
    let mut provenance = options.provenance.clone();
    provenance.insert("format".to_owned(), format.name.into());
    provenance.insert("files".to_owned(), files(&(format.files)(from)?));
    pack(source, out, &PackOptions { provenance, ..*options })
}

/// Returns the names and sizes of the source files.
fn files(files: &[std::path::PathBuf]) -> Value {
    let file = |path: &std::path::PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(json!({"name": name, "bytes": std::fs::metadata(path).ok()?.len()}))
    };
    files.iter().filter_map(file).collect()
}

/// Packs `source` into `out`, which must be empty, and returns `out`.
pub fn pack<W: Write + Seek + Send>(
    source: &dyn ModelSource,
    out: W,
    options: &PackOptions<'_>,
) -> Result<W> {
    let progress = options.progress;
    let family = source.family();
    let (model_config, graphs) = family.build(source.config(), &|name| source.has(name))?;
    let weights = graphs.weights();
    check_names(&weights)?;
    let layout = MixLayout::new(family, &model_config, &weights);
    let tensors = weights.iter().map(|weight| Tensor::new(source, weight, (&model_config, &layout), options));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    progress.message("packing");
    progress.total(tensors.iter().filter_map(|tensor| tensor.spec.bytes()).sum());
    // A large vocabulary takes as long as the tensors: run both in parallel.
    let (written, tokenizer) = rayon::join(|| write_tensors(&tensors, out, options), || source.tokenizer());
    let (mut writer, report) = written?;
    for (name, numbers) in source.lists()? {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.tensor(&TensorSpec::vector(name, numbers.len() as u64), |sink| sink.write(&bytes))?;
    }
    if let Some(tokenizer) = tokenizer? {
        writer.section(SectionKind::Tokenizer, &tokenizer)?;
    }
    if let Some(template) = source.template() {
        writer.section(SectionKind::Template, template.as_bytes())?;
    }
    writer.finish(&metadata(source, options, &report))
}

fn write_tensors<W: Write + Seek + Send>(
    tensors: &[Tensor<'_>],
    out: W,
    options: &PackOptions<'_>,
) -> Result<(FileWriter<W>, Report)> {
    let (mut writer, mut report) = (FileWriter::new(out)?, Report::default());
    for tensor in tensors {
        let mut squares = Squares::default();
        writer.tensor(&tensor.spec, |sink| {
            squares = tensor.write(sink, options)?;
            Ok(())
        })?;
        report.add(tensor, squares);
    }
    Ok((writer, report))
}

fn metadata(source: &dyn ModelSource, options: &PackOptions<'_>, report: &Report) -> Metadata {
    let mut provenance = source.provenance();
    provenance.extend(options.provenance.clone());
    provenance.insert("tool".to_owned(), concat!("siskin ", env!("CARGO_PKG_VERSION")).into());
    Metadata {
        architecture: source.family().name.to_owned(),
        config: source.config().values().clone(),
        name: source.name().map(str::to_owned),
        license: source.license().map(str::to_owned),
        provenance,
        quantization: report.values(options.recipe, options.calibration),
    }
}

/// Checks that names are unique: a family that declares one name with two shapes is wrong.
fn check_names(weights: &[&Weight]) -> Result<()> {
    let mut names = HashSet::new();
    match weights.iter().find(|weight| !names.insert(&weight.name)) {
        Some(weight) => Err(Error::new(ErrorKind::Shape, &weight.name, "declared with two shapes")),
        None => Ok(()),
    }
}

struct Tensor<'a> {
    rows: TensorRows<'a>,
    spec: TensorSpec,
}

impl<'a> Tensor<'a> {
    fn new(
        source: &dyn ModelSource,
        weight: &Weight,
        (model_config, layout): (&'a ModelConfig, &MixLayout),
        options: &PackOptions<'_>,
    ) -> Result<Self> {
        let mut rows = TensorRows::new(source.tensor(&weight.name)?, weight, model_config)
            .map_err(|error| error.within(&weight.name))?;
        let spec = match weight.role {
            WeightRole::Vector => TensorSpec::vector(&weight.name, weight.columns as u64),
            WeightRole::Matrix => {
                if let Some(recipe) = options.recipe {
                    let source = rows.source_type();
                    rows.encode_as(recipe.choose(&weight.name, source, weight.columns, layout));
                }
                TensorSpec::matrix(
                    &weight.name,
                    rows.target().panel(),
                    weight.rows as u64,
                    weight.columns as u64,
                )
            }
        };
        Ok(Self { rows, spec })
    }

    fn write(&self, sink: &mut TensorSink<'_>, options: &PackOptions<'_>) -> Result<Squares> {
        let progress = options.progress;
        match self.spec.role {
            file::StorageRole::Matrix => {
                self.write_panels(sink, &self.rounding(options.calibration), progress)
            }
            file::StorageRole::Vector => {
                let bytes: Vec<u8> = self.rows.floats()?.into_iter().flat_map(f32::to_le_bytes).collect();
                sink.write(&bytes)?;
                progress.advance(bytes.len() as u64);
                Ok(Squares::default())
            }
        }
    }

    /// Returns how the values are rounded. Embedding tables are not multiplied and have no calibration.
    fn rounding(&self, calibration: Option<&Calibration>) -> RoundingMethod {
        let Some(calibration) = calibration.filter(|_| self.rows.is_encoded()) else {
            return RoundingMethod::Nearest;
        };
        let rounding = match self.rows.target() {
            WeightTarget::Block(_) => calibration.importance(&self.spec.name).map(RoundingMethod::Weighted),
            WeightTarget::Row(_) => calibration.guide(&self.spec.name).map(RoundingMethod::Guided),
        };
        rounding.unwrap_or(RoundingMethod::Nearest)
    }

    /// Packs one chunk of panels while the previous one is hashed and written.
    fn write_panels(
        &self,
        sink: &mut TensorSink<'_>,
        rounding: &RoundingMethod,
        progress: &dyn ProgressSink,
    ) -> Result<Squares> {
        let panel =
            usize::try_from(self.spec.columns).ok().and_then(|columns| self.spec.panel.panel_bytes(columns));
        let panel = panel
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| Error::argument("columns", "not a valid row width for this type"))?;
        let panels = (self.spec.rows as usize).div_ceil(siskin_kernels::panel::ROWS);
        let at_once = (CHUNK / panel).clamp(1, panels.max(1));
        let (mut ready, mut next) = (Vec::new(), Vec::new());
        let mut squares = Squares::default();
        for first in (0..panels).step_by(at_once) {
            next.resize(at_once.min(panels - first) * panel, 0);
            let (written, packed) =
                rayon::join(|| sink.write(&ready), || self.pack_chunk(first, &mut next, panel, rounding));
            written?;
            progress.advance(ready.len() as u64);
            // Summed in row order, so that the report is the same on every machine.
            for part in packed? {
                squares.add(part);
            }
            if progress.canceled() {
                return Err(Error::canceled(""));
            }
            std::mem::swap(&mut ready, &mut next);
        }
        sink.write(&ready)?;
        progress.advance(ready.len() as u64);
        Ok(squares)
    }

    fn pack_chunk(
        &self,
        first: usize,
        out: &mut [u8],
        panel: usize,
        rounding: &RoundingMethod,
    ) -> Result<Vec<Squares>> {
        out.par_chunks_exact_mut(panel)
            .enumerate()
            .map_init(PackScratch::default, |scratch, (index, out)| {
                self.rows.pack(first + index, out, rounding, scratch)
            })
            .collect()
    }
}

/// The metadata about weight types.
#[derive(Default)]
struct Report {
    counts: BTreeMap<&'static str, usize>,
    squares: Squares,
    worst: Option<(String, f64)>,
}

impl Report {
    fn add(&mut self, tensor: &Tensor<'_>, squares: Squares) {
        let name = match tensor.spec.role {
            file::StorageRole::Vector => "vector",
            file::StorageRole::Matrix => tensor.rows.target().name(),
        };
        *self.counts.entry(name).or_default() += 1;
        self.squares.add(squares);
        if squares.signal > 0.0 {
            let relative = (squares.error / squares.signal).sqrt();
            if self.worst.as_ref().is_none_or(|(_, worst)| relative > *worst) {
                self.worst = Some((tensor.spec.name.clone(), relative));
            }
        }
    }

    fn values(&self, recipe: Option<Recipe>, calibration: Option<&Calibration>) -> Map<String, Value> {
        let mut values = Map::new();
        values.insert("types".to_owned(), json!(self.counts));
        values.insert("recipe".to_owned(), recipe.map_or(Value::Null, |recipe| recipe.to_string().into()));
        if let Some((name, worst)) = &self.worst {
            let relative = (self.squares.error / self.squares.signal).sqrt();
            values.insert("relative_error".to_owned(), json!(relative));
            values.insert("worst".to_owned(), json!({"tensor": name, "relative_error": worst}));
        }
        if let Some(calibration) = calibration {
            values.insert("calibration_tokens".to_owned(), calibration.tokens().into());
            let products = self.squares.products;
            if products.signal > 0.0 {
                let relative = (products.error / products.signal).sqrt();
                values.insert("relative_output_error".to_owned(), json!(relative));
            }
        }
        values
    }
}

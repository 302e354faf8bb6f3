//! The models that `siskin serve` opens: those of the command line, and those of `--models-dir`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Args;
use super::model_arg::ServedModelArg;
use crate::options::{OpenArgs, SamplerArgs};
use siskin::serving::{Admission, DiskCacheOptions, SchedulingOptions, ServedModelOptions};
use siskin::{Error, KvBudget, Model, Result};
use siskin_serve::{DriftBaseline, ModelRepository, ServedModel};

/// How long a request stays whose client does not read.
const PAUSE_LIMIT: Duration = Duration::from_secs(30);

/// How many rows of a pass can have logits: prompts are scored in chunks of this size.
const OUTPUT_ROWS: usize = 64;

/// The extensions of files with models. Of two files of the same name, the first one is the source of the other.
const EXTENSIONS: [&str; 3] = ["gguf", "onnx", "siskin"];

/// Opens the models of the command line, and those of a folder.
pub(super) struct FileRepository {
    served: Vec<ServedModelArg>,
    args: Args,
    open: OpenArgs,
    baselines: Vec<(String, DriftBaseline)>,
}

impl FileRepository {
    pub(super) fn new(served: &[ServedModelArg], args: &Args, open: &OpenArgs) -> Result<Self> {
        let baselines = drift_baselines(args, served)?;
        let repository = Self { served: served.to_vec(), args: args.clone(), open: open.clone(), baselines };
        // A folder that is missing is reported now.
        repository.in_folder()?;
        Ok(repository)
    }

    /// Opens a model with the options of the command line.
    pub(super) fn open_arg(&self, arg: &ServedModelArg) -> Result<ServedModel> {
        let Self { args, open, .. } = self;
        let model = open.model_with_adapters(&arg.path, &args.model_args, &args.lora)?;
        let mut served = ServedModel::new(&arg.name, model);
        let draft = args.draft.open(&arg.path, &args.model_args, open)?;
        served.options = served_model_options(args, draft)?;
        served.version = arg.version.clone().unwrap_or(served.version);
        let baseline = self.baselines.iter().find(|(of, _)| *of == arg.name);
        served.drift_baseline = baseline.map(|(_, read)| read.clone());
        Ok(served)
    }

    /// Returns the models of the folder, by name.
    fn in_folder(&self) -> Result<BTreeMap<String, ServedModelArg>> {
        let Some(folder) = &self.args.models_dir else { return Ok(BTreeMap::new()) };
        let mut models = BTreeMap::new();
        for path in entries(folder)? {
            let path = match path.is_dir() {
                // Folders that cannot be read, such as `lost+found`, are left out.
                true => model_in(&path).unwrap_or_default(),
                false => Some(path).filter(|path| is_model(path)),
            };
            // Names that no request can select are left out.
            let arg = path.and_then(|path| ServedModelArg::of_path(path).ok());
            if let Some(arg) = arg {
                models.entry(arg.name.clone()).or_insert(arg);
            }
        }
        Ok(models)
    }
}

impl ModelRepository for FileRepository {
    fn names(&self) -> Result<Vec<String>> {
        let in_folder = self.in_folder()?.into_keys();
        Ok(self.served.iter().map(|arg| arg.name.clone()).chain(in_folder).collect())
    }

    fn open(&self, name: &str) -> Result<ServedModel> {
        let given = self.served.iter().find(|arg| arg.name == name).cloned();
        let arg = match given {
            Some(arg) => arg,
            None => self.in_folder()?.remove(name).ok_or_else(|| Error::argument(name, "no such model"))?,
        };
        self.open_arg(&arg)
    }
}

impl fmt::Debug for FileRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRepository").field("served", &self.served).finish_non_exhaustive()
    }
}

/// Returns what is in a folder, in the order of the names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| Error::io(folder.display().to_string(), &error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the model of a folder: itself, as training frameworks save models, or else its highest version.
fn model_in(folder: &Path) -> Result<Option<PathBuf>> {
    if folder.join("config.json").exists() {
        return Ok(Some(folder.to_owned()));
    }
    let version = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let versions =
        entries(folder)?.into_iter().filter(|path| is_model(path) || path.join("config.json").exists());
    // Of two files of the same version, the first one.
    Ok(versions
        .rev()
        .filter_map(|path| Some((version(&path)?, path)))
        .max_by_key(|(version, _)| *version)
        .map(|(_, path)| path))
}

fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// Reads the files of --drift-baseline, with the names of their models.
fn drift_baselines(args: &Args, served: &[ServedModelArg]) -> Result<Vec<(String, DriftBaseline)>> {
    let read = |text: &String| {
        let is_model = |name: &str| served.iter().any(|model| model.name == name);
        match (text.split_once('=').filter(|(name, _)| is_model(name)), served) {
            (Some((name, path)), _) => Ok((name.to_owned(), DriftBaseline::read(path)?)),
            (None, [model]) => Ok((model.name.clone(), DriftBaseline::read(text)?)),
            (None, _) => Err(Error::argument(
                "--drift-baseline",
                "expected NAME=FILE, with the name of a served model",
            )),
        }
    };
    args.drift_baseline.iter().map(read).collect()
}

fn served_model_options(args: &Args, draft: Option<Model>) -> Result<ServedModelOptions> {
    if args.parallel == 0 {
        return Err(Error::argument("--parallel", "must be at least 1"));
    }
    let kv_budget = args.kv_memory.map(|megabytes| KvBudget { bytes: megabytes.saturating_mul(1 << 20) });
    Ok(ServedModelOptions {
        session: args.context.session(&args.model_args, &SamplerArgs::default(), &[])?,
        kv_budget,
        output_rows: OUTPUT_ROWS,
        draft,
        disk_cache: args.prefix_cache_dir.clone().map(|folder| DiskCacheOptions {
            folder,
            max_bytes: args.prefix_cache_size.saturating_mul(1 << 20),
        }),
        scheduling: SchedulingOptions {
            max_running: args.parallel,
            max_waiting: args.max_waiting,
            max_sessions: 0,
            admission: Admission::Overcommit,
            decode_budget: Duration::from_millis(args.decode_budget),
            pause_limit: PAUSE_LIMIT,
            ..SchedulingOptions::default()
        },
    })
}

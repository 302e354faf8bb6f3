//! Arguments shared by several commands, and the models they open.

use crate::device::{DeviceArg, DeviceParser};
use crate::lora::LoraArg;
use crate::output::{self, Bar};
use crate::{built_in_model, input_path};
use siskin::file::File;
use siskin::governor::ThrottleTarget;
use siskin::result_cache::{ResultCache, ResultCacheOptions};
use siskin::sample::SamplerOptions;
use siskin::{
    CacheType, CpuFeatures, Encoder, EncoderOptions, Error, LayerSet, Model, ModelOptions, Result,
    SessionOptions, StreamingWindow,
};
use siskin_convert::{AdapterSource, OpenOptions, PackedCache};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Options for opening models.
#[derive(clap::Args, Clone)]
pub(crate) struct OpenArgs {
    /// Directory for packed models, or `source` to keep each next to its source file; default ~/.cache/siskin
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "DIR|source",
        conflicts_with = "no_cache"
    )]
    cache: Option<PathBuf>,
    /// Pack the model for this run only
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) no_cache: bool,
    /// Print only the result and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// Hides the global options for packed files in the help of commands that pack no model.
#[derive(clap::Args)]
pub(crate) struct NoPackedFiles {
    #[arg(long = "cache", id = "cache", hide = true)]
    _cache: Option<PathBuf>,
    #[arg(long = "no-cache", id = "no_cache", hide = true)]
    _no_cache: bool,
}

/// Returns the files that a model, an adapter or a tokenizer at `path` is read from; all files if it is a folder.
pub(crate) fn files_of(path: &Path) -> Vec<PathBuf> {
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = inside.chain([path.to_owned()]).collect();
    // A path that cannot be opened is reported when it is.
    files.extend(siskin_convert::export::inputs_of(path).unwrap_or_default());
    files
}

impl OpenArgs {
    /// Opens a model of any format that can be packed.
    pub(crate) fn file(&self, path: &Path) -> Result<File> {
        let path = &*input_path::model(path, self.quiet)?;
        if built_in_model::is_meant(path) {
            return built_in_model::file();
        }
        self.open(&|options| siskin_convert::open_any(path, options))
    }

    fn open<T>(&self, open: &dyn Fn(&OpenOptions<'_>) -> Result<T>) -> Result<T> {
        let bar = Bar::new(self.quiet);
        open(&OpenOptions { cache: self.packed_cache(), recipe: None, progress: &bar })
    }

    fn packed_cache(&self) -> PackedCache {
        match (&self.cache, self.no_cache) {
            (Some(location), _) if location.as_os_str() == "source" => PackedCache::NextToSource,
            (Some(folder), _) => PackedCache::Folder(folder.clone()),
            (None, true) => PackedCache::Off,
            (None, false) => PackedCache::User,
        }
    }

    /// Removes what was packed from a model, and returns its size in bytes.
    pub(crate) fn remove_packed(&self, path: &Path) -> Result<u64> {
        let options = OpenOptions { cache: self.packed_cache(), ..OpenOptions::default() };
        siskin_convert::remove_packed(path, &options)
    }

    /// Opens a model of any format for inference.
    pub(crate) fn model(&self, path: &Path, args: &ModelArgs) -> Result<Model> {
        self.model_with_adapters(path, args, &[])
    }

    /// Opens a model of any format for inference, with adapters to choose from.
    pub(crate) fn model_with_adapters(
        &self,
        path: &Path,
        args: &ModelArgs,
        adapters: &[LoraArg],
    ) -> Result<Model> {
        let model_options = args.options()?;
        let path = &*input_path::model(path, self.quiet)?;
        let paths = args.adapter().into_iter().chain(adapters.iter().map(|adapter| adapter.path.as_path()));
        paths.into_iter().try_for_each(input_path::check_adapter)?;
        let choices: Vec<_> =
            adapters.iter().map(|adapter| (adapter.name.clone(), adapter.source(args.any_base))).collect();
        let model = if built_in_model::is_meant(path) {
            Self::built_in(args, &choices, &model_options)?
        } else {
            let loaded = self.open(&|options| match args.beside() {
                None if choices.is_empty() => siskin_convert::open_model(path, options, &model_options),
                None => siskin_convert::open_with_adapters(path, &choices, options, &model_options),
                Some(beside) => siskin_convert::open_adapted(path, beside, options, &model_options),
            })?;
            Model::new(loaded).map_err(|error| error.within(&path.display().to_string()))?
        };
        if let Some(target) = args.throttle {
            model
                .governor()
                .set_target(target)
                .map_err(|error| Error::argument("--throttle", error.message().to_owned()))?;
        }
        for note in model.notes() {
            output::note(self.quiet, format!("note: {}: {note}", path.display()));
        }
        MODEL_CONTEXT.store(model.config().context, Ordering::Relaxed);
        Ok(model)
    }

    /// Opens the built-in model.
    fn built_in(
        args: &ModelArgs,
        choices: &[(String, AdapterSource<'_>)],
        options: &ModelOptions,
    ) -> Result<Model> {
        let file = built_in_model::file()?;
        let Some(beside) = args.beside() else {
            let adapters = siskin_convert::open_adapters(choices, &file)?;
            return Model::with_adapters(file, &adapters, options);
        };
        let adapter = siskin_convert::open_adapter(beside, &file)?;
        Model::with_adapter(file, &adapter, options)
    }

    /// Opens a model of any format as an encoder.
    pub(crate) fn encoder(&self, path: &Path, args: &ModelArgs, options: EncoderOptions) -> Result<Encoder> {
        self.model(path, args)?.encoder(EncoderOptions { cache: args.kv, ..options })
    }
}

/// The context length of sessions if --context is 0 and the model's own is longer.
pub(crate) const DEFAULT_CONTEXT: usize = 2048;

/// The context length of the model that was opened last; 0: none.
static MODEL_CONTEXT: AtomicUsize = AtomicUsize::new(0);

/// Returns the context length of the model that was opened last, for hints.
pub(crate) fn model_context() -> Option<usize> {
    Some(MODEL_CONTEXT.load(Ordering::Relaxed)).filter(|&context| context > 0)
}

/// Options for running models.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Number of compute threads; 0 means one per performance core
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    pub(crate) threads: usize,
    /// Where the model runs
    #[arg(long, alias = "executor", value_parser = DeviceParser, default_value_t, value_name = "NAME")]
    pub(crate) device: DeviceArg,
    /// Use only these CPU features: scalar, or a list such as avx2,avx512
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpu_features: Option<Vec<String>>,
    /// Data type of the KV cache: int8, int14, f16 or f32; default f16, or f32 for f32 weights and encoders
    #[arg(long, value_name = "TYPE", value_parser = cache_type)]
    pub(crate) kv: Option<CacheType>,
    /// Skip these layers, such as 9,10, counted from 0: faster, less accurate
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    skip_layers: Vec<usize>,
    /// Apply this LoRA adapter: a file written by `siskin train`, or a PEFT folder
    #[arg(long, value_name = "PATH", group = "adapters")]
    adapter: Option<PathBuf>,
    /// Apply the adapter even if it was trained on different base weights
    #[arg(long, requires = "adapters")]
    any_base: bool,
    /// Limit the speed: `background`, a duty cycle such as 50%, or generated tokens per second such as 12/s
    #[arg(long, value_name = "LIMIT", value_parser = throttle)]
    throttle: Option<ThrottleTarget>,
}

impl ModelArgs {
    pub(crate) fn options(&self) -> Result<ModelOptions> {
        let disabled_cpu_features = self.cpu_features.as_deref().map_or(Ok(CpuFeatures::NONE), all_but)?;
        let skip = LayerSet::of(&self.skip_layers).map_err(|error| error.within("--skip-layers"))?;
        let (device, backend) = (self.device.kind(), self.device.backend()?);
        Ok(ModelOptions { threads: self.threads, device, disabled_cpu_features, backend, skip })
    }

    /// Returns the same options without the adapter, for a second model.
    pub(crate) fn alone(&self) -> Self {
        Self { adapter: None, any_base: false, ..self.clone() }
    }

    /// Returns the same options for a draft model, which has layers of its own.
    pub(crate) fn for_draft_model(&self) -> Self {
        Self { skip_layers: Vec::new(), ..self.alone() }
    }

    /// Returns the same options with further layers skipped.
    pub(crate) fn without_layers(&self, layers: &[usize]) -> Self {
        let skip_layers = [&self.skip_layers, layers].concat();
        Self { skip_layers, ..self.clone() }
    }

    /// Returns the path of the adapter.
    pub(crate) fn adapter(&self) -> Option<&Path> {
        self.adapter.as_deref()
    }

    /// Returns the adapter to apply, if one was given.
    pub(crate) fn beside(&self) -> Option<AdapterSource<'_>> {
        let path = self.adapter.as_deref()?;
        Some(AdapterSource { path, any_base: self.any_base })
    }
}

/// Parses a throttle target: `background`, a duty cycle in percent, or tokens per second.
fn throttle(text: &str) -> std::result::Result<ThrottleTarget, String> {
    let unknown = || "expected `background`, or a limit such as 50% or 12/s".to_owned();
    let number = |text: &str| text.trim().parse::<f32>().map_err(|_| unknown());
    match (text, text.strip_suffix('%'), text.strip_suffix("/s")) {
        ("background", ..) => Ok(ThrottleTarget::Background),
        (_, Some(percent), _) => match number(percent)? {
            percent if percent > 0.0 && percent <= 100.0 => Ok(ThrottleTarget::DutyCycle(percent / 100.0)),
            _ => Err("expected a duty cycle above 0% and at most 100%".to_owned()),
        },
        (_, _, Some(rate)) => Ok(ThrottleTarget::TokensPerSecond(number(rate)?)),
        _ => Err(unknown()),
    }
}

/// Parses the data type of a KV cache.
pub(crate) fn cache_type(name: &str) -> std::result::Result<CacheType, String> {
    named(CacheType::NAMES)(name).map_err(|error| match name {
        "q8_0" | "q8" | "i8" => format!("{error}; did you mean `int8`?"),
        _ => error,
    })
}

/// Returns a parser for values that have a name.
pub(crate) fn named<T: Copy + Send + Sync>(
    names: &'static [(T, &'static str)],
) -> impl Fn(&str) -> std::result::Result<T, String> + Clone + Send + Sync {
    move |name| {
        let known = names.iter().find(|(_, known)| *known == name);
        known.map(|(thing, _)| *thing).ok_or_else(|| {
            let names: Vec<_> = names.iter().map(|(_, name)| *name).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// Returns every CPU feature that is not in `names`.
fn all_but(names: &[String]) -> Result<CpuFeatures> {
    let mut kept = CpuFeatures::NONE;
    for name in names.iter().filter(|name| *name != "scalar") {
        let known = || CpuFeatures::NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        kept = kept.with(CpuFeatures::named(name).ok_or_else(|| {
            Error::argument(
                "--cpu-features",
                format!("unknown CPU feature `{name}`; expected one of: scalar, {}", known()),
            )
        })?);
    }
    kept = kept.complete();
    let masked = CpuFeatures::NAMES.iter().filter(|(feature, _)| !kept.contains(*feature));
    Ok(masked.fold(CpuFeatures::NONE, |masked, (feature, _)| masked.with(*feature)))
}

/// Sampling options.
#[derive(clap::Args, serde::Deserialize, serde::Serialize, Clone, Default, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplerArgs {
    /// Random seed; default: random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Temperature; 0 means greedy decoding [default: 0.8]
    #[arg(long, value_name = "VALUE")]
    temperature: Option<f32>,
    /// Always choose the most likely token
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Top-k sampling: keep the N most likely tokens; 0 disables it [default: 40]
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Top-p sampling: keep the smallest set of most likely tokens whose cumulative probability reaches this; 1
    /// disables it [default: 0.95]
    #[arg(long, value_name = "VALUE")]
    top_p: Option<f32>,
    /// Min-p sampling: keep tokens with at least this fraction of the top probability; 0 disables it [default:
    /// 0.05]
    #[arg(long, value_name = "VALUE")]
    min_p: Option<f32>,
    /// Locally typical sampling: keep the tokens whose surprisal is closest to the entropy, up to this cumulative
    /// probability; 1 disables it [default: 1]
    #[arg(long, value_name = "VALUE")]
    typical_p: Option<f32>,
    /// Repetition penalty: penalty factor for tokens that have already occurred; 1 disables it [default: 1]
    #[arg(long, value_name = "VALUE")]
    repeat_penalty: Option<f32>,
    /// Number of most recent tokens that the penalties consider [default: 64]
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<usize>,
    /// Frequency penalty: subtracted from a token's logit for each occurrence; 0 disables it [default: 0]
    #[arg(long, value_name = "VALUE")]
    frequency_penalty: Option<f32>,
    /// Presence penalty: subtracted once from the logit of a token that has occurred; 0 disables it [default: 0]
    #[arg(long, value_name = "VALUE")]
    presence_penalty: Option<f32>,
    /// DRY: multiplier of the penalty for continuing a repetition; 0 disables it [default: 0]
    #[arg(long, value_name = "VALUE")]
    dry_multiplier: Option<f32>,
    /// DRY: base of the exponentially growing penalty [default: 1.75]
    #[arg(long, value_name = "VALUE")]
    dry_base: Option<f32>,
    /// DRY: length up to which repetitions are not penalized [default: 2]
    #[arg(long, value_name = "N")]
    dry_allowed_length: Option<usize>,
    /// DRY: sequence breaker, a string that ends a repeated sequence; `none` for no breakers. May be given several
    /// times [default: newline, colon, double quote, asterisk]
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Option<Vec<String>>,
    /// XTC: probability of excluding top choices; 0 disables it [default: 0]
    #[arg(long, value_name = "VALUE")]
    xtc_probability: Option<f32>,
    /// XTC: minimum probability of a top choice [default: 0.1]
    #[arg(long, value_name = "VALUE")]
    xtc_threshold: Option<f32>,
    /// Mirostat 2: target surprisal (tau) in bits [default: 5]
    #[arg(long, value_name = "VALUE")]
    mirostat_tau: Option<f32>,
    /// Mirostat 2: learning rate (eta) [default: 0.1]
    #[arg(long, value_name = "VALUE")]
    mirostat_eta: Option<f32>,
    /// Add a bias to a token's logit; -inf forbids the token. May be given several times
    #[arg(long, value_name = "ID=VALUE", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
}

/// Parses a logit bias, `ID=VALUE`.
pub(crate) fn parse_bias(text: &str) -> std::result::Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, value)| Some((id.parse().ok()?, value.parse().ok()?)));
    parsed.ok_or_else(|| "expected ID=VALUE, such as 42=-1.5".to_owned())
}

impl SamplerArgs {
    pub(crate) fn options(&self) -> Result<SamplerOptions> {
        let usual = SamplerOptions::default();
        let options = SamplerOptions {
            seed: self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            temperature: if self.greedy { 0.0 } else { self.temperature.unwrap_or(usual.temperature) },
            top_k: self.top_k.unwrap_or(usual.top_k),
            top_p: self.top_p.unwrap_or(usual.top_p),
            min_p: self.min_p.unwrap_or(usual.min_p),
            typical_p: self.typical_p.unwrap_or(usual.typical_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(usual.repetition_penalty),
            penalty_last_n: self.repeat_last_n.unwrap_or(usual.penalty_last_n),
            frequency_penalty: self.frequency_penalty.unwrap_or(usual.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(usual.presence_penalty),
            dry_multiplier: self.dry_multiplier.unwrap_or(usual.dry_multiplier),
            dry_base: self.dry_base.unwrap_or(usual.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(usual.dry_allowed_length),
            xtc_probability: self.xtc_probability.unwrap_or(usual.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(usual.xtc_threshold),
            mirostat: self.mirostat_tau.is_some() || self.mirostat_eta.is_some(),
            mirostat_tau: self.mirostat_tau.unwrap_or(usual.mirostat_tau),
            mirostat_eta: self.mirostat_eta.unwrap_or(usual.mirostat_eta),
            logit_bias: self.logit_bias.clone(),
            ..usual
        };
        options.validate()?;
        Ok(options)
    }

    /// Adds a logit bias.
    pub(crate) fn add_bias(&mut self, bias: (u32, f32)) {
        self.logit_bias.push(bias);
    }

    /// Replaces the logit biases by those of `other`.
    pub(crate) fn copy_biases(&mut self, other: &Self) {
        self.logit_bias.clone_from(&other.logit_bias);
    }

    /// Returns true for greedy sampling.
    pub(crate) fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Returns true if tokens are drawn at random.
    pub(crate) fn draws(&self) -> bool {
        !self.greedy && self.temperature != Some(0.0)
    }

    /// Returns true if a seed was given.
    pub(crate) fn has_seed(&self) -> bool {
        self.seed.is_some()
    }

    /// Returns true if any sampling option was given.
    pub(crate) fn has_sampling_options(&self) -> bool {
        *self != Self { greedy: self.greedy, ..Self::default() }
    }

    /// Returns the DRY sequence breakers, if any were given.
    pub(crate) fn dry_breakers(&self) -> Option<Vec<String>> {
        let given = self.dry_sequence_breaker.clone()?;
        Some(given.into_iter().filter(|text| text != "none").collect())
    }
}

/// Result cache options.
#[derive(clap::Args)]
#[command(next_help_heading = "Result cache")]
pub(crate) struct ResultCacheArgs {
    /// Cache results in this file: look them up before computing, and add computed ones
    #[arg(long, value_name = "FILE")]
    pub(crate) result_cache: Option<PathBuf>,
    /// Maximum size of the result cache; the least recently used results are evicted first
    #[arg(long, default_value_t = 64, value_name = "MB", requires = "result_cache")]
    result_cache_size: usize,
    /// Time to live of a cached result; default: unlimited
    #[arg(long, value_name = "HOURS", requires = "result_cache")]
    result_cache_ttl: Option<u32>,
}

impl ResultCacheArgs {
    /// Opens the result cache, if one was given.
    pub(crate) fn open(&self) -> Result<Option<ResultCache>> {
        let Some(path) = &self.result_cache else { return Ok(None) };
        let life = self.result_cache_ttl.map(|hours| Duration::from_secs(3600 * u64::from(hours)));
        if self.result_cache_size == 0 {
            let message = "must be at least 1: with 0 MB the results in the file would be lost";
            return Err(Error::argument("--result-cache-size", message));
        }
        let bytes = self.result_cache_size.saturating_mul(1 << 20);
        ResultCache::open(
            path,
            ResultCacheOptions { bytes, time_to_live: life, ..ResultCacheOptions::default() },
        )
        .map(Some)
    }

    /// Saves the result cache. A failure is only a warning: the results remain valid.
    pub(crate) fn save(&self, cache: &ResultCache) {
        if let Some(Err(error)) = self.result_cache.as_ref().map(|path| cache.save(path)) {
            output::warn(format_args!("the result cache was not written: {error}"));
        }
    }
}

/// Text generation options.
#[derive(clap::Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct TextArgs {
    #[command(flatten)]
    sampler: SamplerArgs,
    /// Stop string: end the response before this text. May be given several times
    #[arg(long, value_name = "TEXT", help_heading = "Generation")]
    stop: Vec<String>,
    /// Maximum number of tokens to generate; default: until EOS or until the context is full
    #[arg(short = 'n', long, value_name = "N", help_heading = "Generation")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    context: ContextArgs,
}

/// Context options.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Context length in tokens; 0 means the model's context length, capped at 2048 (1024 for encoder-decoder models)
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    pub(crate) context: usize,
    /// Sliding window: attend only to the N newest tokens and the attention sinks; bounds KV cache memory
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// With --window, the number of initial tokens that are never evicted (StreamingLLM)
    #[arg(long, default_value_t = 4, value_name = "N", requires = "window")]
    attention_sinks: usize,
}

impl TextArgs {
    /// Returns true if the same prompt always gets the same response.
    pub(crate) fn repeats(&self) -> bool {
        self.sampler.has_seed() || !self.sampler.draws()
    }

    pub(crate) fn sampler(&self) -> &SamplerArgs {
        &self.sampler
    }

    pub(crate) fn stop(&self) -> &[String] {
        &self.stop
    }

    pub(crate) fn context(&self) -> &ContextArgs {
        &self.context
    }

    pub(crate) fn session(&self, model: &ModelArgs) -> Result<SessionOptions> {
        self.context.session(model, &self.sampler, &self.stop)
    }
}

impl ContextArgs {
    /// Returns the options of a session that samples with `sampler`.
    pub(crate) fn session(
        &self,
        model: &ModelArgs,
        sampler: &SamplerArgs,
        stop: &[String],
    ) -> Result<SessionOptions> {
        let usual = SessionOptions::default();
        Ok(SessionOptions {
            context: self.context,
            window: self.window.map(|recent| StreamingWindow { window: recent, sinks: self.attention_sinks }),
            cache: model.kv,
            sampler: sampler.options()?,
            stop: stop.to_vec(),
            dry_breakers: sampler.dry_breakers().unwrap_or_else(|| usual.dry_breakers.clone()),
            ..usual
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin::ErrorKind;

    fn masked(list: &str) -> Result<String> {
        all_but(&list.split(',').map(str::to_owned).collect::<Vec<_>>()).map(|masked| masked.to_string())
    }

    #[test]
    fn features_not_named_are_masked() {
        assert_eq!(masked("scalar").unwrap(), "avx2+avxvnni+avx512+amx+neon+dotprod+i8mm");
        assert_eq!(masked("avx2").unwrap(), "avxvnni+avx512+amx+neon+dotprod+i8mm");
        assert_eq!(masked("avx512").unwrap(), "avxvnni+amx+neon+dotprod+i8mm");
        assert_eq!(masked("i8mm").unwrap(), "avx2+avxvnni+avx512+amx");
        assert_eq!(masked("sse9").unwrap_err().kind(), ErrorKind::Argument);
    }

    #[test]
    fn names_stand_for_what_has_them() {
        let kv = named(CacheType::NAMES);
        assert_eq!(kv("f16"), Ok(CacheType::F16));
        assert_eq!(kv("f15"), Err("expected one of int8, int14, f16, f32".to_owned()));
    }

    #[test]
    fn duty_cycles_are_percentages() {
        assert_eq!(throttle("50%"), Ok(ThrottleTarget::DutyCycle(0.5)));
        for wrong in ["200%", "0%", "-5%", "NaN%"] {
            assert!(throttle(wrong).unwrap_err().contains("at most 100%"), "{wrong}");
        }
    }

    #[test]
    fn biases_are_pairs() {
        assert_eq!(parse_bias("7=-1.5"), Ok((7, -1.5)));
        assert_eq!(parse_bias("7=-inf"), Ok((7, f32::NEG_INFINITY)));
        assert!(parse_bias("7").is_err() && parse_bias("x=1").is_err() && parse_bias("7=").is_err());
    }
}

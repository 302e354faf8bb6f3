//! Arguments that several commands share, and what they open.

use crate::embedded;
use crate::output::{self, Bar};
use clap::ValueEnum;
use siskin::file::File;
use siskin::governor::Target;
use siskin::result_cache::{Memo, MemoOptions};
use siskin::sample::SamplerOptions;
use siskin::{
    CacheType, Encoder, EncoderOptions, Error, ExecutorKind, Features, LayerSet, Model, ModelOptions, Result,
    SessionOptions, Window,
};
use siskin_convert::{Beside, Cache, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How models are opened.
#[derive(clap::Args)]
pub(crate) struct OpenArgs {
    /// Where the packed form of GGUF files and folders is kept: a folder, or `beside` the model; else in
    /// ~/.cache/siskin
    #[arg(long, global = true, value_name = "DIR|beside", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Keep no packed form: pack again each time
    #[arg(long, global = true)]
    pub(crate) no_cache: bool,
    /// Tell nothing but the result and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl OpenArgs {
    /// Opens a model in any format that can be packed.
    pub(crate) fn file(&self, path: &Path) -> Result<File> {
        if embedded::is_meant(path) {
            return embedded::file();
        }
        self.open(&|options| siskin_convert::open_any(path, options))
    }

    fn open<T>(&self, open: &dyn Fn(&OpenOptions<'_>) -> Result<T>) -> Result<T> {
        let cache = match (&self.cache, self.no_cache) {
            (Some(place), _) if place.as_os_str() == "beside" => Cache::Beside,
            (Some(folder), _) => Cache::Folder(folder.clone()),
            (None, true) => Cache::Off,
            (None, false) => Cache::User,
        };
        let bar = Bar::new(self);
        open(&OpenOptions { cache, recipe: None, progress: &bar })
    }

    /// Opens a model in any format, to run it.
    pub(crate) fn model(&self, path: &Path, args: &ModelArgs) -> Result<Model> {
        let model_options = args.options()?;
        let model = if embedded::is_meant(path) {
            Self::embedded(args, &model_options)?
        } else {
            self.open(&|options| match args.beside() {
                None => siskin_convert::open_model(path, options, &model_options),
                Some(beside) => siskin_convert::open_adapted(path, beside, options, &model_options),
            })?
        };
        if let Some(pace) = args.pace {
            model.governor().hold(pace).map_err(|error| error.within("--pace"))?;
        }
        for note in model.notes() {
            output::note(self, format!("note: {}: {note}", path.display()));
        }
        Ok(model)
    }

    /// The model that is part of the program.
    fn embedded(args: &ModelArgs, options: &ModelOptions) -> Result<Model> {
        let file = embedded::file()?;
        let Some(beside) = args.beside() else { return Model::from_file(file, options) };
        let adapter = siskin_convert::open_adapter(beside, &file)?;
        Model::with_adapter(file, &adapter, options)
    }

    /// Opens a model in any format, to read whole texts.
    pub(crate) fn encoder(&self, path: &Path, args: &ModelArgs, options: EncoderOptions) -> Result<Encoder> {
        self.model(path, args)?.encoder(EncoderOptions { cache: args.kv, ..options })
    }
}

/// Who runs a model.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum Executor {
    /// In plain words, slowly
    Reference,
    /// With the kernels of this machine
    #[default]
    Cpu,
}

/// How models run.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct ModelArgs {
    /// Threads that compute; 0: one for each core that keeps up with the fastest
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) threads: usize,
    /// Who runs the model
    #[arg(long, value_enum, default_value_t)]
    pub(crate) executor: Executor,
    /// Use no features of the processor but these: scalar, or a list such as avx2,avx512
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpu_features: Option<Vec<String>>,
    /// The type of cached keys and values: int8, f16 or f32; where nothing is said, f16, and f32 for f32 weights and for what is seen only while a text is read
    #[arg(long, value_name = "TYPE", value_parser = named(CacheType::NAMES))]
    pub(crate) kv: Option<CacheType>,
    /// Leave out these layers, such as 9,10, counted from 0: faster, and less sure
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    skip_layers: Vec<usize>,
    /// Put this adapter beside the model's matrices: a file of `siskin train`, or a folder of PEFT
    #[arg(long, value_name = "PATH")]
    adapter: Option<PathBuf>,
    /// Take the adapter even where it was trained beside other weights
    #[arg(long, requires = "adapter")]
    any_base: bool,
    /// Compute no faster than this: `background`, a part of the time such as 50%, or written tokens a second such as 12/s
    #[arg(long, value_name = "PACE", value_parser = pace)]
    pace: Option<Target>,
}

impl ModelArgs {
    pub(crate) fn options(&self) -> Result<ModelOptions> {
        let executor = match self.executor {
            Executor::Reference => ExecutorKind::Reference,
            Executor::Cpu => ExecutorKind::Cpu,
        };
        let without = self.cpu_features.as_deref().map_or(Ok(Features::NONE), all_but)?;
        let skip = LayerSet::of(&self.skip_layers).map_err(|error| error.within("--skip-layers"))?;
        Ok(ModelOptions { threads: self.threads, executor, without, skip })
    }

    /// The same for another model than the one that the adapter belongs to.
    pub(crate) fn alone(&self) -> Self {
        Self { adapter: None, any_base: false, ..self.clone() }
    }

    /// Where the adapter is.
    pub(crate) fn adapter(&self) -> Option<&Path> {
        self.adapter.as_deref()
    }

    /// The adapter that is asked for.
    pub(crate) fn beside(&self) -> Option<Beside<'_>> {
        let path = self.adapter.as_deref()?;
        Some(Beside { path, any_base: self.any_base })
    }
}

/// A pace: a word, a part of the time, or a rate.
fn pace(text: &str) -> std::result::Result<Target, String> {
    let unknown = || "is neither `background`, nor like 50% or 12/s".to_owned();
    let number = |text: &str| text.trim().parse::<f32>().map_err(|_| unknown());
    match (text, text.strip_suffix('%'), text.strip_suffix("/s")) {
        ("background", ..) => Ok(Target::Background),
        (_, Some(part), _) => Ok(Target::DutyCycle(number(part)? / 100.0)),
        (_, _, Some(rate)) => Ok(Target::TokensPerSecond(number(rate)?)),
        _ => Err(unknown()),
    }
}

/// A parser for what has a name.
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

/// Every feature that is not among `names`.
fn all_but(names: &[String]) -> Result<Features> {
    let mut kept = Features::NONE;
    for name in names.iter().filter(|name| *name != "scalar") {
        let known = || Features::NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        kept = kept.with(Features::named(name).ok_or_else(|| {
            Error::argument(
                "--cpu-features",
                format!("unknown CPU feature `{name}`; expected one of: scalar, {}", known()),
            )
        })?);
    }
    kept = kept.complete();
    let masked = Features::NAMES.iter().filter(|(feature, _)| !kept.contains(*feature));
    Ok(masked.fold(Features::NONE, |masked, (feature, _)| masked.with(*feature)))
}

/// How tokens are chosen.
#[derive(clap::Args, serde::Deserialize, Clone, Default, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplerArgs {
    /// Where the random numbers start; without it, somewhere else each time
    #[arg(long)]
    seed: Option<u64>,
    /// What logits are divided by; 0 is --greedy [default: 0.8]
    #[arg(long, value_name = "VALUE")]
    temperature: Option<f32>,
    /// Always take the most likely token
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Keep so many of the likeliest tokens; 0 is off [default: 40]
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Keep the likeliest tokens that hold this share; 1 is off [default: 0.95]
    #[arg(long, value_name = "VALUE")]
    top_p: Option<f32>,
    /// Keep tokens this many times as likely as the likeliest; 0 is off [default: 0.05]
    #[arg(long, value_name = "VALUE")]
    min_p: Option<f32>,
    /// Keep the tokens nearest to the expected surprise that hold this share; 1 is off [default: 1]
    #[arg(long, value_name = "VALUE")]
    typical: Option<f32>,
    /// What the logits of repeated tokens are divided by; 1 is off [default: 1]
    #[arg(long, value_name = "VALUE")]
    repeat_penalty: Option<f32>,
    /// How many tokens the penalties look back on [default: 64]
    #[arg(long, value_name = "N")]
    repeat_last: Option<usize>,
    /// Taken from a token's logit for every time it was there; 0 is off [default: 0]
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Taken from a token's logit when it was there; 0 is off [default: 0]
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// The size of the penalty for continuing a repetition; 0 is off [default: 0]
    #[arg(long, value_name = "VALUE")]
    dry_multiplier: Option<f32>,
    /// How much that penalty grows with each further token [default: 1.75]
    #[arg(long, value_name = "VALUE")]
    dry_base: Option<f32>,
    /// The length up to which repetitions stay unpunished [default: 2]
    #[arg(long, value_name = "N")]
    dry_allowed_length: Option<usize>,
    /// No repetition reaches across this text; `none` for none. May be given several times [default: line break,
    /// colon, quote, star]
    #[arg(long, value_name = "TEXT")]
    dry_breaker: Option<Vec<String>>,
    /// How often top choices are excluded; 0 is off [default: 0]
    #[arg(long, value_name = "VALUE")]
    xtc_probability: Option<f32>,
    /// The probability from which a token is a top choice [default: 0.1]
    #[arg(long, value_name = "VALUE")]
    xtc_threshold: Option<f32>,
    /// Use Mirostat 2 with this target surprise in bits [default: 5]
    #[arg(long, value_name = "VALUE")]
    mirostat_tau: Option<f32>,
    /// Use Mirostat 2 with this speed [default: 0.1]
    #[arg(long, value_name = "VALUE")]
    mirostat_eta: Option<f32>,
    /// Add to a token's logit; -inf forbids the token. May be given several times
    #[arg(long, value_name = "ID=VALUE", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
}

fn bias(text: &str) -> std::result::Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, value)| Some((id.parse().ok()?, value.parse().ok()?)));
    parsed.ok_or_else(|| "give ID=VALUE, such as 42=-1.5".to_owned())
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
            typical_p: self.typical.unwrap_or(usual.typical_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(usual.repetition_penalty),
            penalty_last_n: self.repeat_last.unwrap_or(usual.penalty_last_n),
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

    /// Whether the likeliest token is asked for each time.
    pub(crate) fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Whether tokens are chosen by chance.
    pub(crate) fn draws(&self) -> bool {
        !self.greedy && self.temperature != Some(0.0)
    }

    /// Whether it is said where random numbers start.
    pub(crate) fn has_seed(&self) -> bool {
        self.seed.is_some()
    }

    /// Whether anything is asked for that has to do with chance.
    pub(crate) fn asks(&self) -> bool {
        *self != Self { greedy: self.greedy, ..Self::default() }
    }

    /// The texts that no repetition reaches across, where any are given.
    pub(crate) fn dry_breakers(&self) -> Option<Vec<String>> {
        let given = self.dry_breaker.clone()?;
        Some(given.into_iter().filter(|text| text != "none").collect())
    }
}

/// Where results are remembered.
#[derive(clap::Args)]
#[command(next_help_heading = "Memory of results")]
pub(crate) struct MemoArgs {
    /// Look for results in this file before computing them, and add those that were computed
    #[arg(long, value_name = "FILE")]
    pub(crate) memo: Option<PathBuf>,
    /// The most megabytes that it holds; what was not used for the longest time goes first
    #[arg(long, default_value_t = 64, value_name = "N", requires = "memo")]
    memo_size: usize,
    /// For how many hours a result is good; without it, for ever
    #[arg(long, value_name = "HOURS", requires = "memo")]
    memo_life: Option<u32>,
}

impl MemoArgs {
    /// The memo, where one is asked for.
    pub(crate) fn open(&self) -> Result<Option<Memo>> {
        let Some(path) = &self.memo else { return Ok(None) };
        let life = self.memo_life.map(|hours| Duration::from_secs(3600 * u64::from(hours)));
        if self.memo_size == 0 {
            let message = "nothing can be kept in 0 MB, and what the file holds would go; give at least 1";
            return Err(Error::argument("--memo-size", message));
        }
        let bytes = self.memo_size.saturating_mul(1 << 20);
        Memo::open(path, MemoOptions { bytes, life, ..MemoOptions::default() }).map(Some)
    }

    /// Writes it back. Where that fails, the results stand all the same: it is told, and nothing more.
    pub(crate) fn save(&self, memo: &Memo) {
        if let Some(Err(error)) = self.memo.as_ref().map(|path| memo.save(path)) {
            output::warn(format_args!("results are not remembered: {error}"));
        }
    }
}

/// How a text is generated.
#[derive(clap::Args)]
pub(crate) struct TextArgs {
    #[command(flatten)]
    sampler: SamplerArgs,
    /// End the answer before this text. May be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// The most tokens of an answer; without it, until the model ends or the context is full
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    context: ContextArgs,
}

/// How much a session remembers.
#[derive(clap::Args)]
pub(crate) struct ContextArgs {
    /// The most tokens of all; 0: the model's own, but no more than 2048, or 1024 where texts are written for texts
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) context: usize,
    /// Let tokens see no more than so many of the newest, and the first; memory for keys is bounded by these
    #[arg(long, value_name = "N")]
    recent: Option<usize>,
    /// How many of the first tokens stay in sight with `--recent`
    #[arg(long, default_value_t = 4, value_name = "N", requires = "recent")]
    keep_first: usize,
}

impl TextArgs {
    /// Whether the same prompt gets the same answer each time.
    pub(crate) fn repeats(&self) -> bool {
        self.sampler.has_seed() || !self.sampler.draws()
    }

    pub(crate) fn session(&self, model: &ModelArgs) -> Result<SessionOptions> {
        self.context.session(model, &self.sampler, &self.stop)
    }
}

impl ContextArgs {
    /// A session whose tokens are chosen as `sampler` says.
    pub(crate) fn session(
        &self,
        model: &ModelArgs,
        sampler: &SamplerArgs,
        stop: &[String],
    ) -> Result<SessionOptions> {
        let usual = SessionOptions::default();
        Ok(SessionOptions {
            context: self.context,
            window: self.recent.map(|recent| Window { recent, first: self.keep_first }),
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
        assert_eq!(kv("f15"), Err("expected one of int8, f16, f32".to_owned()));
    }

    #[test]
    fn biases_are_pairs() {
        assert_eq!(bias("7=-1.5"), Ok((7, -1.5)));
        assert_eq!(bias("7=-inf"), Ok((7, f32::NEG_INFINITY)));
        assert!(bias("7").is_err() && bias("x=1").is_err() && bias("7=").is_err());
    }
}

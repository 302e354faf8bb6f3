//! RoPE scaling: the frequencies of a configuration, unscaled or with linear, dynamic NTK, llama3, YaRN
//! (arXiv:2309.00071) or LongRoPE (arXiv:2402.13753) scaling.

use super::rope_config::{RopeConfig, object_of};
use super::{ConfigReader, ModelConfig};
use crate::{RopeScaling, RopeScalingMethod, RopeTable};
use siskin_format::{Error, Result};

/// Rejects RoPE parameters that are not an object, whose keys would be silently ignored.
fn check_objects(config: &ConfigReader) -> Result<()> {
    for key in ["rope_parameters", "rope_scaling"] {
        config.entries(key)?;
    }
    Ok(())
}

/// Returns how many columns of each head are rotated.
pub(super) fn rotary_size(config: &ConfigReader, model_config: &ModelConfig) -> Result<usize> {
    let fraction =
        config.number(&["rope_parameters/partial_rotary_factor", "partial_rotary_factor", "rotary_pct"])?;
    let size = match (config.count(&["rope.dimension_count", "rotary_dim"])?, fraction) {
        (Some(count), _) => count,
        (None, Some(fraction)) => {
            // A fraction with few digits truncates as in Transformers. One with many digits is a column count divided
            // by the head size, which may have been rounded down by one unit in the last digit.
            let few = (fraction * 1e6).round() / 1e6 == fraction;
            let columns = model_config.head_size as f64 * fraction;
            (if few { columns } else { columns + 1e-6 }) as usize
        }
        (None, None) => model_config.head_size,
    };
    if size > model_config.head_size || size % 2 != 0 || size == 0 {
        return Err(Error::corrupt(
            "config (rotary size)",
            format!("{size} is not an even number up to the head size {}", model_config.head_size),
        ));
    }
    Ok(size)
}

/// Returns the base of the frequencies of a kind of layers.
fn theta(config: &ConfigReader, object: &str, default: f64) -> Result<f64> {
    let theta = config.number(&[
        &format!("{object}/rope_theta"),
        "rope_theta",
        "rotary_emb_base",
        "rope.freq_base",
    ])?;
    match theta.unwrap_or(default) {
        theta if theta > 0.0 => Ok(theta),
        theta => Err(Error::corrupt("config.rope_theta", format!("{theta} is not positive"))),
    }
}

/// Reads the RoPE table that most families use on all layers.
pub(super) fn read(config: &ConfigReader, model_config: &ModelConfig) -> Result<RopeTable> {
    read_kind(config, model_config, "full_attention", 10_000.0)
}

/// Reads the RoPE table of one kind of layers (`full_attention` or `sliding_attention`).
pub(super) fn read_kind(
    config: &ConfigReader,
    model_config: &ModelConfig,
    kind: &str,
    default_theta: f64,
) -> Result<RopeTable> {
    read_with(config, model_config, kind, default_theta, true)
}

/// The same. GGUF does not say whether YaRN's correction range is truncated to integers: `whole` does.
pub(super) fn read_with(
    config: &ConfigReader,
    model_config: &ModelConfig,
    kind: &str,
    default_theta: f64,
    whole: bool,
) -> Result<RopeTable> {
    check_objects(config)?;
    let object = object_of(config, kind);
    let parameters = RopeConfig { config, object };
    let size = rotary_size(config, model_config)?;
    let theta = theta(config, object, default_theta)?;
    let plain = plain(theta, size);
    let name =
        config.word(&[&format!("{object}/rope_type"), &format!("{object}/type"), "rope.scaling.type"])?;
    // In GGUF only LongRoPE models have two lists of factors, and the scaling type may be missing.
    let unnamed = if config.get("rope.long_factor").is_some() { "longrope" } else { "default" };
    let mut rope = match name.unwrap_or(unnamed) {
        "default" | "none" => RopeTable { frequencies: narrow(&plain), magnitude: 1.0, scaling: None },
        "linear" => {
            let factor = parameters.required("factor", "rope.scaling.factor")?;
            RopeTable {
                frequencies: plain.iter().map(|f| (f / factor) as f32).collect(),
                magnitude: 1.0,
                scaling: None,
            }
        }
        "dynamic" => dynamic(&parameters, model_config, &plain, theta)?,
        "llama3" => llama3(&parameters, &plain)?,
        "yarn" => yarn(&parameters, model_config, &plain, (theta, whole))?,
        "longrope" | "su" => longrope(&parameters, model_config, &plain)?,
        other => {
            return Err(Error::unsupported(
                format!("config.{object}.rope_type"),
                format!("RoPE scaling '{other}' is not supported"),
            ));
        }
    };
    divide_by_factors(config, &mut rope)?;
    Ok(rope)
}

/// Returns theta^(−2i/size) for each pair i.
fn plain(theta: f64, size: usize) -> Vec<f64> {
    (0..size / 2).map(|i| 1.0 / libm::pow(theta, (2 * i) as f64 / size as f64)).collect()
}

fn narrow(frequencies: &[f64]) -> Vec<f32> {
    frequencies.iter().map(|&f| f as f32).collect()
}

/// GGUF stores llama3 scaling as one divisor per frequency, which the importer puts under `rope.factors`.
fn divide_by_factors(config: &ConfigReader, rope: &mut RopeTable) -> Result<()> {
    let Some(factors) = config.numbers(&["rope.factors"])? else { return Ok(()) };
    if factors.len() != rope.frequencies.len() || factors.iter().any(|&factor| factor <= 0.0) {
        return Err(Error::corrupt(
            "config.rope.factors",
            format!("expected {} positive numbers", rope.frequencies.len()),
        ));
    }
    for (frequency, factor) in rope.frequencies.iter_mut().zip(factors) {
        *frequency /= factor as f32;
    }
    Ok(())
}

/// Dynamic NTK: the base grows once the sequence is longer than the context that the model was trained for.
fn dynamic(
    parameters: &RopeConfig<'_>,
    model_config: &ModelConfig,
    plain: &[f64],
    base: f64,
) -> Result<RopeTable> {
    let factor = parameters.required("factor", "rope.scaling.factor")?;
    let keys = ["max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "context_length"];
    let length = parameters.config.count(&keys)?.unwrap_or(model_config.context);
    if plain.len() < 2 || factor < 1.0 || length == 0 {
        let message = format!(
            "dynamic NTK scaling with factor {factor}, {} pairs and {length} original positions",
            plain.len()
        );
        return Err(Error::unsupported(format!("config.{}", parameters.object), message));
    }
    let scaling = Some(RopeScaling { length, method: RopeScalingMethod::DynamicNtk { base, factor } });
    Ok(RopeTable { frequencies: narrow(plain), magnitude: 1.0, scaling })
}

fn llama3(parameters: &RopeConfig<'_>, plain: &[f64]) -> Result<RopeTable> {
    let factor = parameters.required("factor", "rope.scaling.factor")?;
    let low = parameters.required("low_freq_factor", "rope.scaling.low_freq_factor")?;
    let high = parameters.required("high_freq_factor", "rope.scaling.high_freq_factor")?;
    let original =
        parameters.required("original_max_position_embeddings", "rope.scaling.original_context_length")?;
    let frequencies = plain.iter().map(|&frequency| {
        let wavelength = std::f64::consts::TAU / frequency;
        if wavelength < original / high {
            frequency as f32
        } else if wavelength > original / low {
            (frequency / factor) as f32
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            ((1.0 - smooth) * frequency / factor + smooth * frequency) as f32
        }
    });
    Ok(RopeTable { frequencies: frequencies.collect(), magnitude: 1.0, scaling: None })
}

fn yarn(
    parameters: &RopeConfig<'_>,
    model_config: &ModelConfig,
    plain: &[f64],
    (theta, whole): (f64, bool),
) -> Result<RopeTable> {
    let original = parameters
        .number("original_max_position_embeddings", "rope.scaling.original_context_length")?
        .unwrap_or(model_config.context as f64);
    let factor = match parameters.number("factor", "rope.scaling.factor")? {
        None if original > 0.0 => model_config.context as f64 / original,
        _ => parameters.required("factor", "rope.scaling.factor")?,
    };
    let fast = parameters.number("beta_fast", "rope.scaling.yarn_beta_fast")?.unwrap_or(32.0);
    let slow = parameters.number("beta_slow", "rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
    let size = (plain.len() * 2) as f64;
    let boundary = |rotations: f64| {
        size * libm::log(original / (rotations * std::f64::consts::TAU)) / (2.0 * libm::log(theta))
    };
    let truncate = parameters.config.flag(&[&format!("{}/truncate", parameters.object)])?;
    let whole = truncate.unwrap_or(whole || parameters.config.get(parameters.object).is_some());
    let (mut low, mut high) = (boundary(fast), boundary(slow));
    if whole {
        (low, high) = (libm::floor(low), libm::ceil(high));
    }
    let (low, high) = (low.max(0.0), high.min(size - 1.0));
    let span = if high > low { high - low } else { 0.001 };
    let frequencies = plain.iter().enumerate().map(|(i, &frequency)| {
        let stretched = ((i as f64 - low) / span).clamp(0.0, 1.0);
        (frequency / factor * stretched + frequency * (1.0 - stretched)) as f32
    });
    let usual = |times: f64| if factor <= 1.0 { 1.0 } else { 0.1 * times * libm::log(factor) + 1.0 };
    let mscale = |key: &str| parameters.number(key, key).map(|number| number.filter(|&number| number != 0.0));
    let magnitude =
        match (parameters.number("attention_factor", "rope.scaling.attn_factor")?, mscale("mscale")?) {
            (Some(magnitude), _) => magnitude,
            (None, Some(times)) => {
                mscale("mscale_all_dim")?.map_or(usual(1.0), |all| usual(times) / usual(all))
            }
            (None, None) => usual(1.0),
        };
    Ok(RopeTable { frequencies: frequencies.collect(), magnitude: magnitude as f32, scaling: None })
}

fn longrope(parameters: &RopeConfig<'_>, model_config: &ModelConfig, plain: &[f64]) -> Result<RopeTable> {
    let config = parameters.config;
    let original = config
        .number(&[
            "original_max_position_embeddings",
            &format!("{}/original_max_position_embeddings", parameters.object),
            "rope.scaling.original_context_length",
        ])?
        .unwrap_or(model_config.context as f64);
    let factor = model_config.context as f64 / original;
    let divided = |list: &str| -> Result<Vec<f32>> {
        let factors = config
            .numbers(&[&format!("{}/{list}", parameters.object), &format!("rope.{list}")])?
            .filter(|factors| factors.len() == plain.len() && factors.iter().all(|&factor| factor > 0.0))
            .ok_or_else(|| {
                let message = format!("expected {} numbers", plain.len());
                Error::corrupt(format!("config.{}.{list}", parameters.object), message)
            })?;
        Ok(plain.iter().zip(factors).map(|(frequency, factor)| (frequency / factor) as f32).collect())
    };
    // LongRoPE: short factors up to the original length; beyond it, long factors for all tokens of the sequence.
    let frequencies = divided("short_factor")?;
    let scaling = match factor > 1.0 {
        true => Some(RopeScaling {
            length: original as usize,
            method: RopeScalingMethod::LongRope(divided("long_factor")?),
        }),
        false => None,
    };
    let factor = parameters.number("factor", "rope.scaling.factor")?.unwrap_or(factor);
    let magnitude = parameters.number("attention_factor", "rope.scaling.attn_factor")?.unwrap_or_else(|| {
        if factor <= 1.0 { 1.0 } else { libm::sqrt(1.0 + libm::log(factor) / libm::log(original)) }
    });
    Ok(RopeTable { frequencies, magnitude: magnitude as f32, scaling })
}

/// Returns the unscaled frequencies of a given base.
pub(super) fn unscaled(config: &ConfigReader, model_config: &ModelConfig, theta: f64) -> Result<RopeTable> {
    Ok(RopeTable {
        frequencies: narrow(&plain(theta, rotary_size(config, model_config)?)),
        magnitude: 1.0,
        scaling: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rope_of(parameters: Value) -> RopeTable {
        let config = json!({
            "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "num_hidden_layers": 1, "vocab_size": 8,
            "max_position_embeddings": 256, "rope_parameters": parameters,
        });
        let config = ConfigReader::new(config.as_object().cloned().unwrap_or_default());
        let model_config = ModelConfig::read(&config, |width| width).unwrap();
        read(&config, &model_config).unwrap()
    }

    fn check(got: &[f32], want: [f64; 8]) {
        let close = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= 2e-6 * b;
        assert!(got.len() == 8 && got.iter().zip(&want).all(close), "{got:?}, not {want:?}");
    }

    #[test]
    fn fractions_are_cut_off_as_python_does() {
        let size = |head_size: usize, fraction: &str| {
            let text = format!(
                r#"{{"hidden_size": 1000, "num_attention_heads": 1, "head_dim": {head_size}, "num_hidden_layers": 1,
                "vocab_size": 8, "max_position_embeddings": 256, "partial_rotary_factor": {fraction}}}"#
            );
            let config = serde_json::from_str::<Value>(&text).unwrap();
            let config = ConfigReader::new(config.as_object().cloned().unwrap_or_default());
            rotary_size(&config, &ModelConfig::read(&config, |width| width).unwrap()).unwrap()
        };
        assert_eq!(size(34, "0.23529411764705882"), 8);
        assert_eq!(size(50, "0.58"), 28);
        assert_eq!(size(80, "0.4"), 32);
    }

    /// Expected values: `ROPE_INIT_FUNCTIONS` of Hugging Face transformers 5.23.
    #[test]
    fn frequencies_are_those_of_the_reference() {
        let linear = rope_of(json!({"rope_type": "linear", "rope_theta": 5000.0, "factor": 3.0}));
        check(
            &linear.frequencies,
            [
                0.333333343,
                0.114949614,
                0.0396402366,
                0.0136698894,
                0.00471404521,
                0.00162563287,
                0.000560597575,
                0.000193321423,
            ],
        );
        let llama3 = rope_of(json!({
            "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
        }));
        check(
            &llama3.frequencies,
            [
                1.0,
                0.344848841,
                0.0642094016,
                0.00512620853,
                0.00176776701,
                0.000609612325,
                0.000210224098,
                7.24955316e-05,
            ],
        );
        let long = rope_of(json!({
            "rope_type": "longrope", "rope_theta": 5000.0, "original_max_position_embeddings": 64,
            "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
        }));
        check(&long.frequencies, [0, 1, 2, 3, 4, 5, 6, 7].map(|pair| 5000_f64.powf(-f64::from(pair) / 8.0)));
        let scaling = long.scaling.unwrap();
        assert_eq!(scaling.length, 64);
        let RopeScalingMethod::LongRope(frequencies) = scaling.method else { panic!("{:?}", scaling.method) };
        check(
            &frequencies,
            [
                1.0,
                0.229899228,
                0.0594603568,
                0.0164038669,
                0.00471404521,
                0.00139339967,
                0.000420448196,
                0.000128880944,
            ],
        );
        assert!((f64::from(long.magnitude) - 1.154_700_5).abs() < 1e-6);
    }

    /// Expected values: the same.
    #[test]
    fn yarn_is_that_of_the_reference() {
        for parameters in [
            json!({"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0,
                "original_max_position_embeddings": 64}),
            json!({"rope_type": "yarn", "rope_theta": 5000.0, "original_max_position_embeddings": 64}),
        ] {
            let yarn = rope_of(parameters);
            check(
                &yarn.frequencies,
                [
                    1.0,
                    0.258636624,
                    0.0594603568,
                    0.0102524171,
                    0.00353553402,
                    0.00121922465,
                    0.000420448196,
                    0.000144991063,
                ],
            );
            assert!((f64::from(yarn.magnitude) - 1.138_629_4).abs() < 1e-6);
        }
        let yarn = rope_of(json!({
            "rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 64,
            "truncate": false, "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 1.3,
        }));
        check(
            &yarn.frequencies,
            [
                1.0,
                0.175695807,
                0.0297301784,
                0.0102524171,
                0.00353553402,
                0.00121922465,
                0.000420448196,
                0.000144991063,
            ],
        );
        assert!((f64::from(yarn.magnitude) - 0.929_523_5).abs() < 1e-6);
    }

    /// Expected values: the same, for 400 tokens.
    #[test]
    fn long_sequences_stretch_dynamic_frequencies() {
        let rope = rope_of(json!({"rope_type": "dynamic", "rope_theta": 5000.0, "factor": 4.0}));
        let scaling = rope.scaling.unwrap();
        let base = |length: usize| scaling.method.base_for(length, scaling.length, 16).unwrap();
        assert_eq!((scaling.length, base(256)), (256, 5000.0));
        let frequencies: Vec<f32> = plain(base(400), 16).iter().map(|&f| f as f32).collect();
        check(
            &frequencies,
            [
                1.0,
                0.291408718,
                0.0849190503,
                0.0247461516,
                0.00721124467,
                0.00210141973,
                0.000612372009,
                0.000178450544,
            ],
        );
    }
}

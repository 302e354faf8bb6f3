//! The options that can change during a conversation: `/set OPTION VALUE`, by the names of the command line.

use crate::options::{SamplerArgs, parse_bias};
use crate::output;
use serde_json::{Map, Value};
use siskin::{Error, Result};

/// The word that restores the default of an option.
const DEFAULT: &str = "default";

/// Options for the following responses.
#[derive(Clone)]
pub(super) struct ChatSettings {
    pub(super) sampler: SamplerArgs,
    pub(super) stop: Vec<String>,
    pub(super) max_tokens: Option<usize>,
}

/// Returns the sampling options by name.
fn sampler_fields(sampler: &SamplerArgs) -> Map<String, Value> {
    // Through text, so that f32 values keep their shortest decimal form.
    let text = serde_json::to_string(sampler).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the names of all options.
pub(super) fn names() -> Vec<String> {
    let own = ["max_tokens", "stop"].map(str::to_owned);
    sampler_fields(&SamplerArgs::default()).into_iter().map(|(name, _)| name).chain(own).collect()
}

impl ChatSettings {
    /// Returns a line for each option with its value.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        let mut fields = sampler_fields(&self.sampler);
        fields.insert("max_tokens".to_owned(), self.max_tokens.into());
        fields.insert("stop".to_owned(), self.stop.clone().into());
        let width = fields.keys().map(String::len).max().unwrap_or(0);
        let shown = |value: &Value| match value {
            Value::Null => DEFAULT.to_owned(),
            Value::Array(values) if values.is_empty() => "none".to_owned(),
            value => value.to_string(),
        };
        Ok(fields.iter().map(|(name, value)| format!("{name:<width$}  {}", shown(value))).collect())
    }

    /// Returns the settings with one of them changed. `default` restores the default; texts are added to lists.
    pub(super) fn with(&self, name: &str, value: &str) -> Result<Self> {
        let name = name.trim_start_matches('-').replace('-', "_");
        let mut settings = self.clone();
        let location = || format!("/set {name}");
        let wrong = |error: String| Error::argument(location(), error);
        if value.is_empty() && name != "greedy" && names().contains(&name) {
            return Err(wrong(format!("needs a value, or `{DEFAULT}`")));
        }
        match (name.as_str(), value) {
            ("stop", DEFAULT) => settings.stop.clear(),
            ("stop", text) => settings.stop.push(unquoted(text)),
            ("max_tokens", DEFAULT) => settings.max_tokens = None,
            ("max_tokens", number) => {
                settings.max_tokens =
                    Some(number.parse().map_err(|_| wrong("must be a whole number".to_owned()))?);
            }
            ("logit_bias", value) if value != DEFAULT => {
                settings.sampler.add_bias(parse_bias(value).map_err(wrong)?);
            }
            _ => settings.sampler = with_field(&self.sampler, &name, value)?,
        }
        settings.sampler.options().map_err(|error| error.within(&location()))?;
        Ok(settings)
    }
}

/// Returns the text inside quotes, so that spaces and escapes such as `\n` can be given.
fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

fn with_field(sampler: &SamplerArgs, name: &str, value: &str) -> Result<SamplerArgs> {
    let location = format!("/set {name}");
    let mut fields = sampler_fields(sampler);
    // JSON has no infinities, which a bias may be.
    fields.remove("logit_bias");
    let usual = sampler_fields(&SamplerArgs::default());
    let Some(usual) = usual.get(name) else {
        let names = names();
        let near = output::nearest(name, names.iter().map(String::as_str));
        let message = match near {
            Some(near) => format!("unknown option; did you mean `{near}`?"),
            None => format!("unknown option; expected one of {}", names.join(", ")),
        };
        return Err(Error::argument(location, message));
    };
    let value = match (name, value) {
        (_, DEFAULT) => usual.clone(),
        ("greedy", "") => Value::Bool(true),
        ("dry_sequence_breaker", text) => {
            let mut texts = fields["dry_sequence_breaker"].as_array().cloned().unwrap_or_default();
            texts.push(unquoted(text).into());
            texts.into()
        }
        (_, text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    };
    if name == "temperature" && !value.is_null() {
        fields.insert("greedy".to_owned(), Value::Bool(false));
    }
    fields.insert(name.to_owned(), value);
    let mut changed: SamplerArgs = serde_json::from_value(fields.into())
        .map_err(|error| Error::argument(location, error.to_string()))?;
    if name != "logit_bias" {
        changed.copy_biases(sampler);
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ChatSettings {
        ChatSettings { sampler: SamplerArgs::default(), stop: Vec::new(), max_tokens: None }
    }

    #[test]
    fn options_are_set_by_their_names() {
        let mut now = settings();
        for (name, value) in [
            ("temperature", "0.25"),
            ("--top-k", "7"),
            ("stop", "\"\\n\\n\""),
            ("max_tokens", "9"),
            ("logit_bias", "4=-inf"),
            ("seed", "3"),
        ] {
            now = now.with(name, value).unwrap();
        }
        let options = now.sampler.options().unwrap();
        assert_eq!((options.temperature, options.top_k, options.seed), (0.25, 7, 3));
        assert_eq!(options.logit_bias, [(4, f32::NEG_INFINITY)]);
        assert_eq!((now.stop.as_slice(), now.max_tokens), (&["\n\n".to_owned()][..], Some(9)));
        assert!(now.list().unwrap().iter().any(|line| line.ends_with("  0.25")));
        now = now.with("greedy", "").unwrap();
        assert_eq!(now.sampler.options().unwrap().temperature, 0.0);
        now = now.with("temperature", DEFAULT).unwrap().with("logit_bias", DEFAULT).unwrap();
        assert!(now.sampler.is_greedy() && now.sampler.options().unwrap().logit_bias.is_empty());
        now = now.with("temperature", "1").unwrap().with("stop", DEFAULT).unwrap();
        assert!(!now.sampler.is_greedy() && now.stop.is_empty());
    }

    #[test]
    fn wrong_options_name_what_is_right() {
        let message =
            |name: &str, value: &str| settings().with(name, value).map(drop).unwrap_err().to_string();
        assert!(message("temprature", "1").contains("`temperature`"));
        assert!(message("x", "1").contains("expected one of"));
        assert!(message("top_k", "many").contains("/set top_k"));
        assert!(message("top_p", "7").contains("top_p"));
        assert!(message("top_p", "").contains("needs a value"));
    }
}

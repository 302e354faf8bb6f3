//! The data fingerprint of a run: a resumed run must have the same examples in the same order.

use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

use super::config::RunConfig;
use super::setup::RunSetup;

/// Returns the data fingerprint that a checkpoint keeps.
pub(super) fn describe(config: &RunConfig, setup: &RunSetup) -> Value {
    let loader = setup.loader(config, true);
    json!({
        "records": setup.texts.fingerprint(),
        "examples": setup.training.count(),
        "batch": {
            "max_tokens": loader.max_tokens,
            "max_examples": loader.max_examples,
            "pool_size": loader.pool_size,
            "group_by_length": loader.group_by_length,
            "shuffle": loader.shuffle,
        },
    })
}

/// Refuses to resume with other data than `before`. Fields that `before` lacks are not compared.
pub(super) fn check(before: &Value, now: &Value) -> Result<()> {
    let empty = Map::new();
    let batch = |data: &Value| data.get("batch").and_then(Value::as_object).unwrap_or(&empty).clone();
    let (options, own) = (batch(before), batch(now));
    for (name, value) in &options {
        if let Some(own) = own.get(name).filter(|own| *own != value) {
            let message = format!(
                "{value} when the run began, {own} now; restore it, or start a run in a different folder"
            );
            return Err(Error::argument(format!("batch.{name}"), message));
        }
    }
    let differs = |name: &str| before.get(name).zip(now.get(name)).filter(|(before, now)| before != now);
    if differs("records").is_some() {
        let message = "differs from the texts that the run began with; use the same files, unchanged and in the \
                       same order, or start a run in a different folder";
        return Err(Error::argument("data.train", message));
    }
    if let Some((before, now)) = differs("examples") {
        let message = format!(
            "gives {now} examples, and gave {before} when the run began; restore `task` and `settings`, or start a run \
             in a different folder"
        );
        return Err(Error::argument("data", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_setting_that_differs() {
        let before = json!({"records": 7, "examples": 20, "batch": {"max_tokens": 1024, "shuffle": true}});
        assert!(check(&before, &before).is_ok());
        for old in [Value::Null, json!({}), json!({"examples": 20}), json!({"batch": {"gone": 1}})] {
            assert!(check(&old, &before).is_ok(), "{old}");
        }
        for (change, place, what) in [
            ("/batch/max_tokens", "batch.max_tokens", "1024 when the run began, 2048 now"),
            ("/batch/shuffle", "batch.shuffle", "true when the run began, 2048 now"),
            ("/records", "data.train", "differs from the texts"),
            ("/examples", "data", "gives 2048 examples, and gave 20 when the run began"),
        ] {
            let mut now = before.clone();
            if let Some(value) = now.pointer_mut(change) {
                *value = 2048.into();
            }
            let error = check(&before, &now).unwrap_err();
            assert!(error.location() == place && error.message().contains(what), "{error}");
        }
    }
}

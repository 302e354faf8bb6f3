//! The data fingerprint of a run: a resumed run must have the same examples in the same order.

use serde_json::{Map, Value, json};
use siskin::{Error, Result};

use super::config::RunConfig;
use super::setup::Material;

/// Returns the data fingerprint that a checkpoint keeps.
pub(super) fn describe(config: &RunConfig, material: &Material) -> Value {
    let loader = material.loader(config, true);
    json!({
        "records": material.texts.fingerprint(),
        "examples": material.training.count(),
        "batch": {
            "rows": loader.rows,
            "examples": loader.examples,
            "pool": loader.pool,
            "by_length": loader.by_length,
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
                "was {value} in the run before and is {own} now; set it back, or begin a run in another folder"
            );
            return Err(Error::argument(format!("batch.{name}"), message));
        }
    }
    let differs = |name: &str| before.get(name).zip(now.get(name)).filter(|(before, now)| before != now);
    if differs("records").is_some() {
        let message = "are other texts than in the run before; name the same files, unchanged and in the same \
                       order, or begin a run in another folder";
        return Err(Error::argument("data.training", message));
    }
    if let Some((before, now)) = differs("examples") {
        let message = format!(
            "the texts made {before} examples in the run before and make {now} now; set `task` and `settings` back, \
             or begin a run in another folder"
        );
        return Err(Error::argument("data", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let before = json!({"records": 7, "examples": 20, "batch": {"rows": 1024, "shuffle": true}});
        assert!(check(&before, &before).is_ok());
        for old in [Value::Null, json!({}), json!({"examples": 20}), json!({"batch": {"gone": 1}})] {
            assert!(check(&old, &before).is_ok(), "{old}");
        }
        for (change, place, what) in [
            ("/batch/rows", "batch.rows", "was 1024 in the run before and is 2048 now"),
            ("/batch/shuffle", "batch.shuffle", "was true in the run before and is 2048 now"),
            ("/records", "data.training", "other texts"),
            ("/examples", "data", "made 20 examples in the run before and make 2048 now"),
        ] {
            let mut now = before.clone();
            if let Some(value) = now.pointer_mut(change) {
                *value = 2048.into();
            }
            let error = check(&before, &now).unwrap_err();
            assert!(error.place() == place && error.message().contains(what), "{error}");
        }
    }
}

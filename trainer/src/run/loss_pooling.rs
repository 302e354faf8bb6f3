//! Pooling settings of a model, for losses over embeddings.

use serde_json::{Map, Value};
use siskin_format::{Error, Result};

use crate::settings::Settings;

/// The pooling types that have a gradient in the loss.
const POOLINGS: &[&str] = &["mean", "cls", "last"];

/// Returns the settings of a loss for a model with the hyperparameters `model`: a contrastive loss pools like the
/// model unless set otherwise.
///
/// # Errors
/// If the model's pooling has no gradient in the loss.
pub(super) fn loss(settings: &Settings, model: &Map<String, Value>) -> Result<Settings> {
    let mut settings = settings.clone();
    if settings.get("name").and_then(Value::as_str) != Some("contrastive") {
        return Ok(settings);
    }
    let own = |key: &str| model.get("sentence_transformers").and_then(|settings| settings.get(key));
    if own("dense").is_some() {
        let message =
            "a contrastive loss does not support layers after pooling; use a model without such layers";
        return Err(Error::unsupported("loss.name", message));
    }
    if let Some(pooling_mode) = own("pooling").filter(|_| !settings.contains_key("pooling")) {
        let known = POOLINGS.iter().find(|known| pooling_mode == *known).ok_or_else(|| {
            let message =
                format!("the model's {pooling_mode} pooling has no gradient; set mean, cls or last");
            Error::unsupported("loss.pooling", message)
        })?;
        settings.insert("pooling".to_owned(), (*known).into());
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn pooling(loss: Value, vectors: Value) -> std::result::Result<Option<String>, String> {
        let model = from_value(json!({ "sentence_transformers": vectors })).unwrap();
        let settings =
            super::loss(&from_value(loss).unwrap(), &model).map_err(|error| error.location().to_owned())?;
        assert!(crate::loss::named(&settings).is_ok());
        Ok(settings.get("pooling").and_then(Value::as_str).map(str::to_owned))
    }

    #[test]
    fn the_contrastive_loss_uses_the_pooling_of_the_model() {
        let contrastive = || json!({"name": "contrastive"});
        let own = |pooling_mode: &str| pooling(contrastive(), json!({"pooling": pooling_mode}));
        assert_eq!(own("last"), Ok(Some("last".to_owned())));
        assert_eq!(own("cls"), Ok(Some("cls".to_owned())));
        assert_eq!(own("weighted"), Err("loss.pooling".to_owned()));
        let explicit = json!({"name": "contrastive", "pooling": "cls"});
        assert_eq!(pooling(explicit, json!({"pooling": "weighted"})), Ok(Some("cls".to_owned())));
        assert_eq!(pooling(contrastive(), json!(null)), Ok(None));
        let dense = json!({"pooling": "mean", "dense": [{}]});
        assert_eq!(pooling(contrastive(), dense.clone()), Err("loss.name".to_owned()));
        assert_eq!(pooling(json!({"name": "cross_entropy"}), dense), Ok(None));
    }
}

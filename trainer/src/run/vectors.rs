//! Pooling settings of a model, for losses over embeddings.

use serde_json::{Map, Value};
use siskin::{Error, Result};

use crate::settings::Settings;

/// The pooling types of models, and the equivalents of the loss.
const WAYS: &[(&str, &str)] = &[("mean", "mean"), ("cls", "first"), ("last", "last")];

/// Returns the settings of a loss for a model with the hyper-parameters `model`: a contrastive loss pools like the
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
        let message = "a contrastive loss does not go through the layers that the model has behind pooling; train one \
                       without such layers";
        return Err(Error::unsupported("loss.name", message));
    }
    if let Some(way) = own("pooling").filter(|_| !settings.contains_key("pooling")) {
        let known = WAYS.iter().find(|(theirs, _)| way == theirs).map(|(_, ours)| *ours);
        let known = known.ok_or_else(|| {
            let message = format!("the model pools by {way}, which has no gradient: say mean, first or last");
            Error::unsupported("loss.pooling", message)
        })?;
        settings.insert("pooling".to_owned(), known.into());
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
            super::loss(&from_value(loss).unwrap(), &model).map_err(|error| error.place().to_owned())?;
        assert!(crate::loss::named(&settings).is_ok());
        Ok(settings.get("pooling").and_then(Value::as_str).map(str::to_owned))
    }

    #[test]
    fn a_contrastive_loss_pools_as_the_model_does() {
        let contrastive = || json!({"name": "contrastive"});
        let own = |way: &str| pooling(contrastive(), json!({"pooling": way}));
        assert_eq!(own("last"), Ok(Some("last".to_owned())));
        assert_eq!(own("cls"), Ok(Some("first".to_owned())));
        assert_eq!(own("weighted"), Err("loss.pooling".to_owned()));
        let said = json!({"name": "contrastive", "pooling": "first"});
        assert_eq!(pooling(said, json!({"pooling": "weighted"})), Ok(Some("first".to_owned())));
        assert_eq!(pooling(contrastive(), json!(null)), Ok(None));
        let dense = json!({"pooling": "mean", "dense": [{}]});
        assert_eq!(pooling(contrastive(), dense.clone()), Err("loss.name".to_owned()));
        assert_eq!(pooling(json!({"name": "cross_entropy"}), dense), Ok(None));
    }
}

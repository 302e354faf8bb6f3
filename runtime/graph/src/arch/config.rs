//! The configuration of a model as its source wrote it.
//!
//! A Hugging Face `config.json` is kept unchanged; GGUF metadata is kept under its keys without the architecture's
//! prefix (`llama.embedding_length` becomes `embedding_length`). Getters take all keys under which different sources
//! store a value.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use siskin_format::{Error, ErrorKind, Result};

/// A JSON object of hyperparameters.
#[derive(Clone, Debug, Default)]
pub struct ConfigReader {
    values: Map<String, Value>,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl PartialEq for ConfigReader {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl ConfigReader {
    /// Wraps a JSON object.
    pub fn new(values: Map<String, Value>) -> Self {
        Self { values, ..Self::default() }
    }

    /// Returns the keys that were looked up so far, in this object and its clones, whether present or not.
    pub fn read_keys(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Returns the JSON object.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns the value of a key, unless it is null. `/` descends into an object: `rope_parameters/factor`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        let direct = self.values.get(key);
        let found = direct.or_else(|| {
            let (head, tail) = key.split_once('/')?;
            tail.split('/').try_fold(self.values.get(head)?, |value, part| value.get(part))
        });
        found.filter(|value| !value.is_null())
    }

    fn first(&self, keys: &[&str]) -> Option<(&Value, String)> {
        keys.iter().find_map(|key| self.get(key).map(|value| (value, format!("config.{key}"))))
    }

    /// Returns a number, under the first key that is present.
    pub fn number(&self, keys: &[&str]) -> Result<Option<f64>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(Error::corrupt(place, format!("expected a number, found {}", short(value)))),
        }
    }

    /// Returns a count from 0 to 2^31, under the first key that is present. A list of equal counts (one per layer) is
    /// accepted as one count.
    pub fn count(&self, keys: &[&str]) -> Result<Option<usize>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        let one = match value.as_array().map(|list| list.split_first()) {
            None => value,
            Some(Some((head, tail))) if tail.iter().all(|other| other == head) => head,
            Some(_) => return Err(Error::unsupported(place, "the count differs from layer to layer")),
        };
        match one.as_f64() {
            Some(number) if (0.0..=2_147_483_648.0).contains(&number) && number.fract() == 0.0 => {
                Ok(Some(number as usize))
            }
            _ => Err(Error::corrupt(place, format!("expected a count, found {}", short(one)))),
        }
    }

    /// Returns a count that must be present and not zero.
    pub fn required(&self, keys: &[&str]) -> Result<usize> {
        let place = || format!("config.{}", keys.first().copied().unwrap_or_default());
        match self.count(keys)? {
            Some(0) => Err(Error::corrupt(place(), "must not be zero")),
            Some(count) => Ok(count),
            None => Err(Error::new(
                ErrorKind::Missing,
                place(),
                format!("missing; expected one of the keys {}", keys.join(", ")),
            )),
        }
    }

    /// Returns a boolean, under the first key that is present.
    pub fn flag(&self, keys: &[&str]) -> Result<Option<bool>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        match value.as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => Err(Error::corrupt(place, format!("expected true or false, found {}", short(value)))),
        }
    }

    /// Returns a string, under the first key that is present.
    pub fn word(&self, keys: &[&str]) -> Result<Option<&str>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        match value.as_str() {
            Some(word) => Ok(Some(word)),
            None => Err(Error::corrupt(place, format!("expected a text, found {}", short(value)))),
        }
    }

    /// Returns the number of entries of the object under a key; `None` if absent.
    pub fn entries(&self, key: &str) -> Result<Option<usize>> {
        let Some((value, place)) = self.first(&[key]) else { return Ok(None) };
        match value.as_object() {
            Some(object) => Ok(Some(object.len())),
            None => Err(Error::corrupt(place, format!("expected an object, found {}", short(value)))),
        }
    }

    /// Returns a list of numbers, under the first key that is present.
    pub fn numbers(&self, keys: &[&str]) -> Result<Option<Vec<f64>>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        let list = value.as_array().map(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        match list.flatten() {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(Error::corrupt(place, format!("expected a list of numbers, found {}", short(value)))),
        }
    }

    /// Returns the source's `architectures`; entries that are not strings are ignored.
    pub fn architectures(&self) -> Vec<&str> {
        match self.get("architectures") {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns a list of strings, under the first key that is present.
    pub fn words(&self, keys: &[&str]) -> Result<Option<Vec<&str>>> {
        let Some((value, place)) = self.first(keys) else { return Ok(None) };
        let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        match list.flatten() {
            Some(words) => Ok(Some(words)),
            None => Err(Error::corrupt(place, format!("expected a list of texts, found {}", short(value)))),
        }
    }
}

/// Returns the value as JSON text, shortened for an error message.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

//! Random initialization of the tensors that families list.

use rayon::prelude::*;
use serde_json::{Map, Value};
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, DESCRIPTORS, FamilyDescriptor, Graphs, Initialization, ModelConfig};
use siskin_graph::{Weight, WeightRole};

use crate::parameters::Parameters;
use crate::random::Random;
use crate::real::Real;
use crate::settings::{expected, unknown};

/// The name of the random stream of initial parameters.
const INITIAL_PARAMETERS: u64 = 0x6265_6769_6e00;

/// The heads of encoders that can be randomly initialized.
const HEADS: &[(&str, &[&str])] = &[
    ("masked_lm", &["tokens", "tokens_norm", "output.bias"]),
    ("sequence_classification", &["cls", "cls.output"]),
    ("token_classification", &["labels"]),
    ("question_answering", &["answer"]),
    ("none", &[]),
];

/// Returns a tensor name with `{}` for the layer index.
fn pattern(name: &str) -> String {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.split('.').map(|part| if is_number(&part) { "{}" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

/// Returns true if a family with a `head` has the tensor.
fn has(descriptor: &FamilyDescriptor, head: &[&str], name: &str) -> bool {
    let pattern = pattern(name);
    let stem = pattern.strip_suffix(".weight").or_else(|| pattern.strip_suffix(".bias"));
    let matches = |known: &str| known == pattern || Some(known) == stem;
    descriptor.initialization.tensors.iter().chain(head).any(|known| {
        matches(known)
            || ["enc", "dec"]
                .iter()
                .any(|side| known.contains("{side}") && matches(&known.replace("{side}", side)))
    })
}

/// Iterates over the families that can be randomly initialized.
fn families() -> impl Iterator<Item = &'static FamilyDescriptor> {
    DESCRIPTORS.iter().copied().filter(|descriptor| !descriptor.initialization.tensors.is_empty())
}

/// A randomly initialized model.
pub struct InitialModel {
    /// The name of its family.
    pub architecture: String,
    /// Its hyperparameters, with the names of Hugging Face's `config.json`.
    pub config: Map<String, Value>,
    /// Its graphs.
    pub graphs: Graphs,
    model_config: ModelConfig,
    initialization: Initialization,
}

/// Rejects unused hyperparameters whose name is a likely misspelling of a used one. Others are allowed: a copied
/// `config.json` contains more than a graph needs.
fn check_names(config: &Map<String, Value>, asked: &[String]) -> Result<()> {
    let known: Vec<&str> = asked.iter().map(String::as_str).collect();
    let swapped = |key: &str, other: &str| {
        let (key, other) = (key.as_bytes(), other.as_bytes());
        let different: Vec<usize> =
            (0..key.len().min(other.len())).filter(|&at| key[at] != other[at]).collect();
        key.len() == other.len()
            && matches!(different[..], [one, next] if next == one + 1 && key[one] == other[next] && key[next] == other[one])
    };
    let is_similar = |key: &str, other: &str| strsim::levenshtein(key, other) <= 1 || swapped(key, other);
    let wrong = config
        .keys()
        .find(|key| !known.contains(&key.as_str()) && known.iter().any(|other| is_similar(key, other)));
    match wrong {
        Some(key) => Err(unknown(&format!("model.config.{key}"), "hyperparameter", key, &known)),
        None => Ok(()),
    }
}

/// Returns the error of hyperparameters from a training config, which is not a model file.
fn of_hyperparameters(error: Error) -> Error {
    match error.location().starts_with("config") {
        true => Error::argument(format!("model.{}", error.location()), error.message()),
        false => error,
    }
}

/// Returns the nonzero dropout probabilities of a config.
pub(crate) fn dropout(config: &Map<String, Value>) -> impl Iterator<Item = (&String, f64)> {
    let names = |key: &str| key.contains("dropout") || key.ends_with("pdrop") || key.contains("layerdrop");
    // The dropout of GPT-2's summary head, which no graph has.
    let applies = move |key: &str| names(key) && !key.starts_with("summary_");
    let nonzero = |value: &Value| value.as_f64().filter(|value| *value != 0.0);
    config
        .iter()
        .filter(move |(key, _)| applies(key))
        .filter_map(move |(key, value)| Some((key, nonzero(value)?)))
}

/// Rejects dropout, which training does not have.
pub(crate) fn check_dropout(place: &str, config: &Map<String, Value>) -> Result<()> {
    match dropout(config).next() {
        Some((key, value)) => {
            let message = format!("training does not support dropout; set it to 0, not {value}");
            Err(Error::unsupported(format!("{place}.{key}"), message))
        }
        None => Ok(()),
    }
}

impl InitialModel {
    /// Returns the maximum number of tokens of a sequence.
    pub(crate) fn context(&self) -> usize {
        self.model_config.context
    }

    /// Builds the graphs of a family, with a head if it is an encoder.
    pub fn new(architecture: &str, head: Option<&str>, config: Map<String, Value>) -> Result<Self> {
        let descriptor =
            families().find(|descriptor| descriptor.family.name == architecture).ok_or_else(|| {
                let known: Vec<&str> = families().map(|descriptor| descriptor.family.name).collect();
                let list = expected(architecture, &known);
                let message = format!("cannot initialize model family `{architecture}` from scratch; {list}");
                Error::argument("model.family", message)
            })?;
        let head = head.unwrap_or("none");
        let (_, head) = HEADS.iter().find(|(name, _)| *name == head).ok_or_else(|| {
            let known: Vec<&str> = HEADS.iter().map(|(name, _)| *name).collect();
            unknown("model.head", "head", head, &known)
        })?;
        let asked = ConfigReader::new(config.clone());
        let build = descriptor.family.build(&asked, &|name| has(descriptor, head, name));
        let (model_config, graphs) = build.map_err(of_hyperparameters)?;
        check_names(&config, &asked.read_keys())?;
        check_dropout("model.config", &config)?;
        Ok(Self {
            architecture: architecture.to_owned(),
            config,
            graphs,
            model_config,
            initialization: descriptor.initialization,
        })
    }

    /// Returns the initial values of `weights`: norm factors one, biases zero, matrices normally distributed.
    pub fn parameters<T: Real>(&self, weights: &[Weight], seed: u64) -> Parameters<T> {
        let mut stream = 0;
        Parameters::new(weights, |weight| {
            stream += 1;
            let count = weight.rows * weight.columns;
            let is_random = self.initialization.vectors.iter().any(|part| weight.name.contains(part));
            if weight.role == WeightRole::Vector && !is_random {
                let first = if weight.name.ends_with(".bias") { T::ZERO } else { T::ONE };
                return vec![first; count];
            }
            let deviation = (self.initialization.deviation)(weight, &self.model_config);
            let random = Random::new(seed, &[INITIAL_PARAMETERS, stream]);
            normals(&random, count, deviation)
        })
    }
}

/// Returns normally distributed numbers, which are the same for any number of threads.
fn normals<T: Real>(random: &Random, count: usize, deviation: f64) -> Vec<T> {
    /// Numbers that one thread takes at a time.
    const PART: usize = 1 << 14;
    let mut numbers = vec![T::ZERO; count];
    numbers.par_chunks_mut(PART).enumerate().for_each(|(index, part)| {
        let mut random = random.after_normals((index * PART) as u64);
        part.iter_mut().for_each(|number| *number = T::of(random.normal() * deviation));
    });
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use siskin_format::ErrorKind;

    #[test]
    fn errors_for_unknown_families_and_heads_suggest_the_nearest() {
        for (family, head, place, nearest) in
            [("gpt3", None, "model.family", "gpt2"), ("bert", Some("masked_ml"), "model.head", "masked_lm")]
        {
            let error = InitialModel::new(family, head, Map::new()).err().unwrap();
            assert_eq!(error.location(), place);
            assert!(error.message().contains(&format!("did you mean `{nearest}`?")), "{error}");
        }
    }

    #[test]
    fn misspelled_hyperparameters_are_rejected() {
        let config = |key: &str| {
            let whole = json!({
                "vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 40, "n_inner": 64,
                "resid_pdrop": 0.0, "summary_type": "cls_index", "architectures": ["GPT2LMHeadModel"],
            });
            let Value::Object(mut config) = whole else { return Map::new() };
            if let Some(value) = config.remove("n_inner") {
                config.insert(key.to_owned(), value);
            }
            config
        };
        assert!(InitialModel::new("gpt2", None, config("n_inner")).is_ok());
        for wrong in ["n_iner", "n_ninner", "n_innre"] {
            let error = InitialModel::new("gpt2", None, config(wrong)).err().unwrap();
            assert_eq!(error.location(), format!("model.config.{wrong}"));
            assert!(error.message().contains("did you mean `n_inner`?"), "{error}");
        }
    }

    #[test]
    fn widths_that_heads_do_not_divide_are_rejected() {
        let sizes = json!({
            "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64,
            "max_position_embeddings": 40, "n_embd": 32, "n_layer": 1, "n_positions": 40, "d_model": 32,
            "d_ff": 64, "num_layers": 1, "type_vocab_size": 2, "num_attention_heads": 7, "n_head": 7,
            "num_heads": 7,
        });
        let Value::Object(sizes) = sizes else { return };
        for descriptor in families() {
            let name = descriptor.family.name;
            let mut config = sizes.clone();
            let error = InitialModel::new(name, None, config.clone()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Argument, "{name}: {error}");
            assert!(
                error.location().starts_with("model.config.") && error.location().contains("head"),
                "{error}"
            );
            if name == "gpt2" {
                config.remove("num_attention_heads");
                let error = InitialModel::new(name, None, config).err().unwrap();
                assert_eq!(
                    error.to_string(),
                    "model.config.n_head: the width of 32 is not a multiple of 7 heads"
                );
            }
        }
    }

    #[test]
    fn nonzero_dropout_is_rejected() {
        let config = |dropout: Value| {
            let whole = json!({
                "vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 40,
                "summary_first_dropout": 0.1, "resid_pdrop": dropout,
            });
            whole.as_object().cloned().unwrap_or_default()
        };
        for zero in [json!(0), json!(0.0), Value::Null] {
            assert_eq!(InitialModel::new("gpt2", None, config(zero)).err(), None);
        }
        let error = InitialModel::new("gpt2", None, config(json!(0.1))).err().unwrap();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Unsupported, "model.config.resid_pdrop"));
        assert!(error.message().contains("not support dropout"), "{error}");
    }

    /// A `config.json` has more keys than its graph uses, and some resemble used ones.
    #[test]
    fn unrelated_keys_of_hub_configs_are_accepted() {
        let sizes = json!({
            "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 40, "n_embd": 32, "n_layer": 1, "n_head": 4,
            "n_positions": 40, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4,
            "type_vocab_size": 2,
        });
        let other_keys = "architectures add_cross_attention attention_probs_dropout_prob attention_dropout attn_pdrop \
            bos_token_id chunk_size_feed_forward classifier_dropout decoder_start_token_id directionality \
            dropout_rate dtype embd_pdrop eos_token_id gradient_checkpointing hidden_dropout_prob id2label \
            initializer_factor initializer_range is_decoder label2id model_type n_ctx output_attentions \
            output_hidden_states output_past pad_token_id pooler_fc_size pooler_num_fc_layers \
            position_embedding_type pretraining_tp problem_type resid_pdrop return_dict sep_token_id \
            summary_first_dropout summary_type task_specific_params tie_word_embeddings torch_dtype \
            transformers_version use_cache";
        let Value::Object(sizes) = sizes else { return };
        let other_keys: Map<_, _> =
            other_keys.split(' ').map(|name| (name.to_owned(), Value::Null)).collect();
        for descriptor in families() {
            let head = (descriptor.family.name == "bert").then_some("sequence_classification");
            let config = sizes.clone().into_iter().chain(other_keys.clone()).collect();
            assert_eq!(
                InitialModel::new(descriptor.family.name, head, config).err(),
                None,
                "{}",
                descriptor.family.name
            );
        }
    }

    #[test]
    fn every_family_initializes_all_tensors_of_its_graph() {
        let config = json!({
            "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
            "n_positions": 40, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "type_vocab_size": 2, "full_attn_idxs": [1],
        });
        let Value::Object(config) = config else { return };
        for descriptor in families() {
            let head = (descriptor.family.name == "bert").then_some("masked_lm");
            let beginning = InitialModel::new(descriptor.family.name, head, config.clone()).unwrap();
            let weights: Vec<Weight> = beginning.graphs.weights().into_iter().cloned().collect();
            let absent = weights.iter().find(|weight| {
                let head: &[&str] =
                    HEADS.iter().find(|(name, _)| Some(*name) == head).map_or(&[], |(_, h)| h);
                !has(descriptor, head, &weight.name)
            });
            assert_eq!(absent, None, "{}", descriptor.family.name);
            let known: Vec<String> = weights.iter().map(|weight| pattern(&weight.name)).collect();
            for tensor in descriptor.initialization.tensors {
                let sides = ["enc", "dec"].map(|side| tensor.replace("{side}", side));
                let there = sides.iter().any(|tensor| known.iter().any(|known| known.starts_with(tensor)));
                assert!(there, "{}: nothing needs {tensor}", descriptor.family.name);
            }
            let parameters = beginning.parameters::<f32>(&weights, 7);
            assert_eq!(parameters, beginning.parameters::<f32>(&weights, 7));
            assert_ne!(parameters, beginning.parameters::<f32>(&weights, 8));
        }
    }
}

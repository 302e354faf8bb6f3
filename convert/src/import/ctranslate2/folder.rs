//! The folder of a CTranslate2 model.

use super::container::version_of;
use super::{Container, TokenList, VocabularyRole};
use crate::import::map::map;
use crate::import::read::{is_there, read};
use serde_json::{Map, Number, Value};
use siskin_format::file::parse_json;
use siskin_format::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

const MODEL: &str = "model.bin";
const CONFIG: &str = "config.json";
/// Maximum number of values in a configuration: half of the limit of metadata, which leaves room for other metadata.
const MAX_CONFIG_VALUES: usize = 1 << 19;
/// Maximum number of source vocabularies of a model.
const MAX_SOURCES: usize = 16;

/// Vocabularies by file name, `.json` before `.txt`.
const VOCABULARIES: &[(&str, VocabularyRole)] = &[
    ("vocabulary", VocabularyRole::Model),
    ("shared_vocabulary", VocabularyRole::Shared),
    ("source_vocabulary", VocabularyRole::Source(0)),
    ("target_vocabulary", VocabularyRole::Target),
];

/// Tokenizer files that other tools store next to a model.
const COMPANIONS: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "preprocessor_config.json",
    "source.spm",
    "target.spm",
    "sentencepiece.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "bpe.codes",
    "vmap.txt",
];

/// An open folder. `model.bin` is mapped: the file must not be written to or truncated while this value lives.
#[derive(Clone, Debug)]
pub struct Ctranslate2Folder {
    /// Its path.
    pub path: PathBuf,
    /// The tensors.
    pub container: Container,
    /// `config.json`: BOS and EOS handling and settings that follow from the model's training; empty if the file is
    /// missing.
    pub config: Map<String, Value>,
    /// The vocabularies.
    pub vocabularies: Vec<TokenList>,
}

impl Ctranslate2Folder {
    /// Returns true if the path is such a folder, judging by file names and the first bytes.
    pub fn detect(path: &Path) -> bool {
        let file = path.join(MODEL);
        let mut start = [0; 4];
        file.is_file()
            && std::fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
            && version_of(&start).is_some()
    }

    /// Returns every file that may be part of the model, existing or not.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let vocabularies = VOCABULARIES.iter().map(|(name, _)| (*name).to_owned());
        let vocabularies = vocabularies.chain((1..=MAX_SOURCES).map(source_name));
        let vocabularies = vocabularies.flat_map(|name| [format!("{name}.json"), format!("{name}.txt")]);
        let others = [MODEL, CONFIG].iter().chain(COMPANIONS).map(|&name| name.to_owned());
        others.chain(vocabularies).map(|name| path.join(name)).collect()
    }

    /// Opens a folder.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read_all(path).map_err(|error| error.within(&path.display().to_string()))
    }

    fn read_all(path: &Path) -> Result<Self> {
        let model = path.join(MODEL);
        if !is_there(&model, MODEL)? {
            return Err(Error::new(ErrorKind::Missing, MODEL, "missing from the folder"));
        }
        let container = Container::parse(&map(&model)?)?;
        let config: Map<String, Value> = match read(&path.join(CONFIG), CONFIG)? {
            Some(bytes) => parse_json(&bytes, CONFIG, MAX_CONFIG_VALUES)?,
            None => Map::new(),
        };
        let packed =
            config.get("quantization_type").filter(|kind| kind.as_u64() != Some(0) && !kind.is_null());
        if let Some(kind) = packed {
            let message = format!(
                "type {kind}: weights packed by other tools are not supported; convert the original model"
            );
            return Err(Error::unsupported("config.json: quantization_type", message));
        }
        let mut vocabularies = Vec::new();
        for (name, role) in VOCABULARIES {
            vocabularies.extend(read_vocabulary(path, name, *role)?);
        }
        for number in 0..MAX_SOURCES {
            vocabularies.extend(read_vocabulary(
                path,
                &source_name(number + 1),
                VocabularyRole::Source(number),
            )?);
        }
        Ok(Self { path: path.to_owned(), container, config, vocabularies })
    }

    /// Returns the first vocabulary with this role.
    pub fn vocabulary(&self, role: VocabularyRole) -> Option<&TokenList> {
        self.vocabularies.iter().find(|vocabulary| vocabulary.role == role)
    }

    /// Returns the contents of a small file of the folder, such as `tokenizer.json`, or `None` if it is missing.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        read(&self.path.join(name), name).map_err(|error| error.within(&self.path.display().to_string()))
    }

    /// Returns the configuration merged with the scalars of `model.bin` under their variable names
    /// (`decoder/num_heads`), and with the strings that older files store there.
    pub fn settings(&self) -> Map<String, Value> {
        let mut settings = self.config.clone();
        for variable in &self.container.variables {
            let value = match variable.number() {
                Some(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
                    Value::from(number as i64)
                }
                Some(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
                None if variable.name.contains('/') => continue,
                None => match variable.text() {
                    Some(text) => Value::from(text),
                    None => continue,
                },
            };
            settings.entry(variable.name.clone()).or_insert(value);
        }
        settings
    }

    /// Returns the number of consecutive layers, from 0 on, under `encoder` or `decoder`.
    pub fn layers(&self, side: &str) -> usize {
        let number = |name: &str| -> Option<usize> {
            let rest = name.strip_prefix(side)?.strip_prefix("/layer_")?;
            rest.split_once('/')?.0.parse().ok()
        };
        let variables = self.container.variables.iter();
        let numbers: HashSet<_> = variables.filter_map(|variable| number(&variable.name)).collect();
        (0..numbers.len()).take_while(|number| numbers.contains(number)).count()
    }
}

fn source_name(number: usize) -> String {
    format!("source_{number}_vocabulary")
}

fn read_vocabulary(folder: &Path, name: &str, role: VocabularyRole) -> Result<Option<TokenList>> {
    let json = format!("{name}.json");
    if let Some(bytes) = read(&folder.join(&json), &json)? {
        return TokenList::from_json(role, &bytes, &json).map(Some);
    }
    let lines = format!("{name}.txt");
    let bytes = read(&folder.join(&lines), &lines)?;
    bytes.map(|bytes| TokenList::from_text(role, &bytes, &lines)).transpose()
}

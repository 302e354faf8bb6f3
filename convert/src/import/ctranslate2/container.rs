//! The container of CTranslate2, `model.bin`, read in place.
//!
//! Parsing is total: every count and length is checked against the size of the file, each variable is as long as its
//! type and shape require, names are unique, aliases resolve to variables, and there are no trailing bytes.
//!
//! | field | bytes |
//! |---|---|
//! | container version | u32, 3 to 6 |
//! | specification name | string |
//! | specification revision | u32 |
//! | number of variables | u32 |
//! | each: name | string |
//! | rank, dimensions | u8, u32 each |
//! | dtype (version 3: bytes per element) | u8 |
//! | bytes of data (version 3: number of elements) | u32 |
//! | data | |
//! | number of aliases | u32 |
//! | each: alias, name of the variable | two strings |
//!
//! Numbers are little-endian. A string is its length including the terminating zero byte as u16, the text, and the zero
//! byte.

use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};
use siskin_kernels::quant::BlockType;
use std::collections::HashMap;

const OLDEST: u32 = 3;
const NEWEST: u32 = 6;
/// The first version that stores the dtype of a variable instead of the size of its elements.
const TYPED: u32 = 4;
const MAX_DIMENSIONS: usize = 8;
/// Bytes of the shortest variable: an empty string, a rank, a dtype and a length.
const SHORTEST_VARIABLE: usize = 9;
const SHORTEST_ALIAS: usize = 6;
/// Suffixes of variables that belong to a weight. An alias of the weight applies to them too.
const COMPANIONS: &[&str] = &["_scale", "_zero"];

/// The dtype of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// f32.
    Float32,
    /// int8: weights with a scale per row, booleans, small integers and text.
    Int8,
    /// int16: weights with one scale, and small integers.
    Int16,
    /// int32: integers, and weights packed by other tools.
    Int32,
    /// f16.
    Float16,
    /// bf16.
    BFloat16,
}

impl DataType {
    /// All dtypes, in order of their ids in the file.
    pub const ALL: &[Self] =
        &[Self::Float32, Self::Int8, Self::Int16, Self::Int32, Self::Float16, Self::BFloat16];

    /// Returns the bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::Int16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
        }
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
        }
    }

    /// Returns the one-element block type with the same bytes, for float types.
    pub fn block(self) -> Option<BlockType> {
        match self {
            Self::Float32 => Some(BlockType::F32),
            Self::Float16 => Some(BlockType::F16),
            Self::BFloat16 => Some(BlockType::BF16),
            Self::Int8 | Self::Int16 | Self::Int32 => None,
        }
    }

    /// Returns the dtype that version 3 means by elements of `size` bytes.
    fn of_size(size: u8) -> Option<Self> {
        match size {
            4 => Some(Self::Float32),
            2 => Some(Self::Int16),
            1 => Some(Self::Int8),
            _ => None,
        }
    }
}

/// A tensor, scalar or text of a file.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name; its components are separated by `/`.
    pub name: String,
    /// The shape, slowest-varying dimension first; empty for a scalar.
    pub dims: Vec<u32>,
    /// The dtype.
    pub data_type: DataType,
    /// The elements, little-endian.
    pub data: Bytes,
}

impl Variable {
    /// Returns the value of a scalar, or `None` for a tensor.
    pub fn number(&self) -> Option<f64> {
        if !self.dims.is_empty() {
            return None;
        }
        let data: &[u8] = &self.data;
        match self.data_type {
            DataType::Int8 => Some(f64::from(i8::from_le_bytes(data.try_into().ok()?))),
            DataType::Int16 => Some(f64::from(i16::from_le_bytes(data.try_into().ok()?))),
            DataType::Int32 => Some(f64::from(i32::from_le_bytes(data.try_into().ok()?))),
            DataType::Float32 | DataType::Float16 | DataType::BFloat16 => {
                let mut value = [0.0];
                self.data_type.block()?.dequantize_row(data, &mut value).then_some(f64::from(value[0]))
            }
        }
    }

    /// Returns the value as text: older files store settings as int8 vectors.
    pub fn text(&self) -> Option<&str> {
        let is_list = self.dims.len() == 1 && self.data_type == DataType::Int8;
        std::str::from_utf8(&self.data).ok().filter(|_| is_list)
    }
}

/// A parsed `model.bin`.
#[derive(Clone, Debug)]
pub struct Container {
    /// The container version, 3 to 6.
    pub version: u32,
    /// The name of the model's specification, such as `WhisperSpec`.
    pub spec: String,
    /// The revision of the specification, incremented when variables are renamed.
    pub revision: u32,
    /// The variables, in file order.
    pub variables: Vec<Variable>,
    /// Aliases, each with the index of its variable.
    pub aliases: Vec<(String, usize)>,
    index: HashMap<String, usize>,
}

impl Container {
    /// Parses a whole file. Total on any bytes.
    pub fn parse(bytes: &Bytes) -> Result<Self> {
        parse(bytes).map_err(|error| error.within("model.bin"))
    }

    /// Returns the variable of this name or alias. The scales and zero points of an alias are those of its variable.
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.variables.get(self.find(name)?)
    }

    /// Returns the index of the variable of this name or alias.
    pub fn find(&self, name: &str) -> Option<usize> {
        if let Some(&index) = self.index.get(name) {
            return Some(index);
        }
        let (weight, suffix) =
            COMPANIONS.iter().find_map(|suffix| Some((name.strip_suffix(suffix)?, suffix)))?;
        let weight = self.variables.get(*self.index.get(weight)?)?;
        self.index.get(&format!("{}{suffix}", weight.name)).copied()
    }

    /// Returns the scalar of this name, or `None` if it is missing.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.number()
    }
}

/// Returns the container version if the file starts like a container of any version.
pub(super) fn version_of(start: &[u8]) -> Option<u32> {
    start
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
        .filter(|version| (1..=u32::from(u8::MAX)).contains(version))
}

fn parse(bytes: &Bytes) -> Result<Container> {
    let mut reader = Reader { bytes, view: bytes, offset: 0 };
    let version = version_of(bytes)
        .ok_or_else(|| Error::corrupt("version", "not a CTranslate2 model, or is damaged"))?;
    if !(OLDEST..=NEWEST).contains(&version) {
        let message = format!(
            "unknown container version {version}, expected {OLDEST} to {NEWEST}: convert the model again"
        );
        return Err(Error::new(ErrorKind::Version, "version", message));
    }
    reader.offset = 4;
    let spec = reader.text("specification")?;
    let revision = reader.u32("revision")?;
    let mut index = HashMap::new();
    let mut variables: Vec<Variable> = Vec::new();
    for number in 0..reader.count(SHORTEST_VARIABLE, "variables")? {
        let variable = variable(&mut reader, version, number)?;
        if index.insert(variable.name.clone(), number).is_some() {
            return Err(Error::corrupt(location(number, &variable.name), "occurs twice"));
        }
        variables.push(variable);
    }
    let mut aliases = Vec::new();
    for number in 0..reader.count(SHORTEST_ALIAS, "aliases")? {
        let alias = reader.text(&format!("alias {number}"))?;
        let location = format!("alias {number} ({alias})");
        let name = reader.text(&location)?;
        let target = *index.get(&name).ok_or_else(|| {
            Error::corrupt(&location, format!("refers to '{name}', which is not in the file"))
        })?;
        if index.insert(alias.clone(), target).is_some() {
            return Err(Error::corrupt(location, "occurs twice"));
        }
        aliases.push((alias, target));
    }
    match reader.remaining() {
        0 => Ok(Container { version, spec, revision, variables, aliases, index }),
        left => Err(Error::corrupt("end", format!("{left} bytes follow the last alias"))),
    }
}

fn location(number: usize, name: &str) -> String {
    format!("variable {number} ({name})")
}

fn variable(reader: &mut Reader<'_>, version: u32, number: usize) -> Result<Variable> {
    let name = reader.text(&format!("variable {number}"))?;
    let location = location(number, &name);
    let rank = usize::from(reader.u8(&location)?);
    if rank > MAX_DIMENSIONS {
        return Err(Error::corrupt(
            location,
            format!("{rank} dimensions; at most {MAX_DIMENSIONS} are supported"),
        ));
    }
    let dims = (0..rank).map(|_| reader.u32(&location)).collect::<Result<Vec<_>>>()?;
    let code = reader.u8(&location)?;
    let known = match version >= TYPED {
        true => DataType::ALL.get(usize::from(code)).copied(),
        false => DataType::of_size(code),
    };
    let data_type =
        known.ok_or_else(|| Error::unsupported(&location, format!("unknown element type {code}")))?;
    let size = data_type.size();
    let bytes = dims.iter().try_fold(size, |product, &size| product.checked_mul(usize::try_from(size).ok()?));
    let unit = if version >= TYPED { 1 } else { size };
    let length = usize::try_from(reader.u32(&location)?).ok().and_then(|length| length.checked_mul(unit));
    let length = length.filter(|_| length == bytes).ok_or_else(|| {
        let message = format!("the length does not match {} of shape {dims:?}", data_type.name());
        Error::corrupt(&location, message)
    })?;
    let data = reader.take(length, &location)?;
    Ok(Variable { name, dims, data_type, data })
}

struct Reader<'a> {
    bytes: &'a Bytes,
    view: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn remaining(&self) -> usize {
        self.view.len() - self.offset
    }

    fn take(&mut self, length: usize, location: &str) -> Result<Bytes> {
        let end = self.offset.checked_add(length);
        let taken = end.and_then(|end| self.bytes.slice(self.offset..end)).ok_or_else(|| {
            let message = format!(
                "unexpected end of file at offset {}: {length} bytes needed, {} left; the file is truncated or corrupt",
                self.offset,
                self.remaining()
            );
            Error::corrupt(location, message)
        })?;
        self.offset += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, location: &str) -> Result<[u8; N]> {
        let taken = self.view.get(self.offset..).and_then(|rest| rest.first_chunk()).copied();
        let taken = taken.ok_or_else(|| {
            Error::corrupt(location, format!("the file ends at offset {} within it", self.view.len()))
        })?;
        self.offset += N;
        Ok(taken)
    }

    fn u8(&mut self, location: &str) -> Result<u8> {
        self.array(location).map(u8::from_le_bytes)
    }

    fn u32(&mut self, location: &str) -> Result<u32> {
        self.array(location).map(u32::from_le_bytes)
    }

    /// Reads a count of items of at least `least` bytes each.
    fn count(&mut self, least: usize, location: &str) -> Result<usize> {
        let count = self.u32(location)?;
        let max_count = self.remaining() / least;
        usize::try_from(count).ok().filter(|&count| count <= max_count).ok_or_else(|| {
            Error::corrupt(location, format!("claims {count}, but the file has room for at most {max_count}"))
        })
    }

    fn text(&mut self, location: &str) -> Result<String> {
        let length = u16::from_le_bytes(self.array(location)?);
        let bytes = self.take(usize::from(length), location)?;
        let Some((0, text)) = bytes.split_last() else {
            return Err(Error::corrupt(location, "the name does not end in a zero byte"));
        };
        let text = std::str::from_utf8(text);
        text.map(str::to_owned)
            .map_err(|error| Error::corrupt(location, format!("the name is not UTF-8: {error}")))
    }
}

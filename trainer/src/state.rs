//! The state of a run besides its parameters, as checkpoints keep it: named tables, bit for bit.

use std::collections::BTreeMap;

use siskin_format::{Error, ErrorKind, Result};

/// The contents of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableData {
    /// f32 values.
    Numbers(Vec<f32>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl TableData {
    /// Borrows the contents.
    pub fn view(&self) -> TableView<'_> {
        match self {
            Self::Numbers(numbers) => TableView::Numbers(numbers),
            Self::Bytes(bytes) => TableView::Bytes(bytes),
        }
    }
}

/// The borrowed contents of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TableView<'a> {
    /// f32 values.
    Numbers(&'a [f32]),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl TableView<'_> {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Numbers(numbers) => size_of_val(*numbers),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Copies the contents.
    pub fn owned(&self) -> TableData {
        match *self {
            Self::Numbers(numbers) => TableData::Numbers(numbers.to_vec()),
            Self::Bytes(bytes) => TableData::Bytes(bytes.to_vec()),
        }
    }

    fn shape(&self) -> String {
        match self {
            Self::Numbers(numbers) => format!("{} numbers", numbers.len()),
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
        }
    }
}

/// Tables by name.
pub type Tables = BTreeMap<String, TableData>;

/// Something with state in checkpoints.
pub trait Checkpointed {
    /// Returns the prefix of the names of all its tables.
    fn prefix(&self) -> &'static str;

    /// Returns its tables with their full names, in a fixed order.
    fn tables(&self) -> Vec<(String, TableView<'_>)>;

    /// Loads tables of the same names and sizes, which [`restore`] has checked.
    fn take(&mut self, tables: &Tables) -> Result<()>;
}

/// Copies the tables of some states.
pub fn save(states: &[&dyn Checkpointed]) -> Tables {
    let tables = states.iter().flat_map(|state| state.tables());
    tables.map(|(name, view)| (name, view.owned())).collect()
}

/// Returns true if the tables contain something of a state; a state that the checkpoint lacks starts fresh.
pub(crate) fn is_in(state: &dyn Checkpointed, tables: &Tables) -> bool {
    tables.keys().any(|name| name.starts_with(state.prefix()))
}

/// Restores a state from its tables. Tables with other prefixes are ignored.
///
/// # Errors
/// If a table is missing, unknown or of another size; the place is its name. The state is unchanged then.
pub fn restore(state: &mut dyn Checkpointed, tables: &Tables) -> Result<()> {
    let wanted = state.tables();
    for (name, view) in &wanted {
        let place = || format!("table {name}");
        let Some(data) = tables.get(name) else {
            let message = "missing in the checkpoint; resume with the settings that the run began with";
            return Err(Error::new(ErrorKind::Missing, place(), message));
        };
        if data.view().shape() != view.shape() {
            let message = format!("found {}, expected {}", data.view().shape(), view.shape());
            return Err(Error::new(ErrorKind::Shape, place(), message));
        }
    }
    let known = |name: &String| wanted.iter().any(|(wanted, _)| wanted == name);
    let own = || tables.keys().filter(|name| name.starts_with(state.prefix()));
    if own().count() > wanted.len()
        && let Some(name) = own().find(|name| !known(name))
    {
        let message = "not part of this run; resume with the settings that the run began with";
        return Err(Error::argument(format!("table {name}"), message));
    }
    drop(wanted);
    state.take(tables)
}

/// Fills `own` from the table of that name.
pub(crate) fn fill(own: &mut TableData, tables: &Tables, name: &str) {
    match (own, tables.get(name)) {
        (TableData::Numbers(own), Some(TableData::Numbers(data))) if own.len() == data.len() => {
            own.copy_from_slice(data)
        }
        (TableData::Bytes(own), Some(TableData::Bytes(data))) if own.len() == data.len() => {
            own.copy_from_slice(data)
        }
        _ => {}
    }
}

/// Reads the 64-bit words of a table.
pub(crate) fn words<const N: usize>(tables: &Tables, name: &str) -> Result<[u64; N]> {
    let mut words = [0; N];
    match tables.get(name) {
        Some(TableData::Bytes(bytes)) if bytes.len() == 8 * N => {
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            Ok(words)
        }
        _ => Err(Error::new(ErrorKind::Shape, format!("table {name}"), format!("needs {} bytes", 8 * N))),
    }
}

/// Converts words to little-endian bytes.
pub(crate) fn bytes_of<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

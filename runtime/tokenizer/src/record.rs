//! Lists of records in the section: each has a code, a number and texts.

use super::section::u32_at;
use siskin_format::{Error, Result};

/// The maximum number of records of a list.
pub(super) const MAX_RECORDS: usize = 256;

/// One record: `code` u32, `number` u32, then for each of two texts its length u32, then the texts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct TokenizerRecord {
    pub(super) code: u32,
    pub(super) number: u32,
    pub(super) texts: [String; 2],
}

impl TokenizerRecord {
    pub(super) fn new(code: u32, number: u32, first: &str, second: &str) -> Self {
        Self { code, number, texts: [first.to_owned(), second.to_owned()] }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for value in [self.code, self.number, self.texts[0].len() as u32, self.texts[1].len() as u32] {
            out.extend(value.to_le_bytes());
        }
        self.texts.iter().for_each(|text| out.extend(text.as_bytes()));
    }

    /// Reads all records of `table`; `name` is for messages.
    pub(super) fn read_all(table: &[u8], name: &str) -> Result<Vec<Self>> {
        let mut records = Vec::new();
        let mut rest = table;
        while !rest.is_empty() {
            let location = || format!("tokenizer.{name}[{}]", records.len());
            let cut = || Error::corrupt(location(), "the record is truncated or not UTF-8");
            if records.len() >= MAX_RECORDS {
                return Err(Error::corrupt(location(), format!("there are more than {MAX_RECORDS} records")));
            }
            let word = |index: usize| u32_at(rest, index).ok_or_else(cut);
            let (code, number, first, second) = (word(0)?, word(1)?, word(2)? as usize, word(3)? as usize);
            let texts = rest.get(16..).ok_or_else(cut)?;
            let (first, texts) = texts.split_at_checked(first).ok_or_else(cut)?;
            let (second, after) = texts.split_at_checked(second).ok_or_else(cut)?;
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| cut());
            let record = Self { code, number, texts: [text(first)?, text(second)?] };
            records.push(record);
            rest = after;
        }
        Ok(records)
    }
}

//! `siskin logits`: token ids in, every token's logits out, both as safetensors.

use crate::options::{ModelArgs, OpenArgs};
use serde_json::json;
use siskin::file::{AtomicFile, Bytes};
use siskin::{Error, ErrorKind, Result, Session, SessionOptions};
use siskin_convert::import::{self, safetensors, safetensors::Tensor};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Compute the logits of given tokens
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file, or a Hugging Face folder
    model: PathBuf,
    /// A safetensors file with `input_ids` [batch, tokens] and, where tokens are padding, `attention_mask`
    #[arg(long)]
    input: PathBuf,
    /// The safetensors file to write: `logits` [batch, tokens, vocabulary], zeros at padding
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    model_args: ModelArgs,
}

impl Args {
    /// Every file that is read.
    fn inputs(&self) -> Vec<PathBuf> {
        let parts = import::format_of(&self.model).and_then(|format| (format.files)(&self.model));
        parts.unwrap_or_default().into_iter().chain([self.model.clone(), self.input.clone()]).collect()
    }
}

/// Sequences of one length.
struct Input {
    ids: Vec<i64>,
    mask: Option<Vec<i64>>,
    rows: usize,
    columns: usize,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let input = Input::read(&args.input).map_err(|error| error.within(&args.input.display().to_string()))?;
    let place = args.output.display().to_string();
    let io = |error: std::io::Error| Error::io(&place, &error);
    let mut out = BufWriter::new(AtomicFile::create_from(&args.output, &args.inputs())?);
    let model = open.model(&args.model, &args.model_args)?;
    let vocabulary = model.hyper().vocabulary;
    let header = input.header(vocabulary)?;
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    out.write_all(header.as_bytes()).map_err(io)?;
    let mut session = model.session(SessionOptions {
        context: input.columns,
        cache: args.model_args.kv,
        ..SessionOptions::default()
    })?;
    for row in 0..input.rows {
        input.row(row)?.write(&mut session, vocabulary, input.columns, &mut out, &io)?;
    }
    out.into_inner().map_err(|error| io(error.into_error()))?.commit()
}

/// One sequence: its tokens, and where they stand in the row.
struct Row {
    ids: Vec<u32>,
    places: Vec<usize>,
}

impl Row {
    fn write(
        &self,
        session: &mut Session,
        vocabulary: usize,
        columns: usize,
        out: &mut impl Write,
        io: &dyn Fn(std::io::Error) -> Error,
    ) -> Result<()> {
        let padding = vec![0; vocabulary * 4];
        let pad = |out: &mut dyn Write, count: usize| (0..count).try_for_each(|_| out.write_all(&padding));
        let (mut written, mut outcome) = (0, Ok(()));
        session.reset();
        session.score(&self.ids, &mut |index, logits| {
            if outcome.is_err() {
                return;
            }
            let place = self.places.get(index).copied().unwrap_or(written);
            let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            outcome = pad(out, place - written).and_then(|()| out.write_all(&bytes));
            written = place + 1;
        })?;
        outcome.and_then(|()| pad(out, columns - written)).map_err(io)
    }
}

impl Input {
    fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::io("", &error))?;
        let tensors = safetensors::parse(Bytes::new(bytes))?;
        let ids = tensors
            .get("input_ids")
            .ok_or_else(|| Error::new(ErrorKind::Missing, "input_ids", "is not in the file"))?;
        let sizes: Vec<_> =
            ids.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        let (rows, columns) = match sizes[..] {
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            _ => return Err(Error::new(ErrorKind::Shape, "input_ids", "is not [batch, tokens]")),
        };
        if rows == 0 || columns == 0 {
            return Err(Error::new(ErrorKind::Shape, "input_ids", "is empty"));
        }
        let mask = match tensors.get("attention_mask") {
            None => None,
            Some(mask) if mask.shape == ids.shape => Some(integers("attention_mask", mask)?),
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::Shape,
                    "attention_mask",
                    "has another shape than input_ids",
                ));
            }
        };
        Ok(Self { ids: integers("input_ids", ids)?, mask, rows, columns })
    }

    fn header(&self, vocabulary: usize) -> Result<String> {
        let bytes = [self.rows, self.columns, vocabulary, 4]
            .iter()
            .try_fold(1usize, |size, &factor| size.checked_mul(factor));
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::Memory, "logits", "would be too large"))?;
        let shape = [self.rows, self.columns, vocabulary];
        let mut header =
            json!({"logits": {"dtype": "F32", "shape": shape, "data_offsets": [0, bytes]}}).to_string();
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        Ok(header)
    }

    /// The tokens of a row that are no padding.
    fn row(&self, row: usize) -> Result<Row> {
        let range = row * self.columns..(row + 1) * self.columns;
        let masked = |index: usize| self.mask.as_ref().is_some_and(|mask| mask[index] == 0);
        let (mut ids, mut places) = (Vec::new(), Vec::new());
        for index in range.clone().filter(|&index| !masked(index)) {
            ids.push(u32::try_from(self.ids[index]).map_err(|_| {
                Error::argument(format!("input_ids[{index}]"), format!("{} is no token id", self.ids[index]))
            })?);
            places.push(index - range.start);
        }
        Ok(Row { ids, places })
    }
}

fn integers(name: &str, tensor: &Tensor) -> Result<Vec<i64>> {
    let data = &tensor.data;
    Ok(match tensor.dtype {
        "I64" => data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect(),
        "I32" => data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect(),
        "BOOL" | "U8" => data.iter().map(|&byte| byte.into()).collect(),
        other => {
            return Err(Error::unsupported(
                name,
                format!("numbers of type {other} are not read; give I64 or I32"),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_skipped_on_either_side() {
        let input =
            Input { ids: vec![9, 5, 6, 7, 8, 9], mask: Some(vec![0, 1, 1, 1, 1, 0]), rows: 2, columns: 3 };
        let (first, second) = (input.row(0).unwrap(), input.row(1).unwrap());
        assert_eq!((first.ids, first.places), (vec![5, 6], vec![1, 2]));
        assert_eq!((second.ids, second.places), (vec![7, 8], vec![0, 1]));
        let header = input.header(4).unwrap();
        assert!(header.len().is_multiple_of(8) && header.contains("[0,96]"), "{header}");
    }

    #[test]
    fn negative_ids_are_refused() {
        let input = Input { ids: vec![-1], mask: None, rows: 1, columns: 1 };
        assert_eq!(input.row(0).err().unwrap().kind(), ErrorKind::Argument);
    }
}

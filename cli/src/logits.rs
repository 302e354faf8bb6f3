//! `siskin logits`: token ids in, logits or hidden states of every token out, both as safetensors.

mod encoded;
mod named;

use crate::input_path;
use crate::options::{ModelArgs, OpenArgs};
use serde_json::json;
use siskin::file::{AtomicFile, Bytes};
use siskin::{Error, ErrorKind, Model, Result, Session, SessionOptions};
use siskin_convert::import::{self, safetensors, safetensors::SafetensorsTensor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Compute the logits or hidden states for the given tokens
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    /// Input safetensors file: `input_ids` [batch, tokens]; optional `attention_mask` (padding), `token_type_ids`
    /// (token types) and `global_attention_mask` (tokens with global attention); `input_features` [batch, features,
    /// frames] for speech models; `decoder_input_ids` [batch, tokens] for encoder-decoder models. Other ONNX models
    /// take their inputs by name
    #[arg(long)]
    input: PathBuf,
    /// Output safetensors file, zero at padding: `logits` [batch, tokens, scores] or [batch, classes];
    /// `last_hidden_state` [batch, tokens, width] for models without a head; also `encoder_hidden` for encoder-decoder
    /// models. All outputs, with integers as floats, for other ONNX models
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    model_args: ModelArgs,
}

impl Args {
    /// Returns every input file.
    fn inputs(&self) -> Vec<PathBuf> {
        let parts = import::format_of(&self.model).and_then(|format| (format.files)(&self.model));
        parts.unwrap_or_default().into_iter().chain([self.model.clone(), self.input.clone()]).collect()
    }
}

/// A batch of sequences padded to one length.
#[derive(Default)]
struct Input {
    ids: Vec<i64>,
    mask: Option<Vec<i64>>,
    token_types: Option<Vec<i64>>,
    global: Option<Vec<i64>>,
    rows: usize,
    columns: usize,
    /// The decoder input of encoder-decoder models.
    written: Option<Box<Input>>,
    /// Features instead of ids: [batch, features, frames].
    features: Option<Features>,
}

/// Input of speech models, instead of tokens.
struct Features {
    columns: usize,
    frames: usize,
    values: Vec<f32>,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    input_path::check_file(&args.input)?;
    let place = args.output.display().to_string();
    let io = |error: std::io::Error| Error::io(&place, &error);
    let mut out = BufWriter::new(AtomicFile::create_from(&args.output, &args.inputs())?);
    let model = open.model(&args.model, &args.model_args)?;
    let graphs = model.graphs();
    let input =
        || Input::read(&args.input, &model).map_err(|error| error.within(&args.input.display().to_string()));
    if model.external_model().is_some() && graphs.iter().next().is_none() {
        write_tables(&named::tables(&model, &args.input)?, &mut out, &io)?;
    } else if graphs.encoder.is_some() {
        let tables = encoded::tables(&model, &args.model_args, &input()?)?;
        write_tables(&tables, &mut out, &io)?;
    } else {
        write_next(&model, args, &input()?, &mut out, &io)?;
    }
    out.into_inner().map_err(|error| io(error.into_error()))?.commit()
}

/// Writes the logits of a decoder as they are computed.
fn write_next(
    model: &Model,
    args: &Args,
    input: &Input,
    out: &mut impl Write,
    io: &dyn Fn(std::io::Error) -> Error,
) -> Result<()> {
    let vocabulary = model.config().vocabulary;
    write_header(&[("logits", &[input.rows, input.columns, vocabulary])], out, io)?;
    let mut session = model.session(SessionOptions {
        context: input.columns,
        cache: args.model_args.kv,
        ..SessionOptions::default()
    })?;
    for row in 0..input.rows {
        input.row(row)?.write(&mut session, vocabulary, input.columns, out, io)?;
    }
    Ok(())
}

/// A tensor to write.
struct Table {
    name: Cow<'static, str>,
    shape: Vec<usize>,
    values: Vec<f32>,
}

fn write_tables(tables: &[Table], out: &mut impl Write, io: &dyn Fn(std::io::Error) -> Error) -> Result<()> {
    let shapes: Vec<_> = tables.iter().map(|table| (&*table.name, table.shape.as_slice())).collect();
    write_header(&shapes, out, io)?;
    for table in tables {
        let bytes: Vec<u8> = table.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(io)?;
    }
    Ok(())
}

/// Writes a safetensors header with tensors of these names and shapes.
fn write_header(
    tables: &[(&str, &[usize])],
    out: &mut impl Write,
    io: &dyn Fn(std::io::Error) -> Error,
) -> Result<()> {
    let header = header(tables)?;
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    out.write_all(header.as_bytes()).map_err(io)
}

fn header(tables: &[(&str, &[usize])]) -> Result<String> {
    let mut entries = serde_json::Map::new();
    let mut start = 0_usize;
    for (name, shape) in tables {
        let bytes = shape.iter().try_fold(4usize, |size, &factor| size.checked_mul(factor));
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        let end = end.ok_or_else(|| Error::new(ErrorKind::Memory, *name, "would be too large"))?;
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
        entries.insert((*name).to_owned(), entry);
        start = end;
    }
    let mut header = serde_json::Value::Object(entries).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    Ok(header)
}

/// One sequence: its tokens, and their columns in the row.
struct Row {
    ids: Vec<u32>,
    token_types: Vec<u32>,
    /// The global attention mask.
    global: Vec<usize>,
    places: Vec<usize>,
    /// What stands after the last of them, where that is padding.
    after: Option<u32>,
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

/// Rejects an input tensor that the model would ignore: token ids for speech models, features for text models, decoder
/// inputs for models that are not encoder-decoders.
fn check_name(name: &str, is_audio: bool, is_encoder_decoder: bool) -> Result<()> {
    let message = match name {
        "input_ids" if is_audio => "not an input of this model; use input_features",
        "input_features" if !is_audio => "not an input of this model; use input_ids",
        "decoder_input_ids" | "decoder_attention_mask" if !is_encoder_decoder => {
            "only accepted by encoder–decoder models; remove it"
        }
        // Expected outputs may be stored next to the inputs; they are ignored.
        "input_ids"
        | "input_features"
        | "decoder_input_ids"
        | "decoder_attention_mask"
        | "attention_mask"
        | "token_type_ids"
        | "global_attention_mask"
        | "logits"
        | "last_hidden_state"
        | "encoder_hidden" => return Ok(()),
        _ => "not a supported input; remove it (`siskin help logits` lists the inputs)",
    };
    Err(Error::unsupported(name, message))
}

impl Input {
    fn read(path: &Path, model: &Model) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::io("", &error))?;
        let tensors = safetensors::parse(Bytes::new(bytes))?;
        let graphs = model.graphs();
        let is_audio = graphs.encoder.as_ref().is_some_and(|encoder| encoder.frames_per_row() > 0);
        let is_encoder_decoder = graphs.encoder.is_some() && graphs.decoder.is_some();
        let mut names: Vec<&String> = tensors.keys().collect();
        names.sort_unstable();
        names.into_iter().try_for_each(|name| check_name(name, is_audio, is_encoder_decoder))?;
        let mut input = match tensors.get("input_features") {
            Some(features) => Self::of_features(features)?,
            None if is_audio => {
                return Err(Error::new(ErrorKind::Missing, "input_features", "missing from the file"));
            }
            None => Self::of_ids(&tensors, "input_ids", "attention_mask")?,
        };
        if tensors.contains_key("decoder_input_ids") {
            let written = Self::of_ids(&tensors, "decoder_input_ids", "decoder_attention_mask")?;
            if written.rows != input.rows {
                let message = "not the batch size of the encoder input";
                return Err(Error::new(ErrorKind::Shape, "decoder_input_ids", message));
            }
            input.written = Some(Box::new(written));
        }
        Ok(input)
    }

    fn of_features(tensor: &SafetensorsTensor) -> Result<Self> {
        let shape: Vec<usize> =
            tensor.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        match (&shape[..], tensor.dtype) {
            (&[rows, columns, frames], "F32") if rows > 0 && columns > 0 && frames > 0 => {
                let values =
                    tensor.data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
                let features = Some(Features { columns, frames, values });
                Ok(Self { rows, features, ..Self::default() })
            }
            _ => {
                let message = "must be an F32 tensor of shape [batch, features, frames]";
                Err(Error::new(ErrorKind::Shape, "input_features", message))
            }
        }
    }

    /// Returns the features of a row, frame by frame.
    fn frames(&self, row: usize) -> Vec<f32> {
        let Some(features) = &self.features else { return Vec::new() };
        let size = features.columns * features.frames;
        let values = &features.values[row * size..][..size];
        let frame =
            |frame: usize| (0..features.columns).map(move |column| values[column * features.frames + frame]);
        (0..features.frames).flat_map(frame).collect()
    }

    fn of_ids(tensors: &HashMap<String, SafetensorsTensor>, name: &str, mask: &str) -> Result<Self> {
        let ids =
            tensors.get(name).ok_or_else(|| Error::new(ErrorKind::Missing, name, "missing from the file"))?;
        let sizes: Vec<_> =
            ids.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        let (rows, columns) = match sizes[..] {
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            _ => return Err(Error::new(ErrorKind::Shape, name, "must have the shape [batch, tokens]")),
        };
        if rows == 0 || columns == 0 {
            return Err(Error::new(ErrorKind::Shape, name, "empty"));
        }
        let beside = |name: &str| match tensors.get(name) {
            None => Ok(None),
            Some(tensor) if tensor.shape == ids.shape => integers(name, tensor).map(Some),
            Some(_) => Err(Error::new(ErrorKind::Shape, name, "must have the same shape as the ids")),
        };
        let read = name == "input_ids";
        let token_types = if read { beside("token_type_ids")? } else { None };
        let global = if read { beside("global_attention_mask")? } else { None };
        let (mask, ids) = (beside(mask)?, integers(name, ids)?);
        Ok(Self { ids, mask, token_types, global, rows, columns, ..Self::default() })
    }

    /// Returns the tokens of a row without padding.
    fn row(&self, row: usize) -> Result<Row> {
        let range = row * self.columns..(row + 1) * self.columns;
        let masked = |index: usize| self.mask.as_ref().is_some_and(|mask| mask[index] == 0);
        let whole = |name: &str, numbers: &[i64], index: usize| {
            u32::try_from(numbers[index]).map_err(|_| {
                Error::argument(
                    format!("{name}[{index}]"),
                    format!("expected an integer from 0 to {}, got {}", u32::MAX, numbers[index]),
                )
            })
        };
        let (mut ids, mut token_types, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let mut global = Vec::new();
        for index in range.clone().filter(|&index| !masked(index)) {
            ids.push(whole("input_ids", &self.ids, index)?);
            if let Some(all) = &self.token_types {
                token_types.push(whole("token_type_ids", all, index)?);
            }
            if self.global.as_ref().is_some_and(|global| global[index] != 0) {
                global.push(places.len());
            }
            places.push(index - range.start);
        }
        let end = places.last().map_or(range.end, |last| range.start + last + 1);
        let after = range.contains(&end).then(|| u32::try_from(self.ids[end]).ok()).flatten();
        Ok(Row { ids, token_types, global, places, after })
    }
}

fn integers(name: &str, tensor: &SafetensorsTensor) -> Result<Vec<i64>> {
    let data = &tensor.data;
    Ok(match tensor.dtype {
        "I64" => data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect(),
        "I32" => data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect(),
        "BOOL" | "U8" => data.iter().map(|&byte| byte.into()).collect(),
        other => {
            return Err(Error::unsupported(name, format!("expected dtype I64 or I32, found {other}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_skipped_on_either_side() {
        let mask = Some(vec![0, 1, 1, 1, 1, 0]);
        let input = Input { ids: vec![9, 5, 6, 7, 8, 9], mask, rows: 2, columns: 3, ..Input::default() };
        let (first, second) = (input.row(0).unwrap(), input.row(1).unwrap());
        assert_eq!((first.after, second.after), (None, Some(9)));
        assert_eq!((first.ids, first.places), (vec![5, 6], vec![1, 2]));
        assert_eq!((second.ids, second.places), (vec![7, 8], vec![0, 1]));
        let header = header(&[("logits", &[2, 3, 4])]).unwrap();
        assert!(header.len().is_multiple_of(8) && header.contains("[0,96]"), "{header}");
    }

    #[test]
    fn negative_ids_are_rejected() {
        let input = Input { ids: vec![-1], rows: 1, columns: 1, ..Input::default() };
        assert_eq!(input.row(0).err().unwrap().kind(), ErrorKind::Argument);
    }
}

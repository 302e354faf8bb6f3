//! Outputs of encoders and encoder-decoder models.

use super::{Input, Row, Table};
use crate::options::ModelArgs;
use siskin::OutputHead;
use siskin::encoder::EncoderInput;
use siskin::{EncoderOptions, Error, ErrorKind, Model, OutputRows, Result, SessionOptions};

/// Writes the encoder's output, and the decoder's logits for encoder-decoder models.
pub(super) fn tables(model: &Model, args: &ModelArgs, input: &Input) -> Result<Vec<Table>> {
    let rows = match input.features {
        Some(_) => Vec::new(),
        None => (0..input.rows).map(|row| input.row(row)).collect::<Result<Vec<_>>>()?,
    };
    let text = |row: usize| match rows.get(row) {
        Some(Row { ids, token_types, global, after, .. }) => {
            let (ids, token_type_ids, global_positions) = (ids.clone(), token_types.clone(), global.clone());
            EncoderInput {
                ids,
                token_type_ids,
                global_positions,
                padding_token: *after,
                ..EncoderInput::default()
            }
        }
        None => EncoderInput { features: input.frames(row), ..EncoderInput::default() },
    };
    let texts: Vec<EncoderInput> = (0..input.rows).map(text).collect();
    let mut tables = vec![read(model, args, input, &rows, &texts)?];
    if model.graphs().decoder.is_some() {
        let written = input.written.as_deref().ok_or_else(|| {
            let message = "missing from the file; encoder–decoder models require it";
            Error::new(ErrorKind::Missing, "decoder_input_ids", message)
        })?;
        tables.push(write(model, args, written, &texts)?);
    }
    Ok(tables)
}

/// Returns the rows of every token, or one row per text if the head is a classifier.
fn read(
    model: &Model,
    args: &ModelArgs,
    input: &Input,
    rows: &[Row],
    texts: &[EncoderInput],
) -> Result<Table> {
    let mut encoder = model.encoder(EncoderOptions { cache: args.kv, ..EncoderOptions::default() })?;
    let columns = encoder.columns();
    let hidden = if model.graphs().decoder.is_some() { "encoder_hidden" } else { "last_hidden_state" };
    let max_rows = texts.iter().map(|text| encoder.rows_of(text)).max().unwrap_or(0);
    let per_text = input.columns.max(max_rows);
    let (name, wanted, per_text) = match encoder.head() {
        OutputHead::Class => ("logits", OutputRows::First, 1),
        OutputHead::Hidden => (hidden, OutputRows::All, per_text),
        _ => ("logits", OutputRows::All, per_text),
    };
    let mut values = vec![0.0; columns * input.rows * per_text];
    encoder.encode(texts, wanted, &mut |text, outputs| {
        for (index, row) in outputs.rows().enumerate() {
            let place = rows.get(text).filter(|_| per_text > 1).map_or(index, |row| row.places[index]);
            values[(text * per_text + place) * columns..][..columns].copy_from_slice(row);
        }
        Ok(())
    })?;
    let shape = match wanted {
        OutputRows::First => vec![input.rows, columns],
        _ => vec![input.rows, per_text, columns],
    };
    Ok(Table { name: name.into(), shape, values })
}

/// Returns the logits after each token of `written`.
fn write(model: &Model, args: &ModelArgs, written: &Input, texts: &[EncoderInput]) -> Result<Table> {
    let columns = model.config().vocabulary;
    let mut session = model.session(SessionOptions {
        context: written.columns,
        cache: args.kv,
        ..SessionOptions::default()
    })?;
    let mut values = vec![0.0; columns * written.rows * written.columns];
    for (index, text) in texts.iter().enumerate() {
        let row = written.row(index)?;
        session.encode(text)?;
        session.score(&row.ids, &mut |token, logits| {
            let place = index * written.columns + row.places[token];
            values[place * columns..][..columns].copy_from_slice(logits);
        })?;
    }
    Ok(Table { name: "logits".into(), shape: vec![written.rows, written.columns, columns], values })
}

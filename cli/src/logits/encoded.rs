//! What a model that reads whole texts makes of them.

use super::{Input, write_header};
use crate::options::ModelArgs;
use siskin::encoder::Tokens;
use siskin::graph::Head;
use siskin::{EncoderOptions, Error, Model, Result, Wanted};
use std::io::Write;

/// Writes the rows of every token, or of every text where the head gives classes.
pub(super) fn write(
    model: &Model,
    args: &ModelArgs,
    input: &Input,
    out: &mut impl Write,
    io: &dyn Fn(std::io::Error) -> Error,
) -> Result<()> {
    let mut encoder = model.encoder(EncoderOptions { cache: args.kv, ..EncoderOptions::default() })?;
    let rows = (0..input.rows).map(|row| input.row(row)).collect::<Result<Vec<_>>>()?;
    let texts: Vec<Tokens> =
        rows.iter().map(|row| Tokens { ids: row.ids.clone(), segments: row.segments.clone() }).collect();
    let columns = encoder.columns();
    let (name, wanted, per_text) = match encoder.head() {
        Head::Class => ("logits", Wanted::First, 1),
        Head::Hidden => ("last_hidden_state", Wanted::Every, input.columns),
        _ => ("logits", Wanted::Every, input.columns),
    };
    let mut values = vec![vec![0.0; columns]; input.rows * per_text];
    encoder.read(&texts, wanted, &mut |text, outputs| {
        for (index, row) in outputs.rows().enumerate() {
            let place = if per_text == 1 { 0 } else { rows[text].places[index] };
            values[text * per_text + place].copy_from_slice(row);
        }
        Ok(())
    })?;
    match per_text {
        1 => write_header(name, &[input.rows, columns], out, io)?,
        _ => write_header(name, &[input.rows, per_text, columns], out, io)?,
    }
    let bytes: Vec<u8> = values.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    out.write_all(&bytes).map_err(io)
}

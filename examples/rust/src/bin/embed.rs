//! The cosine similarity of a text to other texts: `embed MODEL TEXT OTHER…`.

use siskin::encoder::EmbedOptions;
use siskin::{EncoderOptions, Result};

fn main() -> Result<()> {
    let arguments = siskin_examples::arguments(3, "embed MODEL TEXT OTHER...");
    let model = siskin_examples::open(&arguments[0])?;
    let mut encoder = model.encoder(EncoderOptions { head: false, ..Default::default() })?;
    let texts = &arguments[1..];
    let vectors = encoder.embed(texts, &EmbedOptions::of(&model)?)?;
    for (text, vector) in texts.iter().zip(&vectors).skip(1) {
        // Embeddings have unit length, so that their dot product is the cosine.
        let similarity: f32 = vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
        println!("{similarity:.4}  {text}");
    }
    Ok(())
}

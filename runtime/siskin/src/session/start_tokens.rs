//! Decoder start tokens of encoder–decoder models.

use crate::Result;
use crate::logits_processors::from_config::tokens;
use crate::model::Model;
use crate::{Error, ErrorKind};

/// Returns the tokens that the decoder of an encoder–decoder model starts with.
pub(crate) fn start_tokens(model: &Model) -> Result<Vec<u32>> {
    let config = model.config_reader();
    let stated = ["decoder_start_token_id", "decoder.start_token_id", "bos_token_id"];
    let stated = stated.iter().map(|key| tokens(&config, key)).find(|ids| !ids.is_empty());
    let tokenizer = model.tokenizer().ok();
    let own = || tokenizer.and_then(|tokenizer| tokenizer.bos().or(tokenizer.pad())).map(|id| vec![id]);
    stated.or_else(own).ok_or_else(|| {
        let message = "missing; set the start tokens";
        Error::new(ErrorKind::Missing, "config.decoder_start_token_id", message)
    })
}

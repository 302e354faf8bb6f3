//! Detection of the tokens that end generation.

use super::token_kind::TokenKind;
use super::vocabulary::Vocabulary;

/// Texts of tokens that end a turn in every model.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Texts of further tokens that end generation.
const END_OF_GENERATION: &[&str] = &[
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Sets `ends` (and `special.eot` if it is not set) from the tokens' texts and roles, and makes every token that ends
/// generation a control token.
pub fn find_ends(vocabulary: &mut Vocabulary) {
    let find = |vocabulary: &Vocabulary, text: &str| {
        vocabulary.tokens.iter().position(|token| token.text == text.as_bytes()).map(|id| id as u32)
    };
    let special = &vocabulary.special;
    let mut ends: Vec<u32> = [special.eos, special.eot].into_iter().flatten().collect();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let Ok(text) = std::str::from_utf8(&token.text) else { continue };
        if END_OF_TURN.contains(&text) || END_OF_GENERATION.contains(&text) {
            ends.push(id as u32);
        }
    }
    ends.sort_unstable();
    ends.dedup();
    let has = |text: &str| find(vocabulary, text).filter(|id| ends.contains(id));
    // These formats use one of the tokens inside a turn.
    let calls = has("<|call|>").is_some() || has("<|calls|>").is_some();
    let inside_turn = if calls && (has("<|return|>").is_some() || has("<|flush|>").is_some()) {
        has("<|end|>")
    } else {
        None
    };
    let plain = if has("<|tool_response>").is_some() { has("</s>") } else { None };
    ends.retain(|&id| Some(id) != inside_turn && Some(id) != plain);
    if let Some(id) = inside_turn {
        vocabulary.tokens[id as usize].kind = TokenKind::UserDefined;
    }
    for &id in &ends {
        if let Some(token) = vocabulary.tokens.get_mut(id as usize) {
            token.kind = TokenKind::Control;
        }
    }
    if vocabulary.special.eot.is_none() {
        vocabulary.special.eot =
            END_OF_TURN.iter().filter_map(|text| find(vocabulary, text)).find(|id| ends.contains(id));
    }
    vocabulary.ends = ends;
}

//! The special tokens around a text, and the roles of tokens.

use super::find;
use super::json::JsonValue;
use siskin_format::Result;
use siskin_tokenizer::{TemplateItem, Trim, Vocabulary};

pub(super) fn read(root: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    vocabulary.single = vec![TemplateItem::First { token_type: 0 }];
    vocabulary.pair = vec![TemplateItem::First { token_type: 0 }, TemplateItem::Second { token_type: 1 }];
    processor(root.get("post_processor"), vocabulary)
}

fn processor(place: Option<JsonValue<'_>>, vocabulary: &mut Vocabulary) -> Result<()> {
    let Some(place) = place else { return Ok(()) };
    match place.kind()? {
        "ByteLevel" => trim(&place, vocabulary)?,
        "Sequence" => {
            for part in place.require("processors")?.list()? {
                processor(Some(part), vocabulary)?;
            }
        }
        "TemplateProcessing" => {
            vocabulary.single = items(&place, "single")?;
            vocabulary.pair = items(&place, "pair")?;
        }
        kind @ ("BertProcessing" | "RobertaProcessing") => {
            if kind == "RobertaProcessing" {
                trim(&place, vocabulary)?;
            }
            let id = |name: &str| -> Result<u32> {
                let pair = place.require(name)?.list()?;
                pair.get(1).ok_or_else(|| place.corrupt("not a token and an id"))?.number()
            };
            let (class, separator) = (id("cls")?, id("sep")?);
            let token = |id, token_type| TemplateItem::Token { id, token_type };
            let first = TemplateItem::First { token_type: 0 };
            vocabulary.special.class = Some(class);
            vocabulary.special.separator = Some(separator);
            vocabulary.single = vec![token(class, 0), first, token(separator, 0)];
            vocabulary.pair = vocabulary.single.clone();
            match kind {
                "BertProcessing" => {
                    vocabulary.pair.extend([TemplateItem::Second { token_type: 1 }, token(separator, 1)]);
                }
                _ => vocabulary.pair.extend([
                    token(separator, 0),
                    TemplateItem::Second { token_type: 0 },
                    token(separator, 0),
                ]),
            }
        }
        other => return Err(place.unsupported(format!("the post-processor {other:?} is not supported"))),
    }
    Ok(())
}

/// Token offsets exclude spaces if the processor says so, and by default.
fn trim(place: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    if place.flag("trim_offsets", true)? && vocabulary.trim == Trim::Nothing {
        vocabulary.trim = Trim::Spaces;
    }
    Ok(())
}

fn items(place: &JsonValue<'_>, name: &str) -> Result<Vec<TemplateItem>> {
    let mut out = Vec::new();
    for item in place.require(name)?.list()? {
        if let Some(sequence) = item.get("Sequence") {
            let token_type = sequence.get("type_id").map_or(Ok(0), |place| place.number())?;
            out.push(match sequence.require("id")?.text()? {
                "A" => TemplateItem::First { token_type },
                "B" => TemplateItem::Second { token_type },
                _ => return Err(sequence.corrupt("neither A nor B")),
            });
            continue;
        }
        let special = item.require("SpecialToken")?;
        let token_type = special.get("type_id").map_or(Ok(0), |place| place.number())?;
        let name = special.require("id")?.text()?;
        for id in place.require("special_tokens")?.require(name)?.require("ids")?.list()? {
            out.push(TemplateItem::Token { id: id.number()?, token_type });
        }
    }
    Ok(out)
}

/// Returns a special token of `tokenizer_config.json`: a string, or an object with one.
fn named<'a>(config: &JsonValue<'a>, name: &str) -> Result<Option<&'a str>> {
    match config.get(name) {
        None => Ok(None),
        Some(place) if place.value.is_string() => place.text().map(Some),
        Some(place) => place.text_of("content"),
    }
}

pub(super) fn read_config(config: &JsonValue<'_>, vocabulary: &mut Vocabulary) -> Result<()> {
    let id = |name: &str| -> Result<Option<u32>> {
        Ok(named(config, name)?.and_then(|text| find(vocabulary, text)))
    };
    let [bos, eos, pad] = [id("bos_token")?, id("eos_token")?, id("pad_token")?];
    let [unknown, separator, class, mask] =
        [id("unk_token")?, id("sep_token")?, id("cls_token")?, id("mask_token")?];
    let special = &mut vocabulary.special;
    special.bos = bos.or(special.bos);
    special.eos = eos.or(special.eos);
    special.pad = pad.or(special.pad);
    special.unknown = special.unknown.or(unknown);
    special.separator = separator.or(special.separator);
    special.class = class.or(special.class);
    special.mask = mask.or(special.mask);
    let has_tokens = vocabulary.single.iter().any(|item| matches!(item, TemplateItem::Token { .. }));
    if !has_tokens {
        let token = |id| TemplateItem::Token { id, token_type: 0 };
        if let Some(id) = bos.filter(|_| config.flag("add_bos_token", false).unwrap_or(false)) {
            vocabulary.single.insert(0, token(id));
            vocabulary.pair.insert(0, token(id));
        }
        if let Some(id) = eos.filter(|_| config.flag("add_eos_token", false).unwrap_or(false)) {
            vocabulary.single.push(token(id));
            vocabulary.pair.push(token(id));
        }
    }
    Ok(())
}

/// Assigns roles by the usual spellings where no file names them, and sets what the template adds.
pub(super) fn guess_roles(vocabulary: &mut Vocabulary) {
    let first = |texts: &[&str]| texts.iter().find_map(|text| find(vocabulary, text));
    let bos = first(&["<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"]);
    let eos = first(&["</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"]);
    let pad = first(&["<pad>", "[PAD]", "<|pad|>"]);
    let separator = first(&["[SEP]"]);
    let class = first(&["[CLS]"]);
    let mask = first(&["[MASK]", "<mask>"]);
    let special = &mut vocabulary.special;
    special.bos = special.bos.or(bos);
    special.eos = special.eos.or(eos);
    special.pad = special.pad.or(pad);
    special.separator = special.separator.or(separator);
    special.class = special.class.or(class);
    special.mask = special.mask.or(mask);
    let is = |item: Option<&TemplateItem>, wanted: Option<u32>| match item {
        Some(TemplateItem::Token { id, .. }) => Some(*id) == wanted,
        _ => false,
    };
    vocabulary.add_bos = is(vocabulary.single.first(), vocabulary.special.bos);
    vocabulary.add_eos = is(vocabulary.single.last(), vocabulary.special.eos);
}

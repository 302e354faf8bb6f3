"""Makes small tokenizer.json files with assorted components and what the `tokenizers` package gives.

usage: make_tokenizer_goldens.py CORPUS.txt OUT_FOLDER [FOLDER_OF_A_REAL_tokenizer.json ...]
Each result is NAME.json.gz: {"tokenizer": …, "cases": [{"text", "ids", "special", "offsets", "decoded"}]};
offsets are in bytes of the text, for byte-level tokenizers widened to whole characters.
"""
import gzip
import json
import os
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

CORPUS, OUT = sys.argv[1:3]
TEXT = open(CORPUS, encoding="utf-8").read()[:400_000]
EXTRA = ["Äpfel über Öl, naïve café – ½ kg … “quotes”", "我想在apple工作1314151天～ ひらがな カタカナ 한국어", "🦙🚀 emoji 👩‍👩‍👧"]
TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", " \n \t x", "Hello world", " Hello world", "Hello  World!  ", "Hello, y'all! How're you?",
    "ROMEO: But, soft! what light through yonder window breaks?\nIt is the east.", "33 333 3333 33333 3.14", "don't I'll we've IT'S 'tis",
    "Äpfel über Öl", "A\u0308pfel ﬁne ① Ⅷ", "我想在apple工作1314151天～", "ひらがな カタカナ ｶﾞ 한국어 각", "🦙.cpp 👩‍👩‍👧 \u200d", "нещо на Български",
    "zero\u200bwidth\u00a0space\u3000end", "control\x07\x00char \ufffd", "CamelCaseWords and_snake_case", "a" * 130, "!!!???...---", "x<mask>y <mask> z",
    "<s>start</s> end [CLS] [SEP]", "<|special|> hi<|special|>", "wordy word words", "▁literal ▁mark", "İstanbul ŞIŞLI straße ǅ", "tab\tand\r\nnewline",
    "q\u0307\u0323 combining", "हिन्दी ภาษาไทย", "ARMADILLO lower Upper", " leading and trailing ",
]


def case(tokenizer, text):
    plain = tokenizer.encode(text, add_special_tokens=False)
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return {
        "text": text, "ids": plain.ids, "special": tokenizer.encode(text).ids,
        "offsets": [[starts[a], starts[b]] for a, b in plain.offsets],
        "decoded": tokenizer.decode(plain.ids, skip_special_tokens=False),
        "pair": tokenizer.encode(text, "second one").ids, "segments": tokenizer.encode(text, "second one").type_ids,
    }


def save(name, tokenizer, texts=()):
    cases = [case(tokenizer, text) for text in [*TEXTS, *texts]]
    body = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
    with gzip.GzipFile(os.path.join(OUT, name + ".json.gz"), "wb", mtime=0) as out:
        out.write(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
    print(name, tokenizer.get_vocab_size(), sum(len(c["ids"]) for c in cases))


def train(tokenizer, trainer):
    lines = TEXT.split("\n\n") + EXTRA * 20
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]


def bpe(pre, normalizer=None, post=None, decoder=None, size=1200, added=(), initial=None, specials=SPECIALS, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoder
    if normalizer:
        tokenizer.normalizer = normalizer
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False,
                                         initial_alphabet=initial or []))
    if len(specials) > 256:  # byte tokens belong to the model, they are not added tokens
        body = json.loads(tokenizer.to_str())
        body["added_tokens"] = [token for token in body["added_tokens"] if not token["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(body))
    if post:
        tokenizer.post_processor = post(tokenizer)
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    return tokenizer


def template(tokenizer):
    ids = {token: tokenizer.token_to_id(token) for token in ("<s>", "</s>")}
    return processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=list(ids.items()))


def main():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    save("bytes-gpt2-prefix", bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel(), initial=alphabet))
    roberta = lambda t: processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=False)
    save("bytes-roberta", bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel(), initial=alphabet, post=roberta,
                              added=[AddedToken("<mask>", lstrip=True, special=True)]))
    llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(llama3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    save("bytes-llama3", bpe(pre, decoder=decoders.ByteLevel(), initial=alphabet, post=template, ignore_merges=True,
                             added=[AddedToken("<|special|>", rstrip=True, special=True), AddedToken("word", single_word=True, special=False)]))
    o200k = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                      r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                      r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(o200k), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    save("bytes-o200k-nfc", bpe(pre, normalizer=normalizers.NFC(), decoder=decoders.ByteLevel(), initial=alphabet))
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    save("bytes-digits", bpe(pre, decoder=decoders.ByteLevel(), initial=alphabet))

    spaces = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    save("spaces-llama", bpe(None, normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), decoder=spaces,
                             post=template, specials=SPECIALS + bytes_, byte_fallback=True, unk_token="<unk>", fuse_unk=True, size=900))
    gemma = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    save("spaces-gemma", bpe(pre_tokenizers.Split(" ", "merged_with_previous"), normalizer=normalizers.Replace(" ", "▁"), decoder=gemma, post=template,
                             specials=SPECIALS + bytes_, byte_fallback=True, unk_token="<unk>", fuse_unk=True, size=900,
                             added=[AddedToken("\n\n", normalized=False, special=False)]))
    for scheme in ("always", "first", "never"):
        save(f"metaspace-{scheme}", bpe(pre_tokenizers.Metaspace(prepend_scheme=scheme), decoder=decoders.Metaspace(prepend_scheme=scheme),
                                        unk_token="<unk>", fuse_unk=scheme == "first", size=600, added=[AddedToken("<mask>", lstrip=True, special=True)]))
    save("chars-unknown", bpe(pre_tokenizers.Whitespace(), unk_token="<unk>", size=500))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior), pre_tokenizers.Digits()])
        save(f"punctuation-{behavior}", bpe(pre, normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
             normalizers.Strip()]), unk_token="<unk>", size=400))

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    train(unigram, trainers.UnigramTrainer(vocab_size=800, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    unigram.post_processor = template(unigram)
    save("unigram-t5", unigram)
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    unigram.decoder = decoders.Metaspace()
    train(unigram, trainers.UnigramTrainer(vocab_size=800, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    save("unigram-xlmr", unigram)

    bert_specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for name, options in (("uncased", {}), ("cased", {"lowercase": False}), ("accents", {"strip_accents": False, "handle_chinese_chars": False})):
        bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer()
        bert.decoder = decoders.WordPiece()
        train(bert, trainers.WordPieceTrainer(vocab_size=800, special_tokens=bert_specials, show_progress=False))
        bert.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        save(f"bert-{name}", bert)

    level = Tokenizer(models.WordLevel(unk_token="<unk>"))
    level.normalizer, level.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    train(level, trainers.WordLevelTrainer(vocab_size=600, special_tokens=SPECIALS, show_progress=False))
    level.add_tokens([AddedToken("armadillo", normalized=True)])
    save("words", level)

    # Text tokens added with `add_tokens`: matched after normalization, before pre-tokenization.
    more = ["word", "word and word", "awordb", "wordword x", " word ", "a  word  b", "WORD Wordy"]
    words = [AddedToken("word", normalized=True, special=False), AddedToken("ghost", single_word=True, special=False)]
    texts = [*more, "ghost", "ghosts", "a ghost!"]
    for scheme in ("always", "first"):
        pre = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        save(f"added-metaspace-{scheme}", bpe(pre, normalizer=normalizers.Lowercase(), decoder=decoders.Metaspace(prepend_scheme=scheme),
                                              unk_token="<unk>", size=300, added=words), texts)
    collapsed = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")])
    save("added-collapsed", bpe(pre_tokenizers.Metaspace(), normalizer=collapsed, decoder=decoders.Metaspace(), unk_token="<unk>", size=300,
                                added=[AddedToken("word", normalized=True, special=False), AddedToken("a b", normalized=True, special=False)]),
         [*texts, "xa  bx", "a b c"])
    pre = pre_tokenizers.ByteLevel(add_prefix_space=True)
    save("added-bytes", bpe(pre, normalizer=normalizers.Lowercase(), decoder=decoders.ByteLevel(), initial=alphabet, size=400, added=words), texts)
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer, unigram.decoder = normalizers.Lowercase(), decoders.Metaspace()
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    train(unigram, trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    unigram.add_tokens(words)
    save("unigram-xlmr-added", unigram, texts)
    level = Tokenizer(models.WordLevel(unk_token="<unk>"))
    level.pre_tokenizer, level.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    train(level, trainers.WordLevelTrainer(vocab_size=300, special_tokens=SPECIALS, show_progress=False))
    save("words-metaspace", level)
    whole = Tokenizer(models.BPE({"<unk>": 0, "a": 1, "b": 2, "c": 3, "x": 4, "abc": 5, "bc": 6, "word": 7}, [("b", "c")],
                                 unk_token="<unk>", ignore_merges=True))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    save("chars-whole-first", whole, ["abc", "abcx", "xabc abc", "abcabc"])
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    train(bert, trainers.WordPieceTrainer(vocab_size=200, special_tokens=bert_specials, show_progress=False))
    bert.decoder = decoders.WordPiece()
    controls = [f"xa{chr(point)}ya" for point in (0, 7, 9, 10, 11, 12, 13, 28, 31, 0x7F, 0x85, 0xA0, 0xAD, 0x200B, 0x2028, 0x2029, 0xE000, 0xFFFD)]
    save("bert-controls", bert, controls)

    for folder in sys.argv[3:]:
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        save(os.path.basename(folder.rstrip("/")), tokenizer)


main()

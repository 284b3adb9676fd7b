"""Ids made once: those of the model's own preprocessing, text for text, in every family of tokenizers."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from foils.encode import SentenceEncoder, VectorStore
from foils.encode import encoder as forward_module
from foils.encode.encoder import EncoderSettings, logits, model_outputs
from foils.encode.tokens import kept_tokens, one_ahead, plain_tokenizer
from foils.runtime.errors import FailureError
from train_models import static_model

SENTENCES = [
    "The boat's three oars are made of ash, and the keel is its spine.",
    "Ein Brot, das über Nacht reift — und größer wird; café, naïve, 東京.",
    "def f(x):\n\treturn x ** 2  # squares",
    "",
    "   ",
    "wind",
    "<ent> <|end|> [SEP] <s> </s> special names inside a text",
    "a long one that has to be cut " * 12,
    "emoji 🚣‍♀️ and accents é̀ a\u0301",
]
LENGTH = 24


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=180, special_tokens=special))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bpe(*, added: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["[PAD]", "<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), add_prefix_space=False)
    if added:
        tokenizer.add_tokens([AddedToken("<ent>", lstrip=True, rstrip=True), AddedToken("oars", single_word=True)])
        tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["[PAD]", "<s>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(SENTENCES, trainer)
    template = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B:1 </s>:1"}
    tokenizer.post_processor = processors.TemplateProcessing(**template, special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def qwen() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}|\s+|[^\s\p{L}\p{N}]+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["[PAD]", "<|end|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|end|>", pair="$A $B:1 <|end|>", special_tokens=[("<|end|>", 1)]
    )
    return tokenizer


FAMILIES = {
    "wordpiece": wordpiece,
    "bpe": bpe,
    "bpe with added tokens": lambda: bpe(added=True),
    "unigram": unigram,
    "qwen": qwen,
}


def saved(place: Path, family: str, kind: type, **sides: Any) -> Path:
    """Save a BERT of one layer behind a tokenizer of a family."""
    tokenizer = FAMILIES[family]()
    names = (
        ["input_ids", "attention_mask"]
        if family in ("bpe", "qwen")
        else ["input_ids", "token_type_ids", "attention_mask"]
    )
    special = {"wordpiece": {"unk_token": "[UNK]"}, "unigram": {"unk_token": "<unk>"}}.get(family, {})
    own = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        model_max_length=LENGTH,
        model_input_names=names,
        **special,
        **sides,
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=500, hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16,
        max_position_embeddings=64, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    kind(config).save_pretrained(place)
    own.save_pretrained(place)
    return place


def encoder_model(place: Path, family: str, **sides: Any) -> SentenceTransformer:
    transformer = Transformer(str(saved(place, family, BertModel, **sides)))
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")


def same(batch: Any, expected: Any) -> None:
    assert batch.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert batch[name].dtype == value.dtype
            assert torch.equal(batch[name], value), name
        else:
            assert batch[name] == value


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("truncation", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_masks_are_the_models_own_text_for_text(family, truncation, padding, tmp_path):
    model = encoder_model(tmp_path, family, truncation_side=truncation, padding_side=padding)
    for prompt in ("", "query: "):
        tokenize = plain_tokenizer(model, prompt=prompt, task="query")
        assert tokenize is not None
        before = model.tokenizer.backend_tokenizer.to_str()
        tokens = tokenize(SENTENCES)
        assert model.tokenizer.backend_tokenizer.to_str() == before, "the tokenizer is left as it was"
        assert tokens.lengths.max() == LENGTH
        for rows in (range(len(SENTENCES)), [5], [8, 0, 2], [7, 5]):
            texts = [SENTENCES[row] for row in rows]
            same(tokens.batch(np.array(rows)), model.preprocess(texts, prompt=prompt or None, task="query"))
    own = model.encode(SENTENCES, prompt="query: ", normalize_embeddings=True)
    encoder = SentenceEncoder(model, EncoderSettings(document_prompt="query: "))
    np.testing.assert_allclose(encoder.encode(SENTENCES, "document"), own, atol=1e-6)


@pytest.mark.parametrize("truncation", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_cut_where_they_are_longest_as_by_the_model(family, truncation, tmp_path):
    place = saved(tmp_path, family, BertForSequenceClassification, truncation_side=truncation, padding_side="right")
    model = CrossEncoder(str(place), device="cpu", prompts={"rank": "find: "}, default_prompt_name="rank")
    pairs = [(first, second) for first in SENTENCES for second in SENTENCES[::2]]
    tokenize = plain_tokenizer(model, prompt="find: ", pairs=True)
    assert tokenize is not None
    same(tokenize(pairs).batch(np.arange(len(pairs))), model.preprocess(pairs, prompt="find: "))
    own = model.predict(pairs, activation_fn=torch.nn.Identity())
    assert np.ptp(own) > 0.01
    np.testing.assert_allclose(logits(model, pairs), own, atol=2e-6)


def test_another_length_side_or_prompt_is_another_tokenizer(tmp_path):
    model = encoder_model(tmp_path, "wordpiece")
    for change in (
        lambda: setattr(model, "max_seq_length", 9),
        lambda: setattr(model.tokenizer, "padding_side", "left"),
        lambda: setattr(model.tokenizer, "truncation_side", "left"),
        lambda: model.tokenizer.add_tokens(["boat"]),
    ):
        change()
        tokenize = plain_tokenizer(model)
        assert tokenize is not None
        same(tokenize(SENTENCES).batch(np.arange(len(SENTENCES))), model.preprocess(SENTENCES))
        assert plain_tokenizer(model) is tokenize
        assert plain_tokenizer(model, prompt="of ") is not tokenize


def test_word_tables_take_ids_without_padding():
    model = static_model(dimension=8, words=["boat", "wind", "bread"])
    tokenize = plain_tokenizer(model, prompt="boat ", task="document")
    assert tokenize is not None
    texts = ["wind bread", "", "boat", "bread wind wind unknown"]
    same(tokenize(texts).batch(np.arange(4)), model.preprocess(texts, prompt="boat "))
    own = model.encode(texts, prompt="boat ")
    np.testing.assert_allclose(model_outputs(model, texts, 8, tokenize, task="document"), own, atol=1e-6)


def test_what_is_no_plain_tokenizer_is_embedded_by_the_model_itself(tmp_path, monkeypatch):
    """Processing arguments, a preprocessing of a model's own, a chat template: the model makes its batches itself."""

    def encoded(model: SentenceTransformer) -> Any:
        return SentenceEncoder(model, EncoderSettings(similarity="dot")).encode(SENTENCES, "document")

    model = encoder_model(tmp_path, "wordpiece")
    own = model.encode(SENTENCES)
    model[0].processing_kwargs = {"text": {"max_length": 7}}
    assert plain_tokenizer(model) is None
    cut = model.encode(SENTENCES)
    assert np.abs(cut - own).max() > 1e-3
    np.testing.assert_allclose(encoded(model), cut, atol=1e-6)
    other = encoder_model(tmp_path, "wordpiece")
    preprocess = other[0].preprocess
    monkeypatch.setattr(other[0], "preprocess", lambda inputs, **more: preprocess([t[::-1] for t in inputs], **more))
    assert plain_tokenizer(other) is None
    np.testing.assert_allclose(encoded(other), other.encode(SENTENCES), atol=1e-6)


def test_texts_that_come_again_are_not_tokenised_again(tmp_path, monkeypatch):
    model = encoder_model(tmp_path, "unigram")
    kept = kept_tokens(model, prompt="of ")
    assert kept is not None
    assert kept_tokens(model, prompt="of ") is kept
    tokenize, asked = kept._tokenizer, []
    monkeypatch.setattr(kept, "_tokenizer", Counting(tokenize, asked))
    for texts in (SENTENCES[:5], SENTENCES[3:], [SENTENCES[1], SENTENCES[1], SENTENCES[7]]):
        same(kept(texts).batch(np.arange(len(texts))), model.preprocess(texts, prompt="of "))
    assert sorted(asked) == sorted(SENTENCES)


def test_ids_of_many_texts_are_mapped_from_the_cache(tmp_path, monkeypatch):
    """Made once for all models of one tokenizer, prompt and length."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("foils.encode.tokens.LEAST_KEPT", 5)
    places = {family: saved(tmp_path / family, family, BertModel) for family in ("wordpiece", "bpe")}
    texts, asked = [*SENTENCES, SENTENCES[2]], list[str]()

    def filled(
        texts: list[str], size: int = 4, *, prompt: str = "of ", family: str = "wordpiece", cut: int = 24
    ) -> Any:
        model = SentenceTransformer(modules=[Transformer(str(places[family])), Pooling(16)], device="cpu")
        model.max_seq_length = cut
        kept = kept_tokens(model, prompt=prompt)
        assert kept is not None
        asked.clear()
        monkeypatch.setattr(kept, "_tokenizer", Counting(kept._tokenizer, asked))
        kept.fill([texts[:3], texts[3:]])
        for some in (texts, ["boat", *texts[2:]]):
            same(kept(some).batch(np.arange(len(some))), model.preprocess(some, prompt=prompt))
        return [*asked], len([*tmp_path.glob("cache/tokens/*/meta.json")])

    assert filled(texts) == ([*SENTENCES, "boat"], 1)
    monkeypatch.setattr("foils.encode.tokens.AT_ONCE", 2)
    assert filled(texts) == (["boat"], 1)
    assert filled(texts, cut=9) == ([*SENTENCES, "boat"], 2)
    assert filled(texts, prompt="in ") == ([*SENTENCES, "boat"], 3)
    assert filled(texts, family="bpe") == ([*SENTENCES, "boat"], 4)
    assert filled(texts[:6]) == ([*SENTENCES[:6], "boat"], 5)
    assert filled(texts[:4]) == ([*SENTENCES[:4], "boat"], 5), "few texts are not worth a folder"


class Counting:
    """A tokenizer that notes what it is asked for."""

    def __init__(self, tokenize: Any, asked: list[str]) -> None:
        self.tokenize, self.asked = tokenize, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenize, name)

    def __call__(self, texts: Any) -> Any:
        self.asked += texts
        return self.tokenize(texts)


def test_threads_share_a_tokenizer(tmp_path):
    model = encoder_model(tmp_path, "bpe")
    texts = [f"{sentence} {row}" for row in range(60) for sentence in SENTENCES]
    tokenize = plain_tokenizer(model)
    assert tokenize is not None
    alone = tokenize(texts)
    found: list[Any] = [None] * 3

    def work(place: int) -> None:
        found[place] = tokenize(texts)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in found:
        np.testing.assert_array_equal(each.ids, alone.ids)
        np.testing.assert_array_equal(each.lengths, alone.lengths)


def test_a_batch_that_memory_does_not_hold_is_halved_with_a_line(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # batches one after the other
    model = encoder_model(tmp_path, "wordpiece")
    expected, sizes, tokenize = model.encode(SENTENCES), [], plain_tokenizer(model)
    assert tokenize is not None
    tokens = len(SENTENCES) * int(tokenize(SENTENCES).lengths.max())
    monkeypatch.setitem(forward_module.TOKENS, "cpu", tokens)

    def refuse(module: Any, given: Any) -> None:
        sizes.append(len(given[0]["input_ids"]))
        if sizes[-1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")

    handle = model[0].register_forward_pre_hook(refuse)
    with caplog.at_level(logging.WARNING, "foils"):
        for _ in range(2):
            np.testing.assert_allclose(model_outputs(model, SENTENCES, 16, tokenize), expected, atol=1e-6)
    assert [each.getMessage() for each in caplog.records] == [
        f"cpu is out of memory: from now on a batch has half as many tokens, {tokens // 2}"
    ]
    assert sizes[:4] == [9, 5, 4, 4]
    assert sum(sizes[3:]) == len(SENTENCES), "none is refused again"
    handle.remove()

    def never(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model[0].register_forward_pre_hook(never)
    with pytest.raises(FailureError, match="does not hold the model and one text"):
        model_outputs(model, SENTENCES, 16, tokenize)


def test_items_made_one_ahead_come_in_order_and_errors_with_them():
    assert list(one_ahead(iter(range(7)))) == list(range(7))
    assert list(one_ahead(iter([]))) == []

    def broken() -> Any:
        yield 1
        raise ValueError("two")

    items = one_ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="two"):
        next(items)


def test_the_store_gives_an_encoder_as_many_texts_as_it_likes_at_once(tmp_path):
    class Fast:
        name, dimension, fingerprint, at_once = "fast", 2, "f" * 8, 3_000

        def __init__(self) -> None:
            self.sizes: list[int] = []

        def route(self, kind: str) -> str:
            return ""

        def encode(self, texts: Any, kind: str) -> Any:
            self.sizes.append(len(texts))
            return np.array([[len(text), int(text[1:])] for text in texts], np.float32)

    encoder, texts = Fast(), [f"t{row}" for row in range(7_000)]
    found = VectorStore(tmp_path).embed(encoder, texts, "document").take(slice(None))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found[:, 1], np.arange(7_000))
    assert encoder.sizes == [3_000, 3_000, 1_000]
    assert SentenceEncoder(static_model(dimension=8, words=["boat"])).at_once == forward_module.WINDOW

"""Token ids equal those of Hugging Face `tokenizers` and `sentencepiece` built from the same vocabulary."""

import functools
import pathlib
import re

import gguf
import gguf_bytes
import pytest

import tokenizer_oracle as oracle
from tokenizer_oracle import CONTROL, DATA, USER_DEFINED, Millrace, Vocab

VOCABULARIES = ["smollm2-135m", "gemma3-270m", "llama-bpe", "qwen2", "gpt-2", "deepseek-llm", "deepseek-coder",
                "phi-3", "llama-spm", "qwen35"]
# Rules that the ones above have too, on other vocabularies.
MORE = ["command-r", "starcoder", "refact", "mpt", "baichuan"]
WITH_VECTORS = ["llama-bpe", "qwen2", "gpt-2", "deepseek-llm", "deepseek-coder", "phi-3", "llama-spm", "qwen35",
                "command-r", "starcoder", "refact", "mpt"]
# Names of tokenizer.ggml.pre without a vocabulary of their own here: run on another one's.
BORROWERS = {"deepseek-v3": "gpt-2", "tekken": "llama-bpe"}
# A vocabulary for the names of each definition.
VOCAB_OF = {"gpt-2": "gpt-2", "smollm": "smollm2-135m", "llama-bpe": "llama-bpe", "qwen2": "qwen2",
            "deepseek-v3": "gpt-2"}
ALIASES = [(same_as, alias) for same_as, names in oracle.ALIASES.items() for alias in names]
MIXED_BYTES = 2_100_000


def path_of(name):
    return oracle.vocab_path(name)


@functools.lru_cache(maxsize=1)
def loaded(path):
    """Tests run grouped by vocabulary: only the last one stays in memory."""
    vocab = Vocab(path)
    return vocab, oracle.build_oracle(vocab), Millrace(path)


@functools.lru_cache(maxsize=2)
def mixed(name, n_bytes=MIXED_BYTES):
    return list(oracle.mixed_texts(oracle.seeded(name), n_bytes))


def patched(path, target, **changes):
    """A vocabulary-only copy with tokenizer.ggml.* values replaced, or dropped (None)."""
    file = gguf_bytes.File([v for v in oracle.read_values(path) if v[0].startswith("tokenizer.ggml.")])
    for key, change in changes.items():
        if change is None:
            file.drop(f"tokenizer.ggml.{key}")
        else:
            file.set(f"tokenizer.ggml.{key}", *change)
    return file.write(target)


def assert_same_ids(vocab, texts, want, got):
    assert len(want) == len(got) == len(texts)
    for text, expected, ours in zip(texts, want, got):
        if expected != ours:
            at = next((i for i, (a, b) in enumerate(zip(expected, ours)) if a != b),
                      min(len(expected), len(ours)))

            def around(ids):
                return [(i, vocab.tokens[i]) for i in ids[max(0, at - 2):at + 4]]

            pytest.fail(f"token {at} of {text[:200]!r}: oracle {around(expected)}, ours {around(ours)}")


def all_code_points():
    texts = list(oracle.every_code_point()) + list(oracle.byte_texts())
    assert set("".join(texts)) == {chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF}
    return texts


@pytest.mark.parametrize("name", VOCABULARIES + MORE, scope="module")
class TestVocabulary:
    def test_mixed_text_gives_the_oracles_ids(self, name):
        vocab, reference, ours = loaded(path_of(name))
        texts = mixed(name)
        assert sum(len(t.encode()) for t in texts) >= 2_000_000
        got = ours.encode_batch(texts, False)
        assert sum(map(len, got)) > 400_000
        assert_same_ids(vocab, texts, reference.encode_batch(texts, False), got)

    @pytest.mark.parametrize("parse_special", [False, True])
    def test_texts_of_added_tokens_give_the_oracles_ids(self, name, parse_special):
        vocab, reference, ours = loaded(path_of(name))
        texts = list(oracle.special_texts(oracle.seeded(name), vocab, 1500))
        got = ours.encode_batch(texts, parse_special)
        assert_same_ids(vocab, texts, reference.encode_batch(texts, parse_special), got)
        control = set(vocab.of_kind(CONTROL).values())
        assert any(control.intersection(ids) for ids in got) == parse_special

    def test_decoding_gives_the_text_back(self, name):
        vocab, _, ours = loaded(path_of(name))
        texts = representable(vocab, mixed(name) + list(oracle.byte_texts()))
        texts += oracle.special_texts(oracle.seeded(name), vocab, 500)
        for parse_special in (False, True):
            ids = ours.encode_batch(texts, parse_special)
            assert ours.decode_batch(ids) == texts
            assert ours.decode_batch(ids, stepwise=True) == texts


def representable(vocab, texts):
    """What the vocabulary can say: no U+2581, which means a space; some byte-level vocabularies lack
    bytes, and the oracle drops the characters that need them."""
    if vocab.meta("model") == "llama":
        return [t.replace("\u2581", "") for t in texts]
    tokens = set(vocab.tokens)
    missing = {byte for byte, char in byte_alphabet().items() if char not in tokens}
    return ["".join(c for c in t if not missing.intersection(c.encode())) for t in texts] if missing else texts


def byte_alphabet():
    """{byte: character}, read off the ByteLevel pre-tokenizer; bytes that no UTF-8 text holds are left out."""
    points = [*range(0x800), *range(0x800, 0xD800, 64), *range(0xE000, 0x10000, 64), *range(0x10000, 0x110000, 4096)]
    alphabet = {}
    for c in map(chr, points):
        alphabet.update(zip(c.encode(), oracle.byte_level(False).pre_tokenize_str(c)[0][0]))
    assert len(alphabet) == 256 - 13
    return alphabet


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_code_point_and_byte_value_gives_the_oracles_ids(name):
    vocab, reference, ours = loaded(path_of(name))
    texts = all_code_points()
    assert_same_ids(vocab, texts, reference.encode_batch(texts, False), ours.encode_batch(texts, False))


@pytest.mark.parametrize("name", ["smollm2-135m", "llama-bpe", "deepseek-llm", "gemma3-270m", "llama-spm"])
def test_long_runs_of_one_character_give_the_oracles_ids(name):
    vocab, reference, ours = loaded(path_of(name))
    texts = [c * (200_000 // len(c.encode())) + end for c in "aA \n\t7=的😀\u0301" for end in ("", "x")]
    assert_same_ids(vocab, texts, reference.encode_batch(texts, False), ours.encode_batch(texts, False))


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_published_vectors(name):
    base = DATA / "vocabs" / f"ggml-vocab-{name}.gguf"
    texts = base.with_name(base.name + ".inp").read_text().split("\n__ggml_vocab_test__\n")
    lines = base.with_name(base.name + ".out").read_text().split("\n")
    want = [[int(i) for i in line.split()] for line in lines[:len(texts)]]
    assert len(texts) > 40
    assert Millrace(base).encode_batch(texts, False) == want


def check_borrowed(pre, name, target, texts):
    path = patched(path_of(name), target, pre=(gguf_bytes.STRING, pre))
    vocab = Vocab(path)
    reference, ours = oracle.build_oracle(vocab), Millrace(path)
    assert_same_ids(vocab, texts, reference.encode_batch(texts, False), ours.encode_batch(texts, False))


@pytest.mark.parametrize("pre", BORROWERS)
def test_other_pre_tokenizers_cut_as_published(pre, tmp_path):
    check_borrowed(pre, BORROWERS[pre], tmp_path / "vocab.gguf", mixed("borrowed") + all_code_points())


@functools.lru_cache(maxsize=2)
def ids_of_family(same_as, ignore_merges):
    """What the definition gives, by a name of it that has the flag: texts and ids of the oracle."""
    names = [n for n in [same_as, *oracle.ALIASES[same_as]] if (n in oracle.IGNORE_MERGES) == ignore_merges]
    vocab = Vocab(path_of(VOCAB_OF[same_as]))
    texts = mixed("aliases", 300_000)
    return vocab, texts, oracle.build_oracle(vocab, names[0]).encode_batch(texts, False)


@pytest.mark.parametrize("same_as, alias", ALIASES, ids=[alias for _, alias in ALIASES])
def test_other_names_mean_the_same_pre_tokenizer(same_as, alias):
    """By the option, which takes the same names as the key of the file."""
    vocab, texts, want = ids_of_family(same_as, alias in oracle.IGNORE_MERGES)
    assert_same_ids(vocab, texts, want, Millrace(vocab.path, alias).encode_batch(texts, False))


@pytest.mark.parametrize("alias", ["smaug-bpe", "falcon3", "mellum", "stablelm2", "codeshell"])
def test_other_names_are_taken_from_the_file(alias, tmp_path):
    same_as = next(s for s, names in oracle.ALIASES.items() if alias in names)
    check_borrowed(alias, VOCAB_OF[same_as], tmp_path / "vocab.gguf", mixed("aliases", 300_000))


def known_names():
    text = (pathlib.Path(__file__).parents[2] / "engine/text/pretok.def").read_text()
    return re.findall(r'^PRE\("([^"]+)"', text, re.M)


def test_every_name_is_compared_with_an_oracle():
    names = known_names()
    assert len(names) == len(set(names)) and set(names) == set(oracle.PRE_TOKENIZERS)


def test_names_add_a_bos_where_the_file_says_nothing_as_published(tmp_path):
    path = patched(path_of("gpt-2"), tmp_path / "v.gguf", add_bos_token=None, bos_token_id=(gguf_bytes.U32, 50256))
    assert {n for n in known_names() if Millrace(path, n).adds_bos} == oracle.ADDS_BOS


# ---- files that name no pre-tokenizer ----

@pytest.mark.parametrize("pre", [None, (gguf_bytes.STRING, "default")], ids=["missing", "default"])
def test_llama_3_is_recognised_by_its_vocabulary(pre, tmp_path):
    path = patched(path_of("llama-bpe"), tmp_path / "v.gguf", pre=pre)
    texts = mixed("aliases", 300_000)
    ours = Millrace(path)
    assert ours.encode_batch(texts, False) == Millrace(path_of("llama-bpe")).encode_batch(texts, False)
    assert ours.adds_bos


def with_more_tokens(target, n):
    """Fine-tunes of Llama 3 add tokens behind its own."""
    vocab = Vocab(path_of("llama-bpe"))
    return patched(vocab.path, target, pre=None, tokens=(gguf_bytes.ARRAY, gguf_bytes.array(
        gguf_bytes.STRING, vocab.tokens + [f"<|added_{i}|>" for i in range(n)])),
        token_type=(gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, vocab.kinds + [CONTROL] * n)))


def test_llama_3_with_tokens_added_is_recognised(tmp_path):
    ours = Millrace(with_more_tokens(tmp_path / "v.gguf", 32))
    assert ours.encode_batch(["Hello <|added_31|>"], True) == [[9906, 220, 128287]]


@pytest.mark.parametrize("n_tokens", [128255, 128000, 1])
def test_another_vocabulary_is_not_taken_for_llama_3(n_tokens, tmp_path):
    vocab = Vocab(path_of("llama-bpe"))
    path = patched(vocab.path, tmp_path / "v.gguf", pre=None, merges=(gguf_bytes.ARRAY, gguf_bytes.array(
        gguf_bytes.STRING, [])),
        tokens=(gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.STRING, vocab.tokens[:n_tokens])),
        token_type=(gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, vocab.kinds[:n_tokens])))
    assert refusal(path) == f"byte-level tokenizer: the file lacks tokenizer.ggml.pre{WAY_OUT}"


def test_the_option_replaces_the_name_of_the_file(tmp_path):
    path = patched(path_of("qwen2"), tmp_path / "v.gguf", pre=(gguf_bytes.STRING, "nonesuch"))
    texts = mixed("aliases", 100_000)
    want = Millrace(path_of("qwen2")).encode_batch(texts, False)
    assert Millrace(path, "qwen2").encode_batch(texts, False) == want
    assert Millrace(path_of("qwen2")).encode_batch(["x\n\ny"], False) == [[87, 271, 88]]
    assert Millrace(path_of("qwen2"), "gpt-2").encode_batch(["x\n\ny"], False) == [[87, 198, 198, 88]]


def test_the_option_is_refused_where_it_can_have_no_effect():
    ours = Millrace(path_of("llama-spm"), "gpt-2")
    assert ours.info.decode() == "tokenizer.pre is for byte-level vocabularies, this one is SentencePiece's"


def test_our_reader_of_vocabularies_agrees_with_the_gguf_package():
    vocab = Vocab(path_of("deepseek-coder"))
    fields = gguf.GGUFReader(vocab.path).fields
    keys = [key for key, _, _ in vocab.values if key.startswith("tokenizer.ggml.")]
    assert len(keys) >= 8
    for key in keys:
        assert vocab.meta(key.removeprefix("tokenizer.ggml.")) == fields[key].contents()


# ---- rules of the metadata ----

BOS_EOS = {  # adds_bos, adds_eos
    "smollm2-135m": (0, 0), "gemma3-270m": (1, 0), "llama-bpe": (1, 0), "qwen2": (0, 0), "gpt-2": (0, 0),
    "deepseek-llm": (1, 0), "deepseek-coder": (1, 0), "phi-3": (1, 0), "llama-spm": (1, 0), "baichuan": (1, 0)}


@pytest.mark.parametrize("name", BOS_EOS)
def test_bos_is_added_once_and_only_where_the_model_wants_it(name):
    ours = Millrace(path_of(name))
    assert (ours.adds_bos, ours.adds_eos) == BOS_EOS[name]
    vocab = Vocab(path_of(name))
    bos = vocab.tokens[ours.bos]
    texts = ["", "Hello", bos, bos + "Hello", bos + bos + "Hello"]
    bare = ours.encode_batch(texts, True)
    full = ours.encode_batch(texts, True, add_special=True)
    front = [ours.bos] if ours.adds_bos else []
    assert full == [front + bare[0], front + bare[1], *bare[2:]]
    assert bare[0] == [] and bare[2] == [ours.bos] and bare[4][:2] == [ours.bos] * 2
    # As plain text the same characters are no BOS, so one is added.
    assert ours.encode_batch(texts, False, add_special=True)[3] == front + ours.encode_batch(texts, False)[3]


def test_eos_is_added_once_where_the_file_says_so(tmp_path):
    path = patched(path_of("llama-spm"), tmp_path / "v.gguf", add_eos_token=(gguf_bytes.BOOL, 1),
                   add_bos_token=(gguf_bytes.BOOL, 0))
    ours = Millrace(path)
    assert ours.encode_batch(["a", "a</s>"], True, add_special=True) == [[263, 2], [263, 2]]


STOPS = {
    "smollm2-135m": ["<|endoftext|>", "<|im_end|>"], "gemma3-270m": ["<eos>", "<end_of_turn>"],
    "llama-bpe": ["<|end_of_text|>", "<|eot_id|>"], "qwen2": ["<|endoftext|>", "<|im_end|>"],
    "gpt-2": ["<|endoftext|>"], "deepseek-llm": ["<｜end▁of▁sentence｜>"],
    # "</s>" of Phi-3 is no control token, so it does not stop
    "deepseek-coder": ["<｜end▁of▁sentence｜>"], "phi-3": ["<|endoftext|>", "<|end|>"],
    "llama-spm": ["</s>"], "command-r": ["<EOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"]}


@pytest.mark.parametrize("name", STOPS)
def test_stop_tokens(name):
    vocab = Vocab(path_of(name))
    assert [vocab.tokens[i] for i in Millrace(path_of(name)).stop] == STOPS[name]


def test_metadata_adds_stop_tokens(tmp_path):
    path = patched(path_of("gpt-2"), tmp_path / "v.gguf", eos_token_id=(gguf_bytes.U32, 7),
                   eot_token_id=(gguf_bytes.U32, 9), eom_token_id=(gguf_bytes.U32, 3),
                   eos_token_ids=(gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, [11, 7])))
    assert Millrace(path).stop == [3, 7, 9, 11, 50256]


# ---- what is refused ----

WAY_OUT = ("; --tokenizer.pre NAME chooses one of gpt-2, smollm, llama-bpe, qwen2, qwen35, tekken, deepseek-llm, "
           "deepseek-coder, deepseek-v3")


def refusal(path):
    ours = Millrace(path)
    assert ours.status != 0
    return ours.info.decode()


def test_the_file_of_version_2_names_the_missing_pre_tokenizer():
    assert refusal(path_of("aquila")) == "byte-level tokenizer: the file lacks tokenizer.ggml.pre" + WAY_OUT


REFUSED = {
    "both missing": ("gpt-2", {"merges": None, "pre": None},
                     "byte-level tokenizer: the file lacks tokenizer.ggml.merges and tokenizer.ggml.pre"),
    "no merges": ("gpt-2", {"merges": None}, "byte-level tokenizer: the file lacks tokenizer.ggml.merges"),
    "unknown pre": ("gpt-2", {"pre": (gguf_bytes.STRING, "nonesuch")}, "pre-tokenizer 'nonesuch' is not supported" + WAY_OUT),
    "default pre": ("gpt-2", {"pre": (gguf_bytes.STRING, "default")},
                    "pre-tokenizer 'default' is not supported" + WAY_OUT),
    "pre of another rule": ("gpt-2", {"pre": (gguf_bytes.STRING, "seed-coder")},
                            "pre-tokenizer 'seed-coder' is not supported" + WAY_OUT),
    "unknown model": ("gpt-2", {"model": (gguf_bytes.STRING, "t6")}, "tokenizer model 't6' is not supported"),
    "pre with a line end": ("gpt-2", {"pre": (gguf_bytes.STRING, "non\nsuch\u2028")},
                            "pre-tokenizer 'non?such???' is not supported" + WAY_OUT),
    "model with a line end": ("gpt-2", {"model": (gguf_bytes.STRING, "t\n6")}, "tokenizer model 't?6' is not supported"),
    "no model": ("gpt-2", {"model": None}, "tokenizer: the file lacks tokenizer.ggml.model"),
    "no tokens": ("gpt-2", {"tokens": None}, "tokenizer: the file lacks tokenizer.ggml.tokens"),
    "merge of nothing known": (
        "gpt-2", {"merges": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.STRING, ["! ☃"]))},
        "tokenizer.ggml.merges: entry 0 names a token that the vocabulary lacks"),
    "merge of one": ("gpt-2", {"merges": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.STRING, ["! !", "!!"]))},
                     "tokenizer.ggml.merges: entry 1 is no pair"),
    "no scores": ("llama-spm", {"scores": None}, "sentencepiece tokenizer: the file lacks tokenizer.ggml.scores"),
    "few scores": ("llama-spm", {"scores": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.F32, [1.0]))},
                   "tokenizer.ggml.scores: 1 entries for 32000 tokens"),
    "scores not finite": (
        "llama-spm",
        {"scores": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.F32, [0.0] * 31999 + [float("nan")]))},
        "tokenizer.ggml.scores: entry 31999 is not finite"),
    "few types": ("llama-spm", {"token_type": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, [1]))},
                  "tokenizer.ggml.token_type: 1 entries for 32000 tokens"),
    "bad type": ("llama-spm",
                 {"token_type": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, [1] * 31999 + [9]))},
                 "tokenizer.ggml.token_type: token 31999 has type 9"),
    "bos out of range": ("llama-spm", {"bos_token_id": (gguf_bytes.U32, 32000)},
                         "tokenizer.ggml.bos_token_id: 32000, but there are 32000 tokens"),
    "a normaliser": ("llama-spm", {"remove_extra_whitespaces": (gguf_bytes.BOOL, 1)},
                     "tokenizer.ggml.remove_extra_whitespaces is not supported"),
    "a character map": (
        "llama-spm", {"precompiled_charsmap": (gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.U8, [1]))},
        "tokenizer.ggml.precompiled_charsmap is not supported"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(case, tmp_path):
    name, changes, text = REFUSED[case]
    assert refusal(patched(path_of(name), tmp_path / "v.gguf", **changes)) == text


@pytest.mark.parametrize("name", ["bert-bge", "gemma-4", "nomic-bert-moe", "falcon", "gpt-neox"])
def test_kinds_not_served_are_refused_by_name(name):
    texts = {"bert-bge": "tokenizer model 'bert' is not supported",
             "gemma-4": "tokenizer model 'gemma4' is not supported",
             "nomic-bert-moe": "tokenizer model 't5' is not supported",
             "falcon": "pre-tokenizer 'falcon' is not supported" + WAY_OUT,
             "gpt-neox": "byte-level tokenizer: the file lacks tokenizer.ggml.pre" + WAY_OUT}
    assert refusal(path_of(name)) == texts[name]


def test_text_that_is_not_utf8_is_refused():
    ours = Millrace(path_of("gpt-2"))
    bad = b"ab\xffc"
    (_, (status, text)) = ours.run([(0, 0, len(bad), bad)])
    assert status != 0 and text == b"text is not valid utf-8 at byte 2"


def test_token_outside_the_vocabulary_is_refused():
    ours = Millrace(path_of("gpt-2"))
    for token in (-1, 50257):
        (_, (status, text)) = ours.run([(1, 0, 1, token.to_bytes(4, "little", signed=True))])
        assert status != 0 and text.decode() == f"token {token} is not in the vocabulary of 50257 tokens"


def test_user_defined_texts_are_found_even_when_specials_are_not_parsed():
    vocab, _, ours = loaded(path_of("gemma3-270m"))
    users = vocab.of_kind(USER_DEFINED)
    texts = ["<table>\n\n\tx</table>", "a    b", "<eos>"]
    got = ours.encode_batch(texts, False)
    assert got[0][:3] == [users["<table>"], users["\n\n"], users["\t"]]
    assert users["    "] in got[1] and ours.eos not in got[2]

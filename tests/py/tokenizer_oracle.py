"""Independent tokenizers built from a GGUF's own vocabulary, and the text they are compared on.

Byte-level vocabularies: Hugging Face `tokenizers`, with the pre-tokenizer definition that the model
family published in its tokenizer.json (or its Python source). SentencePiece vocabularies:
`sentencepiece`, from a model file written here field by field.
"""
import os
import pathlib
import random
import re
import struct
import subprocess

import gguf_bytes
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
DATA = pathlib.Path(os.environ["MILLRACE_TEST_DATA"])
BUILD = pathlib.Path(os.environ["MILLRACE_BUILD"])


def vocab_path(name):
    models_dir = DATA / "models" / f"{name}.gguf"
    return models_dir if models_dir.exists() else DATA / "vocabs" / f"ggml-vocab-{name}.gguf"


def read_values(path):
    """[(key, type, raw payload)] of a GGUF; its values only. (The PyPI reader takes up to half a minute.)"""
    raw = path.read_bytes()
    at = 8 + 8 + 8
    (n_values,) = struct.unpack_from("<Q", raw, 16)

    def skip(kind):
        nonlocal at
        if kind == gguf_bytes.STRING:
            at += 8 + struct.unpack_from("<Q", raw, at)[0]
        elif kind == gguf_bytes.ARRAY:
            elem, n = struct.unpack_from("<IQ", raw, at)
            at += 12
            if elem == gguf_bytes.STRING:
                for _ in range(n):
                    at += 8 + struct.unpack_from("<Q", raw, at)[0]
            else:
                at += n * struct.calcsize(gguf_bytes.SCALAR[elem])
        else:
            at += struct.calcsize(gguf_bytes.SCALAR[kind])

    values = []
    for _ in range(n_values):
        start = at
        skip(gguf_bytes.STRING)
        key = raw[start + 8:at].decode()
        (kind,) = struct.unpack_from("<I", raw, at)
        at += 4
        start = at
        skip(kind)
        values.append((key, kind, raw[start:at]))
    return values


def decode_value(kind, raw):
    if kind == gguf_bytes.STRING:
        return raw[8:].decode()
    if kind != gguf_bytes.ARRAY:
        return struct.unpack(gguf_bytes.SCALAR[kind], raw)[0]
    elem, n = struct.unpack_from("<IQ", raw)
    if elem != gguf_bytes.STRING:
        return list(struct.unpack(f"<{n}{gguf_bytes.SCALAR[elem][1]}", raw[12:]))
    items, at = [], 12
    for _ in range(n):
        (length,) = struct.unpack_from("<Q", raw, at)
        items.append(raw[at + 8:at + 8 + length].decode())
        at += 8 + length
    return items


class Vocab:
    """tokenizer.ggml.* of a file."""

    def __init__(self, path):
        self.path = path
        self.values = read_values(path)
        self.raw = {key: (kind, raw) for key, kind, raw in self.values}
        self.tokens = self.meta("tokens")
        self.kinds = self.meta("token_type")

    def meta(self, key, default=None):
        value = self.raw.get(f"tokenizer.ggml.{key}")
        return default if value is None else decode_value(*value)

    def of_kind(self, *kinds):
        return {t: i for i, (t, k) in enumerate(zip(self.tokens, self.kinds)) if k in kinds}


# ---- byte-level ----

def isolated(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


DIGITS = pre_tokenizers.Digits(individual_digits=True)
APOSTROPHES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES)
QWEN2 = APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN35 = (APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          + SPACES)
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943")
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*" + SPACES)

PRE_TOKENIZERS = {
    "gpt-2": [byte_level(True)],
    "smollm": [DIGITS, byte_level(True)],
    "llama-bpe": isolated(LLAMA3) + [byte_level(False)],
    "qwen2": isolated(QWEN2) + [byte_level(False)],
    "qwen35": isolated(QWEN35) + [byte_level(False)],
    "tekken": isolated(TEKKEN) + [byte_level(False)],
    "deepseek-llm": isolated(r"[\r\n]", rf"\s?[{LETTERS}]+",
                             r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK)
                    + [DIGITS, byte_level(False)],
    "deepseek-coder": isolated(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK)
                      + [DIGITS, byte_level(False)],
    "deepseek-v3": isolated(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3) + [byte_level(False)],
}
# Names of the same definition, as llama.cpp's converter and vocabulary reader pair them.
ALIASES = {
    "gpt-2": ["phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum", "exaone4",
              "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"],
    "smollm": ["starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2", "command-r"],
    "llama-bpe": ["llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "dbrx",
                  "smaug-bpe", "glm4", "chatglm-bpe"],
    "qwen2": ["stablelm2", "hunyuan", "solar-open", "megrez", "kormo", "f2llmv2", "grok-2", "deepseek-r1-qwen"],
    "deepseek-v3": ["hunyuan-dense", "joyai-llm", "hy_v4"],
}
for same_as, names in ALIASES.items():
    for alias in names:
        PRE_TOKENIZERS[alias] = PRE_TOKENIZERS[same_as]
IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano", "tekken"}
# What is added in front when the file says nothing.
ADDS_BOS = IGNORE_MERGES | {"command-r", "deepseek-r1-qwen", "deepseek-llm", "deepseek-coder", "deepseek-v3"}


class ByteLevelOracle:
    def __init__(self, vocab, pre=None):
        pre = pre or vocab.meta("pre")
        merges = [tuple(m.split(" ")) for m in vocab.meta("merges")]
        ids = {t: i for i, t in enumerate(vocab.tokens)}
        self.tok = Tokenizer(models.BPE(ids, merges, ignore_merges=pre in IGNORE_MERGES))
        self.tok.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre])
        for text, kind in zip(vocab.tokens, vocab.kinds):
            if kind == CONTROL:
                self.tok.add_special_tokens([AddedToken(text, special=True, normalized=False)])
            elif kind == USER_DEFINED:
                self.tok.add_tokens([AddedToken(text, normalized=False)])

    def encode_batch(self, texts, parse_special):
        self.tok.encode_special_tokens = not parse_special
        return [e.ids for e in self.tok.encode_batch_fast(texts, add_special_tokens=False)]


# ---- SentencePiece ----

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field_int(number, value):
    return varint(number << 3) + varint(value)


def field_bytes(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece_model(vocab):
    """ModelProto: pieces (1), trainer_spec (2), normalizer_spec (3)."""
    unknown = vocab.meta("unknown_token_id", 0)
    proto = bytearray()
    for i, (text, score, kind) in enumerate(zip(vocab.tokens, vocab.meta("scores"), vocab.kinds)):
        if i == unknown:
            kind = UNKNOWN
        elif kind == UNKNOWN:
            kind = CONTROL  # at most one unknown piece; both kinds never come from text
        if kind == USER_DEFINED:
            text = text.replace(" ", "\u2581")
        proto += field_bytes(1, field_bytes(1, text.encode()) + varint(2 << 3 | 5)
                             + struct.pack("<f", score) + field_int(3, kind))
    trainer = field_int(3, 2) + field_int(35, 1)  # model_type BPE, byte_fallback
    trainer += field_int(40, unknown) + field_int(41, vocab.meta("bos_token_id"))
    trainer += field_int(42, vocab.meta("eos_token_id"))
    trainer += field_bytes(45, vocab.tokens[unknown].encode())
    trainer += field_bytes(46, vocab.tokens[vocab.meta("bos_token_id")].encode())
    trainer += field_bytes(47, vocab.tokens[vocab.meta("eos_token_id")].encode())
    # No dummy prefix here: the oracle puts it in front of each fragment itself.
    normalizer = field_bytes(1, b"identity") + field_int(3, 0) + field_int(4, 0) + field_int(5, 1)
    return bytes(proto + field_bytes(2, trainer) + field_bytes(3, normalizer))


class SentencePieceOracle:
    """Control pieces never come from text there, so they are cut out first. Where the vocabulary
    wants a space in front, each fragment between added tokens gets one, as Llama's converter to
    Hugging Face (Prepend + added tokens) has it."""

    def __init__(self, vocab):
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(vocab))
        self.prefix = vocab.meta("add_space_prefix", True)
        self.control = vocab.of_kind(CONTROL)
        # Without the dummy prefix sentencepiece itself cuts the user-defined pieces out.
        self.users = vocab.of_kind(USER_DEFINED) if self.prefix else {}
        self.cutters = {True: self.cutter({**self.users, **self.control}),
                        False: self.cutter(self.users)}

    @staticmethod
    def cutter(added):
        longest_first = sorted(added, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if added else None

    def encode(self, text, parse_special):
        added = {**self.users, **(self.control if parse_special else {})}
        cutter = self.cutters[parse_special]
        ids = []
        for part in cutter.split(text) if cutter else [text]:
            if part in added:
                ids.append(added[part])
            elif part:
                ids += self.sp.encode(" " + part if self.prefix else part)
        return ids

    def encode_batch(self, texts, parse_special):
        return [self.encode(t, parse_special) for t in texts]


def build_oracle(vocab, pre=None):
    if vocab.meta("model") == "llama":
        return SentencePieceOracle(vocab)
    return ByteLevelOracle(vocab, pre)


# ---- millrace ----

class Millrace:
    """tests/tools/tok_cli.c: all records in, all answers out."""

    def __init__(self, path, pre=None):
        self.command = [BUILD / "tests" / "tok_cli", path, *([pre] if pre else [])]
        (self.status, self.info), = self.run([])
        if self.status == 0:
            self.bos, self.eos, self.adds_bos, self.adds_eos, *self.stop = self.ids(self.info)

    @staticmethod
    def ids(raw):
        return list(struct.unpack(f"<{len(raw) // 4}i", raw))

    def run(self, records):
        feed = b"".join(struct.pack("<3I", op, flags, n) + data for op, flags, n, data in records)
        raw = subprocess.run(self.command, input=feed, stdout=subprocess.PIPE, check=True).stdout
        answers, at = [], 0
        sizes = [4] + [4 if r[0] == 0 else 1 for r in records]
        for size in sizes:
            status, n = struct.unpack_from("<iI", raw, at)
            length = n * (1 if status else size)
            answers.append((status, raw[at + 8:at + 8 + length]))
            at += 8 + length
            if status and len(answers) == 1:
                break
        assert at == len(raw)
        return answers

    def encode_batch(self, texts, parse_special, add_special=False):
        data = [t.encode() for t in texts]
        flags = add_special | parse_special << 1
        answers = self.run([(0, flags, len(d), d) for d in data])[1:]
        assert all(status == 0 for status, _ in answers)
        return [self.ids(raw) for _, raw in answers]

    def decode_batch(self, ids, skip_special=False, stepwise=False):
        records = [(2 if stepwise else 1, int(skip_special), len(i), struct.pack(f"<{len(i)}i", *i))
                   for i in ids]
        answers = self.run(records)[1:]
        assert all(status == 0 for status, _ in answers)
        return [raw.decode() for _, raw in answers]


# ---- text ----

WORDS = {
    "english": "the of and to in a is that for it was on are as with they be at one have this from "
               "or had by but some what there we can out other were all your when up use word how "
               "said an each she which their time will way about many then them would write like "
               "these her long make thing see him two has look more day could go come did my sound "
               "no most number who over know water than call first people may down side been now "
               "find any new work part take get place made live where after back little only round "
               "man year came show every good me give our under name very through just form much "
               "great think say help low line before turn cause same mean differ move right boy old "
               "too does tell sentence set three want air well also play small end put home read "
               "hand port large spell add even land here must big high such follow act why ask men "
               "change went light kind off need house picture try us again animal point mother "
               "World's don't I'LL we've They'd it's ISN'T you're millrace-wheel naïve café coöperate "
               "e.g. i.e. Dr. U.S.A. 3rd 1,234.56 $99.99 50% 10:30am http://example.org/a?b=c&d=e#f",
    "chinese": "的 一 是 不 了 在 人 有 我 他 这 个 们 中 来 上 大 为 和 国 地 到 以 说 时 要 就 出 会 可 也 你 对 生 能 而 子 "
               "那 得 于 着 下 自 之 年 过 发 后 作 里 用 道 行 所 然 家 种 事 成 方 多 经 么 去 法 学 如 都 同 现 当 没 动 面 起 看 "
               "定 天 分 还 进 好 小 部 其 些 主 样 理 心 她 本 前 开 但 因 只 从 想 实 日 军 者 意 无 力 它 与 长 把 机 十 民 第 公 "
               "此 已 工 使 情 明 性 知 全 三 又 关 点 正 业 外 将 两 高 间 由 问 很 最 重 并 物 手 应 战 向 头 文 体 政 美 相 见 被 "
               "利 什 二 等 产 或 新 己 制 身 果 加 西 斯 月 话 合 回 特 代 内 信 表 化 老 给 世 位 次 度 门 任 常 先 海 通 教 儿 原 "
               "水车 服务器 神经网络 ，。、；：？！「」《》（）……——",
    "japanese": "これは テスト です。 日本語 の 文章 を 書いて いる ひらがな カタカナ 漢字 ｶﾀｶﾅ 東京 ー 々 〆 ヶ",
    "korean": "안녕하세요 세계 한국어 문장 입니다 물레방아 서버 가 나 다 라 ㄱㄴㄷ ㅏㅑ",
    "arabic": "في من على إلى أن هذا التي كان لا ما هو مع بعد كل قد عن الماء طاحونة النهر كتاب السلام عليكم مُحَمَّد "
              "٠١٢٣٤٥٦٧٨٩ ، ؛ ؟ اَلْعَرَبِيَّةُ",
    "hebrew": "שלום עולם זה מבחן של טחנת מים בְּרֵאשִׁית",
    "hindi": "है के में की और का से को यह पर नहीं एक हैं था कि पानी चक्की नदी पुस्तक नमस्ते दुनिया क्षत्रिय श्री ०१२३४५६७८९ । ॥ क्‍ष",
    "thai": "สวัสดี ชาวโลก น้ำ โรงสี แม่น้ำ หนังสือ ภาษาไทย ที่ และ เป็น ไม่ ได้ ใน จะ มี ๐๑๒๓๔๕๖๗๘๙ กำลัง เปิ้ล",
    "russian": "и в не на я быть он с что а по это она этот к но они мы весь который вода мельница река книга ё Ё",
    "greek": "και το να του η της με που την από για Ελλάδα ΣΊΣΥΦΟΣ ὕδωρ ᾧ",
    "vietnamese": "và của là có được cho không trong một người nước cối xay Việt Nam tiếng",
    "emoji": "😀 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☕ 🤷🏾‍♂️ 👍🏿 ✨ 1️⃣ #️⃣ ©️ ™ 🧑‍🚀 🫠 🪿 ♾️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "symbols": "½ ² ³ Ⅷ ① ㊿ 𝟘𝟙 ∑ ∞ ≠ → ⇒ € £ ¥ ₿ § ¶ † ‡ • … — – ' ' \" \" « » ‹ › ¿ ¡ ° ′ ″ ﬀ ﬁ ﬆ "
               "'s 'S 'ſ 'T 'RE 'Ve 'm 'LL 'd 's's ''ll \u00a0 \u2003 \u3000 \u180e \u200b \u0085 "
               "\u2028 \ufeff \u00ad a\u0301 \u0130 \u0131 ß ẞ Å Å \u2581 \u2581\u2581a \x00 \x7f",
}
CODE = """
def route(request, *, table=None):
\tif request.path in (table or {}):
\t\treturn table[request.path](request)\t# tab
\traise KeyError(f"no route for {request.path!r}")


for (size_t i = 0; i < n; i++) {
    if (a[i] != b[i] && !(flags & 0x1F)) { return -1; }
\t\tout[i++] = (uint8_t)((x >> 8) & 0xff);   /* two  spaces */
}
#include <stdio.h>
static const char *names[] = {"alpha", "beta\\n", NULL};
SELECT id, count(*) FROM users WHERE created_at >= '2026-01-01' GROUP BY id HAVING count(*) > 10;
<div class="row" id='main'><a href="/x?y=1&amp;z=2">link</a><br/></div></table></td>
{"key": [1, 2.5e-3, true, null, "\\u00e9"], "nested": {"a": {"b": [[], {}]}}}
fn main() -> Result<(), Box<dyn Error>> { let x = vec![1u8; 1_000_000]; println!("{:?}", x.len()); }
    const fooBarBaz = async ({ userID, HTTPServer }) => { await fetch(`${url}/api/v1`); };\r\n
x=+1;y-=--z;a&&b||c;/**/$_@{}|~^%
"""


def mixed_texts(rng, n_bytes):
    """Texts of 1 byte to some 10 KB: prose of several scripts, code, digits, blanks, noise."""
    lists = {k: v.split(" ") for k, v in WORDS.items()}
    code = CODE.splitlines(keepends=True)

    def prose():
        words = lists[rng.choice(list(lists))]
        glue = rng.choice([" ", " ", " ", "", "  ", "\n", ", ", "\n\n", "\t", " \n ", "\r\n"])
        return glue.join(rng.choice(words) for _ in range(rng.randrange(1, 120)))

    def program():
        return "".join("\t" * rng.randrange(4) + "  " * rng.randrange(5) + rng.choice(code)
                       for _ in range(rng.randrange(1, 20)))

    def digits():
        return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 300)))

    def blanks():
        return "".join(rng.choice([" ", "\n", "\t", "\r", "\u3000", "\u00a0"]) * rng.randrange(1, 40)
                       for _ in range(rng.randrange(1, 8)))

    def noise():
        tops = rng.choice([0x80, 0x250, 0x3000, 0xD800, 0x10000, 0x20000, 0x110000])
        points = (rng.randrange(tops) for _ in range(rng.randrange(1, 200)))
        return "".join(chr(c) for c in points if not 0xD800 <= c <= 0xDFFF)

    def runs():
        return "".join(rng.choice("aA =-_*#.的ก😀'\u0301") * rng.randrange(1, 200)
                       for _ in range(rng.randrange(1, 5)))

    kinds = [prose] * 8 + [program] * 4 + [digits, blanks, noise, noise, runs]
    size = 0
    while size < n_bytes:
        text = "".join(rng.choice(kinds)() for _ in range(rng.choice([1, 1, 2, 5, 20])))
        size += len(text.encode())
        yield text


def byte_texts():
    """Each of the 256 byte values that valid UTF-8 can hold, alone and among letters."""
    points = list(range(0x100)) + [0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF] + [
        0x10000 + (i << 12) for i in range(256)]
    lead = [(b << 6) + 0x25 for b in range(2, 32)] + [(b << 12) + 0x925 for b in range(16)]
    for c in points + lead:
        if c < 0x110000 and not 0xD800 <= c <= 0xDFFF:
            yield chr(c)
            yield f"a{chr(c)}b {chr(c)} 1{chr(c)}2\n{chr(c)}"


def every_code_point(chunk=2048):
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for i in range(0, len(points), chunk):
        yield "".join(map(chr, points[i:i + chunk]))


def special_texts(rng, vocab, n):
    """Added tokens whole, doubled, cut, nested and between words."""
    added = list(vocab.of_kind(CONTROL, USER_DEFINED))
    words = WORDS["english"].split(" ") + WORDS["emoji"].split(" ") + [" ", "\n", "  ", "<", "<|", ""]
    for _ in range(n):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            token = rng.choice(added)
            cut = rng.randrange(len(token) + 1)
            parts.append(rng.choice([token, token, token + token, token[:cut], token[cut:],
                                     token[:cut] + token, rng.choice(words), rng.choice(words)]))
        yield "".join(parts)


def seeded(name):
    return random.Random(f"millrace tokenizer {name}")

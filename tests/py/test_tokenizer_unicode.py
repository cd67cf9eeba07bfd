"""engine/text/unicode_tables.c holds the character classes of Hugging Face `tokenizers`, for every code point."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tokenizers
from tokenizers import Regex, pre_tokenizers

TEXT_DIR = pathlib.Path(__file__).resolve().parents[2] / "engine" / "text"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
EVERYTHING = "".join(map(chr, POINTS))
LETTER_KINDS = "Lu Ll Lt Lm Lo".split()  # the only categories that patterns name by themselves


def table(name):
    """{category: set of code points} of one table of the generated file."""
    text = (TEXT_DIR / "unicode_tables.c").read_text()
    body = re.search(rf"{name}\[\] = \{{(.*?)\}};", text, re.DOTALL).group(1)
    found = {}
    for first, last, category in re.findall(r"R\(([0-9a-f]+), ([0-9a-f]+), (\w+)\)", body):
        found.setdefault(category, set()).update(range(int(first, 16), int(last, 16) + 1))
    return found


def matches(pattern):
    """Code points that a one-character pattern matches: all others are removed."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str(EVERYTHING) for c in piece}


@pytest.fixture(scope="module")
def categories():
    return table("uni_categories")


@pytest.mark.parametrize("category", LETTER_KINDS)
def test_kind_of_letter(categories, category):
    assert categories[category.upper()] == matches(r"\p{%s}+" % category)


@pytest.mark.parametrize("major", "LMNPS")
def test_major_class(categories, major):
    ours = set().union(*(points for name, points in categories.items() if name[0] == major))
    assert ours == matches(r"\p{%s}+" % major)


def test_every_other_code_point_is_unassigned(categories):
    assert set(POINTS) - set().union(*categories.values()) == matches(r"\p{Cn}+")


def test_white_space():
    ours = table("uni_spaces")["SPACE"]
    assert ours == matches(r"\s+")
    assert 0x180E not in ours and 0x85 in ours


def test_numeric_characters(categories):
    ours = categories["ND"] | categories["NL"] | categories["NO"] | table("uni_late_digits")["ND"]
    digits = pre_tokenizers.Digits(individual_digits=False)
    # Among letters, runs of digits and of other characters alternate.
    text = "".join(f"a{chr(c)}" for c in POINTS)
    pieces = [piece for piece, _ in digits.pre_tokenize_str(text)]
    assert "".join(pieces) == text
    assert ours == {ord(piece) for piece in pieces if len(piece) == 1 and piece != "a"}


if os.environ.get("MILLRACE_LONG") == "1":  # the oracle is asked for every code point and class

    def test_the_generator_writes_the_file_in_the_tree():
        made = subprocess.run([sys.executable, TEXT_DIR / "gen_unicode.py"], capture_output=True, text=True, check=True)

        def undated(text):
            return re.sub(r" on \d{4}-\d\d-\d\d", "", text)

        assert tokenizers.__version__ in made.stdout
        assert undated(made.stdout) == undated((TEXT_DIR / "unicode_tables.c").read_text())

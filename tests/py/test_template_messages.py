"""What happens around the template: messages prepared as transformers does, continuing the last
message, roles and content formats that the template doesn't know."""

import copy
import random
import struct
import unicodedata

import pytest
import transformers.utils.chat_template_utils as hf

import template_oracle as oracle
import test_template_jinja as jinja_cases
from template_cases import CONVERSATIONS
from template_oracle import BOS, EOS, Failed, Ours

TEMPLATES = jinja_cases.TEMPLATES
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def ours():
    renderer = Ours()
    yield renderer
    renderer.close()


def transformers_render(source, messages, tools=None, kwargs=None, **options):
    messages = hf._normalize_chat_messages(copy.deepcopy(messages))
    variables = {"bos_token": BOS, "eos_token": EOS, **(kwargs or {})}
    texts, _ = hf.render_jinja_template([messages], tools=tools, chat_template=source, **variables, **options)
    texts[0].encode()
    return texts[0]


def developer_as_system(source, messages):
    if "developer" in source:
        return messages
    return [{**m, "role": "system"} if m.get("role") == "developer" else m for m in messages]


def differences(ours, source, cases, **options):
    for name, case in cases.items():
        case = {**case, "messages": developer_as_system(source, case["messages"])}
        try:
            want = transformers_render(source, **case, **options)
        except Exception:  # noqa: BLE001
            want = None
        try:
            got = ours.render(source, **case, **options, verbatim=False)[0]
        except Failed:
            got = None
        if got != want:
            yield f"{name}: got {got!r}, want {want!r}"


def reads_only_parts(ours, source):
    """Does a string content stay out of the text while a part shows?"""
    def shows(content):
        try:
            text = ours.render(source, [{"role": "user", "content": content}])[0]
        except Failed:
            return False
        return "probing" in text

    return not shows("probing") and shows([{"type": "text", "text": "probing"}])


@pytest.mark.parametrize("name", TEMPLATES)
def test_messages_are_prepared_as_transformers_does(ours, name):
    source = TEMPLATES[name]
    if reads_only_parts(ours, source):
        text = ours.render(source, [{"role": "user", "content": "probing"}], verbatim=False)[0]
        assert "probing" in text
        return
    wrong = list(differences(ours, source, CONVERSATIONS, add_generation_prompt=True))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_final_message_is_continued_as_transformers_does(ours, name):
    source = TEMPLATES[name]
    if reads_only_parts(ours, source):
        with pytest.raises(Failed):
            ours.render(source, [], verbatim=False, continue_final_message=True)
        return
    prefill = {
        "plain": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Roses are"}],
        "space": [{"role": "user", "content": "q"}, {"role": "assistant", "content": " Roses are \n"}],
        "empty": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}],
        "parts": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]},
        ],
        "repeated": [{"role": "user", "content": "same"}, {"role": "assistant", "content": "same"}],
        "thinking": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nso"}],
        "none": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None}],
        "nobody": [],
        "user": [{"role": "user", "content": "to be continued"}],
    }
    cases = {k: {"messages": v} for k, v in prefill.items()}
    wrong = list(differences(ours, source, cases, continue_final_message=True))
    assert not wrong, "\n".join(wrong)


def test_a_continued_message_ends_the_prompt(ours):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Roses"}]
    text, ranges = ours.render(CHATML, messages, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nRoses")
    assert ranges[-1][1] == len(text) - len("Roses")


def test_continuing_and_a_generation_prompt_exclude_each_other(ours):
    messages = [{"role": "assistant", "content": "x"}]
    with pytest.raises(Failed, match="exclude each other"):
        ours.render(CHATML, messages, continue_final_message=True, add_generation_prompt=True)


def test_developer_is_system_where_the_template_does_not_know_it(ours):
    messages = [{"role": "developer", "content": "x"}]
    assert "system\nx" in ours.render(CHATML, messages, verbatim=False)[0]
    assert "developer\nx" in ours.render(CHATML + "{# developer #}", messages, verbatim=False)[0]


PARTS_ONLY = "{% for m in messages %}{% for p in m['content'] %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}{% endfor %}"


def test_string_and_parts_reach_a_template_that_reads_parts(ours):
    part = [{"type": "text", "text": "hi"}]
    assert ours.render(PARTS_ONLY, [{"role": "user", "content": "hi"}], verbatim=False)[0] == "[hi]"
    assert ours.render(PARTS_ONLY, [{"role": "user", "content": part}], verbatim=False)[0] == "[hi]"


def test_a_string_stays_a_string_where_the_template_reads_one(ours):
    source = "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% endif %}{% endfor %}"
    assert ours.render(source, [{"role": "user", "content": "hi"}], verbatim=False)[0] == "Shi"


@pytest.mark.parametrize(
    "messages, text", [({}, "must be an array"), ("x", "must be an array"), ([1], "must be an object")]
)
def test_messages_of_another_shape_are_refused(ours, messages, text):
    with pytest.raises(Failed, match=text):
        ours.send({"template": CHATML, "messages": messages})


def test_kwargs_never_replace_messages_or_tools(ours):
    text, _ = ours.render("{{ messages|length }}{{ tools }}{{ add_generation_prompt }}{{ x }}", [],
                          kwargs={"messages": [1], "tools": [2], "add_generation_prompt": 5, "x": 7})
    assert text == "0NoneFalse7"


@pytest.mark.parametrize(
    "source, status, text",
    [
        ("\n\n{% include 'x' %}", "ERR_UNSUPPORTED", "line 3: statement 'include' is not supported"),
        ("a\n{{ x|nosuch }}", "ERR_UNSUPPORTED", "line 2: no filter named 'nosuch'"),
        ("a\n{{ x is nosuch }}", "ERR_UNSUPPORTED", "line 2: no test named 'nosuch'"),
        ("{% trans %}", "ERR_UNSUPPORTED", "line 1: unknown statement 'trans'"),
        ("\n{{ joiner(',') }}", "ERR_UNSUPPORTED", "line 2: functions lipsum, cycler and joiner"),
        ("\n{% if x %}", "ERR_FORMAT", "line 2: template ends where elif is expected"),
        ("\n\n{{ missing.x }}", "ERR_INVALID", "line 3: 'missing' is undefined"),
        ("{% set a = {} %}\n{{ a.b.c }}", "ERR_INVALID", "line 2: 'dict object' has no attribute 'b'"),
        ("{{ 1 / 0 }}", "ERR_INVALID", "line 1: division by zero"),
        ("{{ 9223372036854775807 + 1 }}", "ERR_UNSUPPORTED", "line 1: integer beyond 64 bits"),
        ("{{ [].append(1) }}", "ERR_INVALID", "access to attribute 'append' of 'list' object is unsafe."),
        ("{{ {}.update(a=1) }}", "ERR_INVALID", "access to attribute 'update' of 'dict' object is unsafe."),
        ("{{ ''.__class__.__mro__ }}", "ERR_INVALID", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
         "ERR_TOO_LARGE", "steps"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "ERR_TOO_LARGE", "memory"),
        ("{{ 'a' * 99999999 }}", "ERR_TOO_LARGE", "bytes"),
        ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "ERR_TOO_LARGE", "bytes"),
        ("{% set ns = namespace(a=[]) %}{% for i in range(999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
         "ERR_TOO_LARGE", "nested deeper"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "ERR_TOO_LARGE", "nested deeper"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "ERR_TOO_LARGE", "deep"),
        ("{{ " + "-" * 5000 + "1 }}", "ERR_TOO_LARGE", "deeper"),
        ("{{ " + "not " * 5000 + "1 }}", "ERR_TOO_LARGE", "deeper"),
        ("{{ " + "1+" * 5000 + "1 }}", "ERR_TOO_LARGE", "levels"),
        ("{{ x" + ".a" * 5000 + " }}", "ERR_TOO_LARGE", "levels"),
        ("{{ x" + "|upper" * 5000 + " }}", "ERR_TOO_LARGE", "levels"),
        ("{% if 1 %}" * 5000 + "{% endif %}" * 5000, "ERR_TOO_LARGE", "deeper"),
        ("{{ [" * 5000, "ERR_TOO_LARGE", "deeper"),
        ("{{ " + "1 if 1 else " * 5000 + "1 }}", "ERR_TOO_LARGE", "deeper"),
    ],
)
def test_errors_name_line_and_construct(ours, source, status, text):
    with pytest.raises(Failed) as e:
        ours.render(source, [])
    assert (e.value.status, text in e.value.text) == (status, True), (e.value.status, e.value.text)


def test_case_conversion_equals_pythons_for_every_letter(ours):
    letters = "".join(chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Lu", "Ll", "Lt", "Lo", "Nd"))
    for source, convert in (
        ("{{ v.upper() }}", lambda c: c.upper()),
        ("{{ v|lower }}", lambda c: c.lower()),
        ("{{ v.title() }}", lambda c: c.title()),
    ):
        text = " ".join(letters)
        assert ours.render(source, [], kwargs={"v": text})[0] == " ".join(map(convert, letters))


def test_character_classes_equal_pythons(ours):
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    for method in ("isalpha", "isdigit", "isdecimal", "isspace", "isalnum"):
        source = "{% for c in v %}{{ '1' if c." + method + "() else '0' }}{% endfor %}"
        for start in range(0, len(known), 40000):
            part = "".join(known[start : start + 40000])
            got = ours.render(source, [], kwargs={"v": part})[0]
            wrong = [hex(ord(c)) for c, g in zip(part, got) if (g == "1") != getattr(c, method)()]
            assert not wrong, (method, wrong[:20])


def test_repr_equals_pythons_for_every_assigned_character(ours):
    known = "".join(chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs"))
    assert ours.render("{{ [v] }}", [], kwargs={"v": known})[0] == repr([known])


@pytest.mark.parametrize("seed", range(3))
def test_floats_print_as_python_prints_them(ours, seed):
    rng = random.Random(seed)
    values = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(2000)]
    values += [rng.uniform(-1000, 1000) for _ in range(500)] + [rng.randint(0, 10**6) / 1000 for _ in range(500)]
    values = [v for v in values if v == v and abs(v) != float("inf")]
    text = ours.render("{% for x in xs %}{{ x }} {% endfor %}", [], kwargs={"xs": values})[0]
    assert text.split() == [repr(v) for v in values]

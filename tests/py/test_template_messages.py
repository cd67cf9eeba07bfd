"""The handling of messages around the template: preparation as in transformers, continuing the last
message, roles and content formats that the template does not know."""

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


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_real_template_shows_the_messages(ours, name):
    assert ours.send({"template": TEMPLATES[name], "ignores_messages": True})[0] == "false"
    assert ours.send({"template": "{{ bos_token }}", "ignores_messages": True})[0] == "true"


PREFILLS = ["", " ", "\n", " \n\t ", "\u3000"]


def continued(ours, source, content, **options):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    return ours.render(source, messages, verbatim=False, continue_final_message=True, **options)[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_blank_prefill_leaves_what_the_template_prints_before_a_content(ours, name):
    """Case R01. The oracle is jinja2: the text up to a content that stands nowhere else."""
    source = TEMPLATES[name]
    parts = [{"type": "text", "text": "Zq9x"}] if reads_only_parts(ours, source) else "Zq9x"
    user = [{"type": "text", "text": "q"}] if reads_only_parts(ours, source) else "q"
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": parts}]
    try:
        text = oracle.render(oracle.compile_template(source), messages)
    except Exception:  # noqa: BLE001 - templates of tool models that fail without tools
        text = ""
    if text.count("Zq9x") != 1:
        with pytest.raises(Failed):
            continued(ours, source, "")
        return
    want = text[: text.index("Zq9x")]
    assert [continued(ours, source, prefill) for prefill in PREFILLS] == [want] * len(PREFILLS)
    assert continued(ours, source, "Zq9x") == want + "Zq9x"


ONE = "{% for m in messages %}<{{ m.role }}>\n{{ CONTENT }}</>\n{% endfor %}"


@pytest.mark.parametrize(
    "content, prefill, text",
    [
        # white space of the message goes with a template that trims it, the template's own stays
        ("m.content|trim", "foo \n", "foo"),
        ("m.content|trim", " foo", "foo"),
        ("m.content|trim", " \n ", ""),
        ("m.content", " foo \n", " foo \n"),
        ("m.content", " \n ", ""),
        ("m.content.rstrip()", " foo ", " foo"),
        ("m.content.rstrip()", "  ", ""),
        ("m.content.lstrip()", "  foo ", "foo "),
        ("' ' + m.content|trim", "foo ", " foo"),
        ("' ' + m.content|trim", "", " "),
        ("' \n' ~ m.content", " ", " \n"),
        ("(m.role + '\n' + m.content)|trim", "", "assistant\n"),
        ("(m.role + '\n' + m.content)|trim", "  ", "assistant\n"),
        # a blank that the template prints behind a trimmed content is not the tag's
        ("m.content|trim + ' '", "foo  ", "foo"),
        ("m.content|trim ~ ' '", "foo\u3000\u3000", "foo"),
        # a text that looks like a tag is the client's
        ("m.content", "a CONTINUE_FINAL_MESSAGE_TAG b", "a CONTINUE_FINAL_MESSAGE_TAG b"),
        ("m.content|trim", "CONTINUE_FINAL_MESSAGE_TAG ", "CONTINUE_FINAL_MESSAGE_TAG"),
        ("m.content|trim", "TAIL_OF_THE_LAST_UTTERANCE ", "TAIL_OF_THE_LAST_UTTERANCE"),
    ],
)
def test_white_space_is_the_messages_or_the_templates(ours, content, prefill, text):
    got = continued(ours, ONE.replace("CONTENT", content), prefill)
    assert got.endswith("<assistant>\n" + text) and got.count("<assistant>") == 1


@pytest.mark.parametrize(
    "content",
    [
        "m.content + m.content", "m.content[:20]", "m.content|upper", "m.content|lower", "m.content|title", "m.content|urlencode",
        "m.content|replace('_', '-')", "m.content|reverse", "m.content|list", "m.content|length", "m.content[::2]",
        "m.content|truncate(12)", "m.content|batch(3)|list", "m.content.split('_')|join", "m.content|tojson + m.content",
        "m.content[-5:] + m.content", "messages[-1].content[4:9] + m.content", "messages|tojson", "messages|string",
        "'CONTINUE_FINAL_MESSAGE_TAG '", "m.content + 'CONTINUE_FINAL_MESSAGE_TAG '", "m.content|first", "m.content|last",
        "m.content|e + m.content", "m.content|center(60)", "m.content|indent + m.content|trim", "''", "'q'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefill", ["", " ", "Roses are ", "q"])
def test_nothing_of_a_tag_ever_reaches_the_prompt(ours, content, prefill):
    source = ONE.replace("CONTENT", content)
    try:
        got = continued(ours, source, prefill)
    except Failed as e:
        assert e.status == "ERR_INVALID" and "continue_final_message" in e.text
        return
    allowed = source.replace("CONTENT", "") + prefill + "userassistant"
    for tag in ("CONTINUE_FINAL_MESSAGE_TAG", "TAIL_OF_THE_LAST_UTTERANCE"):
        pieces = [tag[i : i + 3] for i in range(len(tag) - 2)]
        pieces += [p.lower() for p in pieces] + [p.title() for p in pieces] + [p[::-1] for p in pieces]
        assert not [p for p in pieces if p in got and p not in allowed], got


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

"""Tools through the server, on the real model: calls that are forced validate, in the format of each template."""

import json

import jsonschema
import pytest

import http_rig
import tool_definitions as defs
from http_shapes import Stream, check_answer

# Templates by the signs of their family; {{ tools }} makes them know tools.
LOOP = "{{ tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}CALL{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
SIGNS = {
    "hermes": "<tool_call>",
    "mistral": "[TOOL_CALLS]",
    "llama": "<|python_tag|>",
    "deepseek": "<｜tool▁calls▁begin｜>",
    "gemma": "<start_function_call>",
}


@pytest.fixture(scope="module", params=list(SIGNS))
def family(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "t.jinja"
    path.write_text(LOOP.replace("CALL", SIGNS[request.param]))
    with http_rig.start_real("--chat-template", str(path)) as server:
        server.family = request.param
        yield server
        server.wait_idle()


def ask(server, tools, stream=False, **fields):
    """(text, calls, finish) of a conversation with these tools, checked for shape."""
    body = {"messages": [{"role": "user", "content": "Help me with one of the tools."}], "tools": tools,
            "temperature": 1, "max_tokens": 250, **fields}
    reply = server.post("/v1/chat/completions", {**body, "stream": stream})
    assert reply.status == 200, reply.body
    if stream:
        seen = Stream(reply.events(), body, True)
        return seen.text[0], [(c["name"], c["arguments"]) for c in seen.calls[0]], seen.finish[0]
    choice = check_answer(reply.json, body, True)["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    return choice["message"]["content"] or "", [(c["function"]["name"], c["function"]["arguments"]) for c in calls], choice["finish_reason"]


def check_calls(calls, names):
    assert calls
    for name, arguments in calls:
        assert name in names
        jsonschema.validate(json.loads(arguments), defs.schema_of(name))


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(defs.PARAMETERS))
def test_a_named_tool_is_called_with_valid_arguments(real, name):
    named = {"type": "function", "function": {"name": name}}
    tools = [defs.tool("now"), defs.tool("vote"), *([] if name in ("now", "vote") else [defs.tool(name)])]
    whole = ask(real, tools, tool_choice=named, seed=1)
    assert whole[0] == "" and whole[2] == "tool_calls" and len(whole[1]) == 1
    check_calls(whole[1], {name})
    assert ask(real, tools, stream=True, tool_choice=named, seed=1) == whole


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_of_one_of_the_tools(real, seed):
    text, calls, finish = ask(real, defs.ALL, tool_choice="required", seed=seed)
    assert (text, finish) == ("", "tool_calls")
    check_calls(calls, set(defs.PARAMETERS))


@pytest.mark.heavy
@pytest.mark.parametrize("parallel", [True, False])
def test_forced_calls_in_the_format_of_the_template(family, parallel):
    names = ["get_weather", "now", "pay", "create_order"]
    tools = [defs.tool(n) for n in names]
    many = 0
    for seed in range(4):
        whole = ask(family, tools, tool_choice="required", parallel_tool_calls=parallel, seed=seed, max_tokens=600)
        if whole[2] != "length":
            assert whole[0] == "" and whole[2] == "tool_calls"
            check_calls(whole[1], set(names))
        assert len(whole[1]) == 1 or parallel
        many += len(whole[1]) > 1
        assert ask(family, tools, stream=True, tool_choice="required", parallel_tool_calls=parallel, seed=seed,
                   max_tokens=600) == whole
    if parallel and family.family in ("hermes", "mistral"):
        assert many


@pytest.mark.heavy
def test_allowed_tools_are_the_only_ones(real):
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
        {"type": "function", "function": {"name": "move"}}, {"type": "function", "function": {"name": "vote"}}]}}
    for seed in range(4):
        check_calls(ask(real, defs.ALL, tool_choice=allowed, seed=seed)[1], {"move", "vote"})


def post(server, **fields):
    return server.chat(tools=defs.ALL, **fields)


@pytest.mark.heavy
def test_a_system_text_tells_a_template_without_tools_of_them(real):
    count = [real.chat(max_tokens=1, **f).json["usage"]["prompt_tokens"]
             for f in ({}, {"tools": defs.ALL}, {"tools": defs.ALL, "tool_choice": "none"})]
    assert count[0] == count[2] and count[1] > count[0] + 1000


def test_auto_without_a_call_is_an_ordinary_answer(real):
    plain = real.chat(temperature=0, max_tokens=12, tools=defs.ALL)
    assert plain.status == 200 and plain.json["choices"][0]["finish_reason"] in ("stop", "length")
    assert "tool_calls" not in plain.json["choices"][0]["message"]


def test_a_cut_call_says_length(real):
    reply = post(real, tool_choice={"type": "function", "function": {"name": "create_order"}}, max_tokens=16)
    assert reply.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("fields, param", [
    ({"tools": 5}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools[0].function.parameters"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": defs.ALL, "tool_choice": {"type": "function", "function": {"name": "unknown"}}}, "tool_choice"),
    ({"tools": defs.ALL, "tool_choice": "required", "regex": "a"}, "tool_choice"),
    ({"tools": [defs.tool("now"), {"type": "function", "function": {"name": "a", "parameters": {"properties": {"b": {"not": {}}}}}}],
      "tool_choice": "required"}, "tools[1].function.parameters"),
])
def test_what_cannot_be_honoured_is_400_with_its_place(real, fields, param):
    reply = real.chat(**fields)
    assert reply.status == 400 and reply.error["param"] == param, reply.body


def test_a_tool_loop_goes_on_with_the_result(real):
    messages = [{"role": "user", "content": "Which way?"}]
    _, calls, _ = ask(real, defs.ALL, tool_choice={"type": "function", "function": {"name": "move"}}, seed=1)
    call = {"id": "call_1", "type": "function", "function": {"name": calls[0][0], "arguments": calls[0][1]}}
    messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                 {"role": "tool", "tool_call_id": "call_1", "content": "moved"}]
    reply = real.chat(messages=messages, tools=defs.ALL, tool_choice="auto")
    assert reply.status == 200, reply.body


@pytest.mark.heavy
def test_auto_finds_calls_of_every_format_and_leaves_other_text(copier):
    for line, text, calls in AUTO:
        fields = {"messages": [{"role": "user", "content": (line + "\n") * 12}], "tool_choice": "auto", "temperature": 0}
        n = copier.post("/tokenize", {"prompt": line, "add_special_tokens": False}).json["count"]
        whole = ask(copier, TWO, max_tokens=n, **{k: v for k, v in fields.items() if k != "messages"}, messages=fields["messages"])
        assert (whole[0], whole[1]) == (text, calls)
        assert ask(copier, TWO, stream=True, max_tokens=n, **fields) == whole


TWO = [defs.tool("now"), defs.tool("vote")]
AUTO = [
    ('{"name": "now", "parameters": {}}', "", [("now", "{}")]),
    ('<tool_call>{"name": "vote", "arguments": {"choice": "a { b"}}</tool_call>', "", [("vote", '{"choice": "a { b"}')]),
    ('Sure. <tool_call>{"name": "now", "arguments": {}}</tool_call>', "Sure. ", [("now", "{}")]),
    ('[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]', "", [("now", "{}")] * 2),
    ('<function=vote>{"choice": "yes"}</function>', "", [("vote", '{"choice": "yes"}')]),
    ('<start_function_call>call:vote{choice:<escape>yes<escape>}<end_function_call>', "", [("vote", '{"choice":"yes"}')]),
    ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}', []),
]


@pytest.fixture(scope="module")
def copier(tmp_path_factory):
    """The prompt is the message alone: the model goes on with lines that it has seen often."""
    path = tmp_path_factory.mktemp("template") / "t.jinja"
    path.write_text("{# tools #}{{ messages[-1].content }}")
    with http_rig.start_real("--chat-template", str(path)) as server:
        yield server
        server.wait_idle()

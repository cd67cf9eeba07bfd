"""Libraries that stand on the openai client or speak its protocol themselves: pydantic-ai, langchain, litellm, llm."""

import os
import pathlib
import subprocess
import sys

os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    LANGSMITH_TRACING="false",
    OTEL_SDK_DISABLED="true",
    HF_HUB_OFFLINE="1",
)

import litellm
import pytest
from client_server import COUNT_PROMPT, COUNT_TEXT, COUNT_TOKENS, MODEL, serving
from langchain_openai import ChatOpenAI, OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROMPT = "Count from 1 to 10."
LIMIT = 24


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def expected(server):
    """The greedy answer and its usage as plain HTTP gives them: what every library must hand on."""
    answer = server.post(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": LIMIT},
    )
    return answer["choices"][0]["message"]["content"], answer["usage"]


# --- pydantic-ai


@pytest.fixture
def agent(server):
    provider = OpenAIProvider(base_url=server.v1, api_key="unused")
    return Agent(OpenAIChatModel(MODEL, provider=provider), model_settings={"temperature": 0, "max_tokens": LIMIT})


def test_pydantic_ai_validates_the_whole_answer(agent, expected):
    result = agent.run_sync(PROMPT)
    assert result.output == expected[0]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (expected[1]["prompt_tokens"], LIMIT)


def test_pydantic_ai_streams(agent, expected):
    import asyncio

    async def run():
        async with agent.run_stream(PROMPT) as result:
            parts = [part async for part in result.stream_text(delta=True)]
        return "".join(parts)

    assert asyncio.run(run()) == expected[0]


def test_pydantic_ai_continues_a_conversation(agent):
    first = agent.run_sync(PROMPT)
    second = agent.run_sync("And from 11 to 20?", message_history=first.all_messages())
    assert second.output


# --- langchain-openai


def test_langchain_chat_gives_text_usage_and_reason(server, expected):
    chat = ChatOpenAI(model=MODEL, base_url=server.v1, api_key="unused", temperature=0, max_tokens=LIMIT)
    answer = chat.invoke(PROMPT)
    assert answer.content == expected[0]
    assert answer.usage_metadata["output_tokens"] == LIMIT
    assert answer.response_metadata["finish_reason"] == "length"


def test_langchain_chat_streams_and_joins_the_chunks(server, expected):
    chat = ChatOpenAI(
        model=MODEL, base_url=server.v1, api_key="unused", temperature=0, max_tokens=LIMIT, stream_usage=True
    )
    total = None
    for chunk in chat.stream(PROMPT):
        total = chunk if total is None else total + chunk
    assert total.content == expected[0]
    assert total.response_metadata["finish_reason"] == "length"
    assert total.usage_metadata["output_tokens"] == LIMIT


def test_langchain_chat_hands_on_logprobs(server):
    chat = ChatOpenAI(model=MODEL, base_url=server.v1, api_key="unused", temperature=0, max_tokens=4)
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(PROMPT)
    assert len(answer.response_metadata["logprobs"]["content"]) == 4


def test_langchain_completions(server):
    llm = OpenAI(model=MODEL, base_url=server.v1, api_key="unused", temperature=0, max_tokens=COUNT_TOKENS)
    assert llm.invoke(COUNT_PROMPT) == COUNT_TEXT
    assert "".join(llm.stream(COUNT_PROMPT)) == COUNT_TEXT
    assert llm.batch([COUNT_PROMPT] * 3) == [COUNT_TEXT] * 3


# --- litellm


def litellm_options(server):
    return dict(
        model=f"openai/{MODEL}",
        messages=[{"role": "user", "content": PROMPT}],
        api_base=server.v1,
        api_key="unused",
        temperature=0,
        max_tokens=LIMIT,
        num_retries=0,
    )


def test_litellm_completes(server, expected):
    answer = litellm.completion(**litellm_options(server))
    assert answer.choices[0].message.content == expected[0]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == LIMIT


def test_litellm_streams(server, expected):
    text, reasons = "", []
    for chunk in litellm.completion(**litellm_options(server), stream=True):
        text += chunk.choices[0].delta.content or ""
        reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    assert (text, reasons) == (expected[0], ["length"])


def test_litellm_maps_errors(server):
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**{**litellm_options(server), "temperature": 9})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**litellm_options(server), "model": "openai/no-such-model"})


def test_litellm_text_completion(server):
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}",
        prompt=COUNT_PROMPT,
        api_base=server.v1,
        api_key="unused",
        temperature=0,
        max_tokens=COUNT_TOKENS,
    )
    assert answer.choices[0].text == COUNT_TEXT


# --- llm (the command line tool)


def run_llm(server, tmp_path, *arguments):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: mill\n  model_name: {MODEL}\n  api_base: {server.v1}\n"
        f"- model_id: mill-text\n  model_name: {MODEL}\n  api_base: {server.v1}\n  completion: true\n"
    )
    program = pathlib.Path(sys.executable).with_name("llm")
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "unused"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_llm_streams_and_does_not(server, tmp_path, expected):
    options = ["-m", "mill", "-o", "temperature", "0", "-o", "max_tokens", str(LIMIT), PROMPT]
    assert run_llm(server, tmp_path, *options).strip() == expected[0].strip()
    assert run_llm(server, tmp_path, "--no-stream", *options).strip() == expected[0].strip()


def test_llm_completion_model(server, tmp_path):
    options = ["-m", "mill-text", "-o", "temperature", "0", "-o", "max_tokens", str(COUNT_TOKENS), COUNT_PROMPT]
    assert run_llm(server, tmp_path, *options).strip() == COUNT_TEXT.strip()

"""The openai Python client, in the generation that the environment has: features that programs rely on."""

import asyncio
import threading

import openai
import pytest
from client_server import CHAT, COUNT_PROMPT, COUNT_TEXT, COUNT_TOKENS, MODEL, serving, wait_for


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def client_of(server, **options):
    options = {"api_key": "unused", "max_retries": 0, "timeout": 600, **options}
    return openai.OpenAI(base_url=server.v1, **options)


@pytest.fixture
def client(server):
    with client_of(server) as fresh:
        yield fresh


def test_models_lists_and_retrieves_the_alias(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object) == (MODEL, "model")
    assert isinstance(model.created, int) and model.owned_by


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=CHAT)
    assert caught.value.code == "model_not_found"


def test_chat_answer_has_every_field(client):
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, max_tokens=12)
    assert answer.object == "chat.completion" and answer.id and answer.model == MODEL
    assert isinstance(answer.created, int)
    (choice,) = answer.choices
    assert (choice.index, choice.message.role, choice.finish_reason) == (0, "assistant", "length")
    assert choice.message.content and choice.message.tool_calls is None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert 0 <= answer.usage.prompt_tokens_details.cached_tokens < answer.usage.prompt_tokens


def test_chat_stream_equals_the_whole_answer(client):
    whole = client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, max_tokens=40)
    text, roles, reasons, ids = "", [], [], set()
    with client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=40, stream=True
    ) as stream:
        for chunk in stream:
            assert chunk.object == "chat.completion.chunk" and chunk.usage is None
            ids.add(chunk.id)
            (choice,) = chunk.choices
            roles += [choice.delta.role] if choice.delta.role else []
            reasons += [choice.finish_reason] if choice.finish_reason else []
            text += choice.delta.content or ""
    assert text == whole.choices[0].message.content
    assert roles == ["assistant"] and reasons == ["length"] and len(ids) == 1


def test_stream_usage_comes_last_and_only_when_asked(client):
    with client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=5, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 5


def test_stream_helper_gathers_the_completion(client):
    # an answer that ends by itself: the helper raises on finish_reason length
    ask = dict(model=MODEL, messages=[{"role": "user", "content": "What is 2+2?"}], temperature=0, max_tokens=60)
    with client.chat.completions.stream(**ask) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**ask)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"
    assert "content.delta" in kinds and "content.done" in kinds


def test_n_gives_numbered_choices(client):
    ask = dict(model=MODEL, messages=CHAT, temperature=1.5, seed=7, max_tokens=16, n=2)
    answer = client.chat.completions.create(**ask)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert texts[0] != texts[1]
    streamed = ["", ""]
    with client.chat.completions.create(**ask, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts
    assert answer.usage.completion_tokens <= 32


def test_seed_repeats_and_another_seed_differs(client):
    def text(seed):
        answer = client.completions.create(model=MODEL, prompt="Once upon", temperature=1, seed=seed, max_tokens=24)
        return answer.choices[0].text

    assert text(2**64 - 1) == text(2**64 - 1)
    assert text(2**64 - 1) != text(2**64 - 2)


def test_chat_logprobs_match_the_tokens(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 6
    assert b"".join(bytes(token.bytes) for token in content).decode() == answer.choices[0].message.content
    for token in content:
        best = token.top_logprobs
        assert len(best) == 3 and token.logprob <= 0
        assert [entry.logprob for entry in best] == sorted((entry.logprob for entry in best), reverse=True)
        assert best[0].logprob == token.logprob and best[0].token == token.token


def test_streamed_logprobs_equal_the_whole_ones(client):
    ask = dict(model=MODEL, messages=CHAT, temperature=0, max_tokens=6, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**ask).choices[0].logprobs.content
    streamed = []
    with client.chat.completions.create(**ask, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                streamed += choice.logprobs.content if choice.logprobs and choice.logprobs.content else []
    assert streamed == whole


def test_completion_of_a_text(client):
    answer = client.completions.create(model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=COUNT_TOKENS)
    assert answer.object == "text_completion"
    assert answer.choices[0].text == COUNT_TEXT
    assert answer.choices[0].finish_reason == "length"


def test_completion_stream_equals_the_whole_answer(client):
    with client.completions.create(
        model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=COUNT_TOKENS, stream=True
    ) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == COUNT_TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_completion_absent_max_tokens_is_16(client):
    answer = client.completions.create(model=MODEL, prompt=COUNT_PROMPT, temperature=0)
    assert answer.usage.completion_tokens == 16


def test_completion_takes_lists_and_token_ids(client, server):
    ids = server.post("/tokenize", {"prompt": COUNT_PROMPT})["tokens"]
    texts = {}
    for name, prompt in {
        "texts": [COUNT_PROMPT, COUNT_PROMPT],
        "ids": ids,
        "lists of ids": [ids, ids, ids],
    }.items():
        answer = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=COUNT_TOKENS)
        texts[name] = [choice.text for choice in answer.choices]
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        assert answer.usage.prompt_tokens == len(ids) * len(answer.choices)
    assert texts == {"texts": [COUNT_TEXT] * 2, "ids": [COUNT_TEXT], "lists of ids": [COUNT_TEXT] * 3}


def test_completion_echo_scores_the_prompt(client):
    answer = client.completions.create(
        model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=1, echo=True, logprobs=2
    )
    scores = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith(COUNT_PROMPT)
    assert "".join(scores.tokens) == answer.choices[0].text
    assert scores.token_logprobs[0] is None and all(value <= 0 for value in scores.token_logprobs[1:])
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(scores.text_offset)
    assert scores.text_offset[0] == 0


def test_stop_string_ends_the_text_before_it(client):
    answer = client.completions.create(
        model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=COUNT_TOKENS, stop=["11"]
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (" 8, 9, 10, ", "stop")


def test_extra_body_fields_are_taken(client):
    answer = client.completions.create(
        model=MODEL,
        prompt=COUNT_PROMPT,
        max_tokens=COUNT_TOKENS,
        extra_body={"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0, "ignore_eos": True},
    )
    assert answer.choices[0].text == COUNT_TEXT


def test_bad_value_names_the_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=CHAT, temperature=9)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert "temperature" in str(caught.value)


def test_fields_of_later_are_refused_by_name(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=CHAT, modalities=["text", "audio"])
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "modalities")


def test_prompt_over_the_context_is_refused_with_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[16] * 9000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in str(caught.value) and "9000" in str(caught.value)


def test_raw_response_carries_the_request_id(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=CHAT, max_tokens=2)
    assert raw.headers["x-request-id"]
    assert raw.headers["content-type"].startswith("application/json")
    assert raw.parse().choices[0].message.content


def test_own_request_id_comes_back(client):
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=CHAT, max_tokens=1, extra_headers={"X-Request-Id": "trace-42"}
    )
    assert raw.headers["x-request-id"] == "trace-42"


def test_many_async_requests_at_once_are_all_right(server):
    async def ask(client):
        answer = await client.completions.create(
            model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=COUNT_TOKENS
        )
        return answer.choices[0].text

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=server.v1, api_key="x", max_retries=0, timeout=600) as client:
            return await asyncio.gather(*(ask(client) for _ in range(24)))

    assert asyncio.run(all_of_them()) == [COUNT_TEXT] * 24


def test_closing_a_stream_early_frees_the_server(client, server):
    with client.completions.create(
        model=MODEL, prompt="Once", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    server.wait_idle()
    assert client.completions.create(model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=24)


def test_key_is_asked_for_and_taken():
    with serving(environment={"MILLRACE_API_KEY": "secret-1"}) as guarded:
        with client_of(guarded, api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with client_of(guarded, api_key="secret-1") as client:
            assert client.models.list().data


def test_full_queue_is_retried_by_the_client():
    """One running sequence, no queue: the second request is refused until the first ends, and the client waits."""
    options = ["--sched.max_running", "1", "--sched.max_queued", "0"]
    with serving(*options) as small, client_of(small) as first:
        stream = first.completions.create(
            model=MODEL, prompt="Once", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        with client_of(small) as impatient, pytest.raises(openai.RateLimitError) as caught:
            impatient.completions.create(model=MODEL, prompt="a", max_tokens=1)
        assert float(caught.value.response.headers["retry-after"]) > 0
        answers = []

        def ask():
            with client_of(small, max_retries=8) as patient:
                answers.append(patient.completions.create(model=MODEL, prompt=COUNT_PROMPT, temperature=0, max_tokens=24))

        asking = threading.Thread(target=ask)
        refused = small.gauge("vllm:admission_rejections_total")
        asking.start()
        wait_for(
            lambda: small.gauge("vllm:admission_rejections_total") > refused, 30, "the second client was not refused"
        )
        stream.close()
        asking.join(60)
        assert [answer.choices[0].text for answer in answers] == [COUNT_TEXT]

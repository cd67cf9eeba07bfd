"""What clients rely on in answers: validators of every shape (clients break on each of these)."""

FINISH = {"stop", "length", "tool_calls"}


def check_usage(usage):
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    details = usage["prompt_tokens_details"]
    assert usage["prompt_tokens"] >= 1 and set(details) == {"cached_tokens"}
    assert 0 <= details["cached_tokens"] < usage["prompt_tokens"] or details["cached_tokens"] == 0


def counts(usage):
    """What doesn't depend on who came before."""
    return {name: n for name, n in usage.items() if name != "prompt_tokens_details"}


def check_head(obj, kind):
    assert isinstance(obj["id"], str) and obj["id"].startswith("cmpl-" if kind == "text_completion" else "chatcmpl-")
    assert obj["object"] == kind
    assert type(obj["created"]) is int and isinstance(obj["model"], str) and obj["model"]
    assert isinstance(obj["system_fingerprint"], str)


def check_chat_logprobs(logprobs, n_top):
    assert set(logprobs) == {"content", "refusal"}
    for entry in logprobs["content"]:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert isinstance(entry["token"], str) and entry["logprob"] <= 0
        assert all(type(b) is int and 0 <= b < 256 for b in entry["bytes"])
        assert len(entry["top_logprobs"]) == n_top
        for top in entry["top_logprobs"]:
            assert set(top) == {"token", "logprob", "bytes"}


def check_text_logprobs(logprobs):
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    n = len(logprobs["tokens"])
    assert all(len(logprobs[name]) == n for name in logprobs)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])


def check_answer(answer, body, chat):
    """A whole answer to this request body."""
    check_head(answer, "chat.completion" if chat else "text_completion")
    assert [c["index"] for c in answer["choices"]] == list(range(len(answer["choices"])))
    assert len(answer["choices"]) == (body.get("n") or 1) * count_prompts(body)
    check_usage(answer["usage"])
    for choice in answer["choices"]:
        assert choice["finish_reason"] in FINISH
        if chat:
            check_message(choice["message"], body)
            assert (choice["finish_reason"] == "tool_calls") <= bool(choice["message"].get("tool_calls"))
        else:
            assert isinstance(choice["text"], str)
        check_logprobs(choice["logprobs"], body, chat)
    return answer


def check_message(message, body):
    calls = message.get("tool_calls")
    assert message["role"] == "assistant"
    assert isinstance(message["content"], str) or (message["content"] is None and calls)
    if calls is None:
        return
    assert calls and body.get("tools") and len({c["id"] for c in calls}) == len(calls)
    for call in calls:
        assert set(call) == {"id", "type", "function"} and call["id"] and call["type"] == "function"
        assert set(call["function"]) == {"name", "arguments"} and isinstance(call["function"]["arguments"], str)


def check_call_delta(delta, calls):
    """One call's delta: id, type and name in its first one only."""
    (call,) = delta["tool_calls"]
    if call["index"] == len(calls):
        assert set(call) == {"index", "id", "type", "function"} and call["id"] and call["type"] == "function"
        assert set(call["function"]) == {"name", "arguments"} and call["function"]["name"]
        calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
    else:
        assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
        assert call["index"] == len(calls) - 1
    calls[-1]["arguments"] += call["function"]["arguments"]


def check_logprobs(logprobs, body, chat):
    wanted = bool(body.get("logprobs")) if chat else body.get("logprobs") is not None
    assert (logprobs is not None) == wanted
    if wanted and chat:
        check_chat_logprobs(logprobs, int(body.get("top_logprobs") or 0))
    elif wanted:
        check_text_logprobs(logprobs)


def count_prompts(body):
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1


class Stream:
    """The state machine every stream must pass; then texts, finish reasons and usage of its choices."""

    def __init__(self, events, body, chat):
        options = body.get("stream_options") or {}
        with_usage, always = options.get("include_usage"), options.get("continuous_usage_stats")
        n = (body.get("n") or 1) * count_prompts(body)
        self.text = [""] * n
        self.finish = [None] * n
        self.logprobs = [[] for _ in range(n)]
        self.calls = [[] for _ in range(n)]
        self.reasoning = [""] * n
        self.usage = None
        started = [False] * n
        ids = set()
        for i, event in enumerate(events):
            check_head(event, "chat.completion.chunk" if chat else "text_completion")
            ids.add(event["id"])
            last = i == len(events) - 1
            if not event["choices"]:
                assert with_usage and last
                check_usage(event["usage"])
                self.usage = event["usage"]
                continue
            if always:
                check_usage(event["usage"])
            elif with_usage:
                assert event["usage"] is None
            else:
                assert "usage" not in event
            (choice,) = event["choices"]
            index = choice["index"]
            assert self.finish[index] is None, "a chunk behind the finish"
            if choice["finish_reason"] is not None:
                assert choice["finish_reason"] in FINISH
                assert choice["delta"] == {} if chat else choice["text"] == ""
                self.finish[index] = choice["finish_reason"]
            elif chat:
                delta = dict(choice["delta"])
                if not started[index]:
                    assert delta == {"role": "assistant", "content": ""}
                elif "tool_calls" in delta:
                    assert set(delta) == {"tool_calls"} and body.get("tools")
                    check_call_delta(delta, self.calls[index])
                    delta["content"] = ""
                elif "reasoning" in delta:
                    assert set(delta) == {"reasoning", "reasoning_content"} and delta["reasoning"]
                    assert delta["reasoning"] == delta["reasoning_content"]
                    self.reasoning[index] += delta["reasoning"]
                    delta["content"] = ""
                else:
                    assert set(delta) == {"content"}, "role comes once"
                self.text[index] += delta["content"]
                if choice["logprobs"]:
                    check_chat_logprobs(choice["logprobs"], int(body.get("top_logprobs") or 0))
                    self.logprobs[index] += choice["logprobs"]["content"]
            else:
                self.text[index] += choice["text"]
                if choice["logprobs"]:
                    check_text_logprobs(choice["logprobs"])
                    self.logprobs[index].append(choice["logprobs"])
            started[index] = True
        assert len(ids) == 1 and None not in self.finish
        assert (self.usage is not None) == bool(with_usage)

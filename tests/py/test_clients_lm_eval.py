"""lm-eval (the evaluation harness) offline: scoring through echo with logprobs, and generation, with its remote
tokenizer mode (/tokenizer_info, /tokenize, /detokenize). Its results are compared with sums that this test makes itself
from single requests."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from client_server import MODEL, serving

QUESTIONS = [
    ("1, 2, 3, 4, 5, 6, 7,", [" 8, 9, 10", " cat, dog, cow", " 7, 7, 7"], 0),
    ("The capital of France is", [" Berlin", " Paris", " a potato"], 1),
    ("Monday, Tuesday, Wednesday,", [" Sunday", " Thursday", " January"], 1),
    ("Once upon a", [" time", " potato", " of"], 0),
]

CHOICE_TASK = """
task: mill_choice
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""

TEXT_TASK = """
task: mill_text
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
  temperature: 0
metric_list:
  - metric: exact_match
"""


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def samples(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm_eval")
    data = folder / "questions.jsonl"
    data.write_text(
        "".join(json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in QUESTIONS)
    )
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "choice.yaml").write_text(CHOICE_TASK.format(data=data))
    (tasks / "text.yaml").write_text(TEXT_TASK.format(data=data))
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).with_name("lm_eval"),
            "run",
            "--model",
            "local-completions",
            "--model_args",
            f"model={MODEL},base_url={server.v1}/completions,num_concurrent=4,max_retries=1,tokenized_requests=True",
            "--include_path",
            str(tasks),
            "--tasks",
            "mill_choice,mill_text",
            "--output_path",
            str(folder / "out"),
            "--log_samples",
        ],
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(folder / "hf"),
            "OPENAI_API_KEY": "unused",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for name in ("mill_choice", "mill_text"):
        (file,) = (folder / "out").rglob(f"samples_{name}_*.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found[name] = sorted(rows, key=lambda row: row["doc_id"])
    return found


def score(server, context, continuation):
    """Log-probability of a continuation from one plain request."""
    ids = [server.post("/tokenize", {"prompt": text})["tokens"] for text in (context, context + continuation)]
    assert ids[1][: len(ids[0])] == ids[0]
    answer = server.post(
        "/v1/completions", {"prompt": ids[1], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
    )
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(ids[0]) : len(ids[1])])


def test_scores_equal_single_requests(server, samples):
    for (question, choices, _), row in zip(QUESTIONS, samples["mill_choice"], strict=True):
        for choice, (reply,) in zip(choices, row["resps"], strict=True):
            assert float(reply[0]) == pytest.approx(score(server, question, choice), abs=2e-3)


def test_sure_questions_are_answered_right(samples):
    assert samples["mill_choice"][0]["acc"] == 1.0


def test_generation_equals_a_single_request(server, samples):
    for (question, _, _), row in zip(QUESTIONS, samples["mill_text"], strict=True):
        answer = server.post(
            "/v1/completions", {"prompt": question, "max_tokens": 8, "temperature": 0, "stop": ["\n"]}
        )
        assert row["resps"][0][0] == answer["choices"][0]["text"]

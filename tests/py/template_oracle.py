"""jinja2 as transformers sets it up, on a fixed clock, and a driver of our renderer."""

import datetime
import json
import os
import pathlib
import subprocess

import jinja2
import transformers.utils.chat_template_utils as hf

NOW = 1753776000  # 2025-07-29 08:00:00 UTC
BOS, EOS = "<s>", "</s>"


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


hf.datetime = FixedClock


class Raised(Exception):
    """The template's own raise_exception, with its message."""


def compile_template(source):
    return hf._cached_compile_jinja_template(source)


def render(template, messages, tools=None, kwargs=None, add_generation_prompt=False):
    """The text; Raised for raise_exception; any other exception as it comes."""
    variables = {"bos_token": BOS, "eos_token": EOS, "documents": None, **(kwargs or {})}
    try:
        text = template.render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **variables
        )
        text.encode()  # a lone surrogate is no text
        return text
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            raise Raised(e.message) from e
        raise


def binary(name):
    build = pathlib.Path(os.environ["MILLRACE_BUILD"])
    for path in (build / "tests" / name, build / name):
        if path.exists():
            return str(path)
    raise FileNotFoundError(f"{name} under {build}")


class Failed(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Ours:
    """One process of tests/tools/tmpl_render; the template stays until another is given."""

    def __init__(self):
        self.process = subprocess.Popen([binary("tmpl_render")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0

    def render(self, template=None, messages=(), tools=None, kwargs=None, **options):
        """(text, trusted ranges in bytes); Failed when ours fails."""
        job = {"messages": list(messages), "bos_token": BOS, "eos_token": EOS, "now": NOW, "verbatim": True}
        if template is not None:
            job["template"] = template
        if tools is not None:
            job["tools"] = tools
        if kwargs is not None:
            job["kwargs"] = kwargs
        job.update(options)
        return self.send(job)

    def send(self, job):
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self):
        out = self.process.stdout
        head = out.readline().split()
        assert head, "the renderer died"
        if head[0] == b"error":
            text = out.read(int(head[2]) + 1)[:-1].decode()
            raise Failed(head[1].decode(), text)
        text = out.read(int(head[1]) + 1)[:-1].decode()
        ranges = [tuple(map(int, out.readline().split())) for _ in range(int(head[2]))]
        return text, ranges

#!/usr/bin/env python3
"""structured_test.py BUILD: 20 schemas of programs over HTTP, at temperature 2, with the builtin model: answers are
valid by the package jsonschema, or valid as far as they go at max_tokens; OpenAI's own parse() takes them; regular
expressions, choices and any JSON object in the names of vLLM and OpenAI; errors name the field. With
ANNULUS_PRODUCTS=full, as tests/nightly.sh sets it, 200 schemas and 20 seeds for each.

Skipped (77) if the packages cannot be had from PyPI.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import sys

from clients_test import Daemon, check, install, raises
import program_schemas
from structured_answers_test import VALIDATORS, validator_of

ASK = [{"role": "user", "content": "Answer in JSON."}]


def closed(text):
    """A text that was cut, with what would end its string, arrays and objects: valid JSON if it was cut well."""
    stack, string, escaped = [], False, False
    for letter in text:
        if string:
            string = escaped or letter != '"'
            escaped = not escaped and letter == "\\"
        elif letter == '"':
            string = True
        elif letter in "[{":
            stack.append("]" if letter == "[" else "}")
        elif letter in "]}":
            check(stack and stack.pop() == letter, f"{letter} closes nothing: {text}")
    return not stack and not string


def answers_to(jsonschema, client, schema, seed, seeds):
    """How many answers, with a seed each, ended by themselves."""
    choices = client.chat.completions.create(
        model="small", messages=ASK, temperature=2, seed=seed, max_tokens=600, n=seeds,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}).choices
    check(len(choices) == seeds, f"{choices}")
    ended = 0
    for answer in choices:
        text = answer.message.content
        # The last token that fits may be the one that completes it.
        if answer.finish_reason == "length" and not closed(text):
            continue
        ended += answer.finish_reason == "stop"
        validator_of(jsonschema, schema).validate(json.loads(text))
    return ended


def answers_to_schemas(jsonschema, client, schemas, rounds, seeds):
    asked = [(schema, (i * rounds + turn) * seeds) for i, schema in enumerate(schemas) for turn in range(rounds)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ended = sum(pool.map(lambda ask: answers_to(jsonschema, client, *ask, seeds), asked))
    answers = len(asked) * seeds
    check(ended >= answers / 3, f"only {ended} of {answers} answers ended")
    print(f"structured_test: {answers} answers are valid, {ended} of them ended by themselves")


def parsed(pydantic, client):
    class Animal(pydantic.BaseModel):
        kind: program_schemas.typing.Literal["cat", "dog"]
        legs: int = pydantic.Field(ge=0, le=100)
        tame: bool

    for seed in range(5):
        animal = client.chat.completions.parse(model="small", messages=ASK, temperature=2, seed=seed, max_tokens=400,
                                               response_format=Animal).choices[0].message.parsed
        check(isinstance(animal, Animal) and 0 <= animal.legs <= 100, f"{animal}")
    with client.chat.completions.stream(model="small", messages=ASK, temperature=2, seed=9, max_tokens=400,
                                        response_format=Animal) as stream:
        check(isinstance(stream.get_final_completion().choices[0].message.parsed, Animal), "another stream")


def other_forms(openai, client):
    arguments = dict(model="small", prompt="Say: ", temperature=2, max_tokens=200, seed=1)

    def text(form):
        return client.completions.create(**arguments, extra_body={"structured_outputs": form}).choices[0].text

    check(re.fullmatch(r"[a-f]{3,9}-\d\d", text({"regex": r"[a-f]{3,9}-\d\d"})), "another regular expression")
    check(text({"choice": ["left", "right"]}) in ("left", "right"), "another choice")
    check(isinstance(json.loads(text({"json": {"type": "integer", "minimum": 5, "maximum": 77}})), int), "no integer")
    chat = client.chat.completions.create(model="small", messages=ASK, temperature=2, seed=4, max_tokens=2000,
                                          response_format={"type": "json_object"}).choices[0]
    check(chat.message.content.startswith("{"), f"{chat}")
    if chat.finish_reason == "stop":
        check(isinstance(json.loads(chat.message.content), dict), f"{chat}")
    raises(openai.BadRequestError, "response_format.json_schema.schema", lambda: client.chat.completions.create(
        model="small", messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}))
    raises(openai.BadRequestError, "structured_outputs.regex", lambda: text({"regex": "("}))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    install(build)
    for package in VALIDATORS:
        install(build, package)
    import jsonschema
    import openai
    import pydantic

    with Daemon(build, "builtin:recall") as daemon:
        client = openai.OpenAI(base_url=daemon.url, api_key="none", max_retries=0, timeout=60)
        whole = os.environ.get("ANNULUS_PRODUCTS") == "full"
        answers_to_schemas(jsonschema, client, program_schemas.make(openai, pydantic, 200 if whole else 20),
                           rounds=2 if whole else 1, seeds=10 if whole else 1)
        parsed(pydantic, client)
        other_forms(openai, client)


if __name__ == "__main__":
    main()

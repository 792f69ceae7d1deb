#!/usr/bin/env python3
"""structured_answers_test.py BUILD: answers to random logits under 200 schemas, as programs send them, are valid by
the package jsonschema, or were so far at the beginning of a valid one. Over some seeds of the day; over 1000 with
ANNULUS_PRODUCTS=full, as tests/nightly.sh sets it.

Skipped (77) if the packages cannot be had from PyPI.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from clients_test import check, install
import program_schemas

# The second lets the first check times.
VALIDATORS = ("jsonschema==4.26.0", "rfc3339-validator==0.1.4")
SCHEMAS = 200


def validator_of(jsonschema, schema):
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


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

    schemas = program_schemas.make(openai, pydantic, SCHEMAS)
    whole = os.environ.get("ANNULUS_PRODUCTS") == "full"
    first = 0 if whole else 3 * int(os.environ.get("ANNULUS_TEST_SEED", "1")) % 1000
    seeds = 1000 if whole else 3
    validators = [validator_of(jsonschema, schema) for schema in schemas]
    answers, ended = 0, 0
    # A file: both programs would wait for ever once the pipes to and from it are full.
    with tempfile.TemporaryFile("w+") as asked:
        asked.writelines(json.dumps(schema) + "\n" for schema in schemas)
        asked.seek(0)
        writer = subprocess.Popen([build / "tests" / "constrained-answers", str(first), str(first + seeds)], text=True,
                                  stdin=asked, stdout=subprocess.PIPE)
    with writer:
        for line in writer.stdout:
            answer = json.loads(line)
            beginning = answer["text"].removesuffix("\ufffd")  # it may end within a character
            check(answer["whole"].startswith(beginning), f"another beginning: {answer}")
            try:
                validators[answer["schema"]].validate(json.loads(answer["whole"]))
            except ValueError as error:
                check(False, f"{error}: {answer} of {schemas[answer['schema']]}")
            except jsonschema.ValidationError as error:
                check(False, f"{error.message}: {answer} of {schemas[answer['schema']]}")
            answers += 1
            ended += answer["whole"] == answer["text"]
    check(writer.returncode == 0, "constrained-answers failed")
    check(answers == SCHEMAS * seeds, f"{answers} answers")
    check(ended > answers / 4, f"only {ended} of {answers} answers ended by themselves")
    print(f"{answers} answers are valid, {ended} of them ended by themselves")


if __name__ == "__main__":
    main()

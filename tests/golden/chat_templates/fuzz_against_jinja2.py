#!/usr/bin/env python3
"""Compares random expressions and templates with jinja2, as Transformers sets it up.

    ninja -C build render_templates
    python fuzz_against_jinja2.py build/tests/render_templates [COUNT] [SEED]

Prints every template whose text differs, or that only one side renders. Not part of the test suite.
Known differences, which are passed over: integers beyond 64 bits, addresses of Python objects, and
texts of iterators, views, ranges and functions (refused here), strings marked as safe or escaped (plain
strings here), and `indent` of a list, which changes the list there.
"""

import copy
import json
import random
import re
import subprocess
import sys
import warnings

import make_chat_goldens as goldens

VALUES = ["0", "1", "-3", "7", "2.5", "-0.5", "1e20", "'abc'", "' a b '", "''", "'é東🎉'", "'A-b c'",
          "'12'", "true", "false", "none", "[1, 2, 3]", "['b', 'A', 'a']", "[]", "(1, 'x')", "{}",
          "{'a': 1, 'b': 'x'}", "missing", "xs", "words", "d", "s", "u", "n", "f", "messages",
          "messages[1]", "d.a", "d.z", "[[1, 2], [3]]", "'a,b,,c'", "'x\\ny\\n'"]
FILTERS = ["trim", "upper", "lower", "length", "join", "join(',')", "first", "last", "list", "default('d')",
           "default('d', true)", "replace('a', 'b')", "tojson", "tojson(indent=2)", "map('upper')|list",
           "map(attribute='a')|list", "selectattr('a')|list", "select('odd')|list", "reject|list",
           "select('string')|list", "items|list", "dictsort", "string", "int", "float", "abs", "round",
           "round(1)", "safe", "indent", "indent(2, true)", "capitalize", "title", "unique|list", "sort",
           "sort(reverse=true)", "reverse|list", "min", "max", "sum", "batch(2)|list", "slice(2)|list",
           "wordcount", "map('string')|join('+')", "groupby(0)", "count", "e", "truncate(5)",
           "reject('none')|list", "map('int')|list", "map('length')|list", "int(-1)", "float(9)"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "boolean",
         "true", "false", "integer", "float", "odd", "even", "divisibleby(2)", "eq(1)", "in([1, 'a'])",
         "lower", "upper", "gt(1)", "callable", "sameas(none)"]
METHODS = ["strip()", "strip('a ')", "lstrip()", "rstrip()", "split()", "split(',')", "split(',', 1)",
           "rsplit(none, 1)", "rsplit('a')", "splitlines()", "startswith('a')", "endswith(('c', 'b '))",
           "replace('a', 'xy')", "replace('', '-', 2)", "upper()", "lower()", "title()", "capitalize()",
           "swapcase()", "find('b')", "rfind('a')", "count('a')", "index('b')", "join(['x', 'y'])",
           "items()|list", "keys()|list", "values()|list", "get('a')", "get('q', 2)", "isdigit()",
           "isalpha()", "isspace()", "islower()", "isupper()", "partition(',')", "rpartition('a')",
           "zfill(6)", "center(9, '*')", "ljust(5)", "rjust(5)", "removeprefix('a')", "copy()",
           "append(1)", "format(1, 'x')", "isalnum()", "splitlines(true)", "count('')"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
             "and", "or"]
SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[5]", "['a']", "['b']", ".a", ".role",
              ".0", "[1:2]", "[-2:]", "[3:0:-1]", "['upper']", "[none]", "[true]", "[:99]", "[-99:]"]
PIECES = ["text ", "\n", "  ", "{# c #}", "{#- c -#}", "\t\n "]


def expression(rng, depth):
    kind = rng.randrange(12) if depth > 0 else 0
    if kind <= 1:
        return rng.choice(VALUES)
    inner = expression(rng, depth - 1)
    if kind <= 3:
        return f"({inner} {rng.choice(OPERATORS)} {expression(rng, depth - 1)})"
    if kind <= 5:
        return f"({inner})|{rng.choice(FILTERS)}"
    if kind == 6:
        return f"(({inner}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind == 7:
        return f"({inner}).{rng.choice(METHODS)}"
    if kind == 8:
        return f"({inner}){rng.choice(SUBSCRIPTS)}"
    if kind == 9:
        return f"({inner} if {expression(rng, depth - 1)} else {expression(rng, depth - 1)})"
    if kind == 10:
        return f"(not {inner})" if rng.random() < 0.5 else f"(-({inner}))"
    return rng.choice(["[{}, 1]", "({}, 2)", "{{'k': {}}}"]).format(inner)


def tag(rng, words):
    return "{%" + rng.choice(["", "", "-", "+"]) + " " + words + " " + rng.choice(["", "", "-", "+"]) + "%}"


def template(rng, depth):
    parts = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(8) if depth > 0 else rng.randrange(3)
        if kind == 0:
            parts.append(rng.choice(PIECES))
        elif kind <= 2:
            sign = rng.choice(["", "-"])
            parts.append("{{" + sign + " " + expression(rng, 3) + " " + rng.choice(["", "-"]) + "}}")
        elif kind == 3:
            parts += [tag(rng, "if " + expression(rng, 2)), template(rng, depth - 1), tag(rng, "else"),
                      template(rng, depth - 1), tag(rng, "endif")]
        elif kind == 4:
            condition = rng.choice(["", " if x", " if x is string"])
            parts += [tag(rng, "for x in " + expression(rng, 1) + condition), "{{ loop.index }}{{ loop.last }}",
                      template(rng, depth - 1), tag(rng, "endfor")]
        elif kind == 5:
            parts.append(tag(rng, f"set {rng.choice('nfsx')} = {expression(rng, 2)}"))
        elif kind == 6:
            parts += [tag(rng, "set x"), template(rng, depth - 1), tag(rng, "endset"), "{{ x }}"]
        else:
            parts += [tag(rng, "macro m(x, n=2)"), template(rng, depth - 1), tag(rng, "endmacro"),
                      "{{ m(" + expression(rng, 1) + ") }}"]
    return "".join(parts)


def is_known_difference(expected, answer):
    error = answer.get("error", "")
    # jinja2 evaluates slices of literals, such as (1)[2:], while it compiles, and forgives them there.
    if "64 bits" in error or "cannot be sliced" in error or "cannot be written as text" in error or "is not supported" in error:
        return True
    return expected is not None and re.search(r" object at 0x|Markup\(|<generator|dict_(items|keys|values)\(|range\(|"
                                              r"[0-9]{19}|<built-in|<function|<bound|<Macro|<Loop", expected)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    warnings.simplefilter("ignore")  # Python's about the code that jinja2 makes of the templates
    rng = random.Random(seed)
    templates = [template(rng, 3) if i % 3 == 0 else "{{ " + expression(rng, 4) + " }}" for i in range(count)]
    variables = goldens.constructs.VARIABLES
    jobs = "".join(json.dumps({"template": t, "variables": variables}) + "\n" for t in templates)
    run = subprocess.run([sys.argv[1]], input=jobs.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in run.stdout.decode().split("\n") if line]
    different = rendered = 0
    for source, answer in zip(templates, answers):
        expected = goldens.render(source, copy.deepcopy(variables))
        rendered += expected is not None
        if expected == answer.get("text") or is_known_difference(expected, answer):
            continue
        different += 1
        print(f"template {source!r}\n  jinja2 {expected!r}\n  annulus {answer!r}")
    print(f"seed {seed}: {different} of {count} differ; {rendered} render")


if __name__ == "__main__":
    main()

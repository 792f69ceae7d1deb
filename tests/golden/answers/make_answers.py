#!/usr/bin/env python3
"""Makes the transcripts of answers with reasoning and calls of tools, one file for each family.

    python make_answers.py TEMPLATES

TEMPLATES is a folder of chat templates as models publish them (*.jinja); they are not part of this
repository. Needs the package jinja2. Where a family's template at hand writes calls, it writes those of the
transcripts "template ..."; the others are written by hand, here. What each transcript holds comes from
what was given to the template or is written down here; nothing is read back from an answer.

A transcript: `answer`, a list of texts and of control tokens ({"token": ..}); `reasoning`, `text`, `calls`
(name, arguments; `open` where the arguments break off: then they are the text so far), `broken`: how many
reasons are given; `opened`: the prompt has opened the reasoning; `tools`: false if the request had none.
"""

import datetime
import json
import pathlib
import re
import sys

import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent


def function(name, **properties):
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {
        "type": "object", "properties": properties}}}


TEXT = {"type": "string"}
TOOLS = [
    function("get_weather", city=TEXT, days={"type": "integer"}, unit={"enum": ["celsius", "fahrenheit"]}),
    function("search", queries={"type": "array", "items": TEXT}, filter={"type": "object"}, exact={"type": "boolean"}),
    function("write_file", path=TEXT, content={"anyOf": [TEXT, {"type": "null"}]}),
    function("now"),
]
LONG = "A line of a longer text, with \"quotes\", a \\ and \ttabs.\n" * 6
CALLS = {
    "one call": [("get_weather", {"city": "Zürich", "days": 3, "unit": "celsius"})],
    "two calls": [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome", "days": 1})],
    "three calls": [("now", {}), ("search", {"queries": ["a", "b"]}), ("now", {})],
    "nested": [("search", {"queries": ["x"], "filter": {"year": -1.5e3, "tags": [[True, None], []], "deep": {"a": {"b": {}}}}, "exact": False})],
    "escapes": [("write_file", {"path": "C:\\new\\\"x\".txt", "content": "é ☃ 𝄞\n\ttab {\"name\": \"now\"} ]}"})],
    "long": [("write_file", {"path": "a.txt", "content": LONG})],
    "no arguments": [("now", {})],
}


def token(mark):
    """A control token within a text, until it is cut into pieces."""
    return f"\ue000{mark}\ue001"


def pieces(text):
    parts = re.split("(\ue000[^\ue001]*\ue001)", text)
    return [{"token": part[1:-1]} if part.startswith("\ue000") else part for part in parts if part]


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


class Family:
    def __init__(self, name, tokens):
        self.name, self.tokens, self.transcripts = name, tokens, []

    def add(self, name, answer, text="", reasoning="", calls=(), broken=0, **more):
        calls = [{"name": c[0], "arguments": c[1], **(c[2] if len(c) > 2 else {})} for c in calls]
        self.transcripts.append({"name": name, "answer": pieces(answer), "text": text, "reasoning": reasoning,
                                 "calls": calls, "broken": broken, **more})

    def mark(self, text):
        """Makes tokens of the family's marks in a text that a template has written."""
        return re.sub("|".join(map(re.escape, sorted(self.tokens, key=len, reverse=True))),
                      lambda m: token(m.group()), text) if self.tokens else text

    def common(self, call, think=None, text="", before="", many=True):
        """The transcripts that all families have. call(list): the text of calls; think(text): of reasoning."""
        for name, calls in CALLS.items():
            if many or len(calls) == 1:
                self.add(name, call(calls), calls=calls)
        one = CALLS["one call"]
        if before is not None:
            self.add("text before", "I look that up." + (before or "\n") + call(one), text="I look that up.", calls=one)
        self.add("text alone", "It rains.\n\n* <b> & {\"a\": 1}\n", text="It rains.\n\n* <b> & {\"a\": 1}\n")
        self.add("white space before", "\n\n" + call(one), calls=one)
        if think:
            self.add("reasoning", think("Hm, \"so\".\n\nYes.") + "It rains.", text="It rains.", reasoning="Hm, \"so\".\n\nYes.")
            self.add("reasoning and call", think("First Zürich.") + call(one), reasoning="First Zürich.", calls=one)
            self.add("reasoning alone", think("Hm.").rstrip("\n"), reasoning="Hm.")
            self.add("a JSON answer after reasoning", think("Hm.") + "{\"a\": 1}", text="{\"a\": 1}", reasoning="Hm.")

    def write(self):
        assert len(self.transcripts) >= 20, (self.name, len(self.transcripts))
        for one in self.transcripts:
            one["answer"] = one["answer"] or [""]
        # Texts of the others are seen when they are no marks.
        special = [mark for mark in self.tokens if mark.startswith(("<|", "["))]
        lines = ",\n".join(dumps(one) for one in self.transcripts)
        (HERE / f"{self.name}.json").write_text(
            f'{{"family": {dumps(self.name)}, "tokens": {dumps(self.tokens)}, "special": {dumps(special)},\n'
            f'"tools": {dumps(TOOLS)},\n"transcripts": [\n{lines}\n]}}\n')
        print(self.name, len(self.transcripts))


def environment():
    # Not the immutable one of Transformers, which refuses Kimi's template: that appends to a list.
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    def refuse(message):
        raise jinja2.TemplateError(message)
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime(2025, 1, 15).strftime(form)
    return env


def rendered(templates, file, calls, ids=None, eos="", as_text=False, **message):
    """What the template writes for an answer with calls, without the end of the turn."""
    template = environment().from_string((templates / file).read_text())
    items = []
    for i, (name, arguments) in enumerate(calls):
        call = {"type": "function", "function": {"name": name, "arguments": dumps(arguments) if as_text else arguments}}
        items.append({**({"id": ids[i]} if ids else {}), **call})
    asked = [{"role": "user", "content": "Do it."}]
    answer = {"role": "assistant", "content": "", "tool_calls": items, **message}
    variables = {"tools": TOOLS, "bos_token": "", "eos_token": eos}
    before = template.render(messages=asked, add_generation_prompt=True, **variables)
    after = template.render(messages=asked + [answer], add_generation_prompt=False, **variables)
    assert after.startswith(before), (file, before[-200:], after[-400:])
    return after[len(before):]


def cut(text, end):
    assert text.rstrip("\n").endswith(end), text[-100:]
    return text.rstrip("\n").removesuffix(end)


def hermes(templates, name, files):
    family = Family(name, ["<tool_call>", "</tool_call>", "<think>", "</think>"])
    opens, ends = token("<tool_call>"), token("</tool_call>")
    def body(n, a):
        return f'{{"name": "{n}", "arguments": {dumps(a)}}}'
    def call(calls):
        return "\n".join(f"{opens}\n{body(n, a)}\n{ends}" for n, a in calls)
    def think(text):
        return f"{token('<think>')}\n{text}\n{token('</think>')}\n\n"
    family.common(call, think)
    for file in files:
        for label, calls in CALLS.items():
            text = family.mark(cut(rendered(templates, file, calls), "<|im_end|>"))
            family.add(f"template {file.split('.jinja')[0]}: {label}", text, calls=calls)
    one = CALLS["one call"]
    family.add("opened by the prompt", f"\nHm.\n{token('</think>')}\n\n{call(one)}", reasoning="Hm.", calls=one, opened=True)
    family.add("opened by the prompt, never closed", "Hm, <tool_call> is a word.\n", reasoning="Hm, <tool_call> is a word.\n", opened=True)
    family.add("arguments first", f'{opens}{{"arguments": {{"city": "Oslo"}}, "name": "get_weather"}}{ends}', calls=[("get_weather", {"city": "Oslo"})])
    family.add("no arguments member", f'{opens}{{"name": "now"}}{ends}', calls=[("now", {})])
    family.add("parameters, and more members", f'{opens}{{"id": 7, "type": "function", "name": "now", "x": [{{"name": "no"}}], "parameters": {{}}}}{ends}', calls=[("now", {})])
    family.add("an escape in the name", f'{opens}{{"name": "n\\u006fw", "arguments": {{}}}}{ends}', calls=[("now", {})])
    family.add("no end mark", f'{opens}\n{body("now", {})}', calls=[("now", {})])
    family.add("text behind a call without end mark", f'{opens}\n{body("now", {})}\nDone.', text="Done.", calls=[("now", {})])
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("marks in a string", f'{opens}{{"name": "write_file", "arguments": {{"path": "<tool_call>", "content": "{ends}"}}}}{ends}',
               calls=[("write_file", {"path": "<tool_call>", "content": "</tool_call>"})])
    family.add("no tools", call(one) + "\nDone.", text=call(one).replace("\ue000", "").replace("\ue001", "") + "\nDone.", tools=False)
    family.add("another tool", f'{opens}{{"name": "rm", "arguments": {{}}}}{ends}', text='<tool_call>{"name": "rm", "arguments": {}}</tool_call>', broken=1)
    family.add("no JSON", f'{opens}\nnow(){ends}ok', text="<tool_call>\nnow()</tool_call>ok", broken=1)
    family.add("no name", f'{opens}{{"arguments": {{}}}}{ends}', text='<tool_call>{"arguments": {}}</tool_call>', broken=1)
    family.add("cut before the arguments", f'{opens}\n{{"name": "get_w', text='<tool_call>\n{"name": "get_w', broken=1)
    family.add("cut in the arguments", f'{opens}\n{{"name": "get_weather", "arguments": {{"city": "Os', calls=[("get_weather", '{"city": "Os', {"open": True})], broken=1)
    family.add("broken arguments", f'{opens}{{"name": "now", "arguments": {{"a" 1}}}}{ends}', text='1}}</tool_call>', calls=[("now", '{"a" ', {"open": True})], broken=1)
    family.add("broken, then whole", f'{opens}\n{{"name": \n{call(one)}', text='<tool_call>\n{"name": \n', calls=one, broken=1)
    family.add("a raw line feed in a string", f'{opens}{{"name": "write_file", "arguments": {{"path": "a\nb"}}}}{ends}', text='\nb"}}</tool_call>',
               calls=[("write_file", '{"path": "a', {"open": True})], broken=1)
    family.add("arguments that are no object", f'{opens}{{"name": "now", "arguments": "{{}}"}}{ends}', text='<tool_call>{"name": "now", "arguments": "{}"}</tool_call>', broken=1)
    family.write()


def llama(templates):
    family = Family("llama3", ["<|python_tag|>", "<think>", "</think>"])
    def body(n, a):
        return f'{{"name": "{n}", "parameters": {dumps(a)}}}'
    def call(calls):
        return "; ".join(body(n, a) for n, a in calls)
    family.common(call, lambda text: f"{token('<think>')}{text}{token('</think>')}", before=None)
    for file in ("meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.2-3B-Instruct.jinja"):
        for label, calls in CALLS.items():
            if len(calls) == 1:
                text = rendered(templates, file, calls)
                family.add(f"template {file.split('.jinja')[0]}: {label}", cut(text, "<|eot_id|>"), calls=calls)
    one, two = CALLS["one call"], CALLS["two calls"]
    tag = token("<|python_tag|>")
    family.add("with the mark", tag + call(two), calls=two)
    family.add("text before the mark", "I look. " + tag + call(one), text="I look.", calls=one)
    family.add("a line for each", "\n".join(body(n, a) for n, a in two), calls=two)
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("a JSON answer", '{"city": "Oslo", "name": "now"}', text='{"city": "Oslo", "name": "now"}')
    family.add("a JSON answer with a name", '{"name": "Bob", "age": 3}', text='{"name": "Bob", "age": 3}', broken=1)
    family.add("JSON behind text", 'So: {"name": "now", "parameters": {}}', text='So: {"name": "now", "parameters": {}}')
    family.add("builtin call", tag + 'brave_search.call(query="x")', text='<|python_tag|>brave_search.call(query="x")', broken=1)
    family.add("cut", '{"name": "now", "para', text='{"name": "now", "para', broken=1)
    family.add("cut in the arguments", '{"name": "now", "parameters": {"a', calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("no tools", call(one), text=call(one), tools=False)
    family.write()


def mistral(templates):
    family = Family("mistral", ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"])
    opens = token("[TOOL_CALLS]")
    def call(calls):
        return "".join(f"{opens}{n}{token('[ARGS]')}{dumps(a)}" for n, a in calls)
    def listed(calls):
        return opens + "[" + ", ".join(dumps({"name": n, "arguments": a}) for n, a in calls) + "]"
    family.common(call, lambda text: f"{token('[THINK]')}{text}{token('[/THINK]')}", before=" ")
    for file in ("Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistralai-Mistral-Nemo-Instruct-2407.jinja"):
        for label, calls in CALLS.items():
            ids = [f"abcdefgh{i}" for i in range(len(calls))]
            text = family.mark(cut(rendered(templates, file, calls, ids=ids, eos="</s>"), "</s>"))
            named = [(n, a, {"id": i}) for (n, a), i in zip(calls, ids)] if "Small" in file else calls
            family.add(f"template {file.split('.jinja')[0]}: {label}", text, calls=named)
    one = CALLS["one call"]
    family.add("a list", listed(CALLS["two calls"]), calls=CALLS["two calls"])
    family.add("an empty list", opens + "[]", text="")
    family.add("a single object", opens + dumps({"name": "now", "arguments": {}}), calls=[("now", {})])
    family.add("a name and an object", opens + ' now{"a": 1}', calls=[("now", {"a": 1})])
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("another tool", f"{opens}rm{token('[ARGS]')}{{}}", text="[TOOL_CALLS]rm[ARGS]{}", broken=1)
    family.add("cut", opens + "get_wea", text="[TOOL_CALLS]get_wea", broken=1)
    family.add("cut in a list", listed([("now", {})])[:-1] + ', {"name": "now", "arguments": {"a', calls=[("now", {}), ("now", '{"a', {"open": True})], broken=1)
    family.add("no tools", "a" + call(one), text="aget_weather" + dumps(one[0][1]), tools=False)
    family.write()


def deepseek(templates):
    family = Family("deepseek", ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<think>", "</think>"])
    begin, sep, end = token("<｜tool▁call▁begin｜>"), token("<｜tool▁sep｜>"), token("<｜tool▁call▁end｜>")
    def old(n, a):
        return f"{begin}function{sep}{n}\n```json\n{dumps(a)}\n```{end}"
    def new(n, a):
        return f"{begin}{n}{sep}{dumps(a)}{end}"
    def section(text):
        return token("<｜tool▁calls▁begin｜>") + text + token("<｜tool▁calls▁end｜>")
    def call(calls):
        return section("\n".join(old(n, a) for n, a in calls))
    family.common(call, lambda text: f"{token('<think>')}\n{text}\n{token('</think>')}\n\n")
    file = "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja"
    for label, calls in CALLS.items():
        if len(calls) > 2:
            continue
        # The template opens its generation prompt with "<think>\n", which it leaves out of history.
        template = environment().from_string((templates / file).read_text())
        items = [{"type": "function", "function": {"name": n, "arguments": dumps(a)}} for n, a in calls]
        text = template.render(messages=[{"role": "user", "content": "Do."}, {"role": "assistant", "content": None, "tool_calls": items}],
                               bos_token="", add_generation_prompt=False)
        text = text[text.index("<｜Assistant｜>") + len("<｜Assistant｜>"):].removesuffix("<｜end▁of▁sentence｜>")
        family.add(f"template {file.split('.jinja')[0]}: {label}", family.mark(text), calls=calls)
    one, two = CALLS["one call"], CALLS["two calls"]
    family.add("V3.1", section("".join(new(n, a) for n, a in two)), calls=two)
    family.add("no section", new(*one[0]), calls=one)
    family.add("opened by the prompt", "Hm.\n" + token("</think>") + call(one), reasoning="Hm.", calls=one, opened=True)
    family.add("another tool", section(new("rm", {})), text="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", broken=1)
    family.add("no fence", section(f"{begin}function{sep}now\n{{}}{end}"), text="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", broken=1)
    family.add("cut", token("<｜tool▁calls▁begin｜>") + begin + "function", text="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function", broken=1)
    family.add("cut in the arguments", token("<｜tool▁calls▁begin｜>") + f"{begin}now{sep}{{\"a", calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("cut in the fence", token("<｜tool▁calls▁begin｜>") + f"{begin}function{sep}now\n```json\n{{}}\n``", calls=[("now", {})])
    family.write()


def harmony(templates):
    marks = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]
    family = Family("harmony", marks)
    t = {m.strip("<|>"): token(m) for m in marks}
    def call(calls):
        return f"{t['start']}assistant".join(
            f"{t['channel']}commentary to=functions.{n} {t['constrain']}json{t['message']}{dumps(a)}{t['call']}" for n, a in calls)
    def channel(name, text, end):
        return f"{t['channel']}{name}{t['message']}{text}{t[end]}"
    def think(text):
        return channel("analysis", text, "end") + f"{t['start']}assistant"
    for name, calls in CALLS.items():
        family.add(name, call(calls), calls=calls)
        text = rendered(templates, "openai-gpt-oss-120b.jinja", calls[:1])
        family.add(f"template openai-gpt-oss-120b: {name}", family.mark(text), calls=calls[:1])
    one = CALLS["one call"]
    family.add("final", channel("final", "It rains.\n", "return"), text="It rains.")
    family.add("reasoning", think("Hm.\nYes.") + channel("final", "It rains.", "return"), text="It rains.", reasoning="Hm.\nYes.")
    family.add("reasoning and call", think("Hm.") + call(one), reasoning="Hm.", calls=one)
    family.add("a preamble", channel("commentary", "I look.", "end") + f"{t['start']}assistant" + call(one), text="I look.", calls=one)
    family.add("reasoning twice", think("A") + think("B") + channel("final", "C", "return"), text="C", reasoning="AB")
    family.add("no end", channel("final", "It rains.", "end") , text="It rains.")
    family.add("a builtin tool", f"{t['channel']}analysis to=python code{t['message']}print(1){t['call']}", text="<|channel|>analysis to=python code<|message|>print(1)", broken=1)
    family.add("another tool", call([("rm", {})]), text='<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}', broken=1)
    family.add("no tools", call(one), text=f'<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{dumps(one[0][1])}', broken=1, tools=False)
    family.add("cut in the arguments", f"{t['channel']}commentary to=functions.now {t['constrain']}json{t['message']}{{\"a", calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("cut in the header", f"{t['channel']}ana", text="")
    family.add("no header", "Hello.", text="Hello.")
    family.add("an end mark inside a string", f"{t['channel']}commentary to=functions.now{t['message']}{{\"a\": \"x{t['call']}", calls=[("now", '{"a": "x', {"open": True})], broken=1)
    family.write()


def kimi(templates):
    marks = ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"]
    family = Family("kimi", marks + ["<think>", "</think>"])
    s, b, a_, e, z = map(token, marks)
    def call(calls):
        return s + "".join(f"{b}functions.{n}:{i}{a_}{dumps(a)}{e}" for i, (n, a) in enumerate(calls)) + z
    def named(calls):
        return [(n, a, {"id": f"functions.{n}:{i}"}) for i, (n, a) in enumerate(calls)]
    family.common(call, lambda text: f"{token('<think>')}{text}{token('</think>')}")
    for label, calls in CALLS.items():
        text = rendered(templates, "Kimi-K2-Instruct.jinja", calls)
        family.add(f"template Kimi-K2-Instruct: {label}", family.mark(cut(text, "<|im_end|>")), calls=named(calls))
    one = CALLS["one call"]
    family.add("a call in reasoning", f"{token('<think>')}Hm.{call(one)}", reasoning="Hm.", calls=one)
    family.add("no section", f"{b}functions.now:0{a_}{{}}{e}", calls=[("now", {})])
    family.add("a plain name", f"{s}{b}now{a_}{{}}{e}{z}", calls=[("now", {})])
    family.add("another tool", f"{s}{b}functions.rm:0{a_}{{}}{e}{z}", text="<|tool_calls_section_begin|><|tool_call_begin|>functions.rm:0<|tool_call_argument_begin|>{}", broken=1)
    family.add("no arguments", f"{s}{b}functions.now:0{a_}{e}{z}ok", text="<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>ok", broken=1)
    family.add("cut", f"{s}{b}functions.no", text="<|tool_calls_section_begin|><|tool_call_begin|>functions.no", broken=1)
    family.add("cut in the arguments", f"{s}{b}functions.now:0{a_}{{\"a", calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("no tools", "a" + call(one), text="a" + f"functions.get_weather:0{dumps(one[0][1])}", tools=False)
    family.write()


def listed(name, mark, end, think, keys, more=()):
    family = Family(name, [mark] + ([end] if end else []) + list(more))
    opens = token(mark)
    n_, a_ = keys
    def call(calls):
        return opens + "[" + ", ".join(dumps({n_: n, a_: a}) for n, a in calls) + "]" + (token(end) if end else "")
    family.common(call, think)
    one = CALLS["one call"]
    family.add("indented", opens + "[\n  " + json.dumps({n_: "now", a_: {"a": [1]}}, indent=4) + "\n]\n" + (token(end) if end else ""), calls=[("now", {"a": [1]})])
    family.add("an empty list", opens + "[]" + (token(end) if end else ""))
    family.add("a single object", opens + dumps({n_: "now", a_: {}}), calls=[("now", {})])
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("another tool", opens + dumps([{n_: "rm", a_: {}}]), text=mark + dumps([{n_: "rm", a_: {}}]), broken=1)
    family.add("no list", opens + "now()", text=mark + "now()", broken=1)
    family.add("cut", opens + "[{\"" + n_, text=mark + "[{\"" + n_, broken=1)
    family.add("cut in the arguments", opens + f'[{{"{n_}": "now", "{a_}": {{"a', calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("cut behind a call", opens + f'[{{"{n_}": "now", "{a_}": {{}}}}, ', calls=[("now", {})])
    family.add("the second is broken", opens + f'[{{"{n_}": "now", "{a_}": {{}}}}, {{"x"}}]', calls=[("now", {})], text=', {"x"}]', broken=1)
    family.add("no tools", "a" + opens + "[]", text="a[]", tools=False)
    return family


def granite(templates):
    family = listed("granite", "<|tool_call|>", "", lambda text: f"<think>{text}</think>\n", ("name", "arguments"))
    family.add("a response", "<think>Hm.</think>\n\n<response>It rains.</response>", text="It rains.", reasoning="Hm.")
    family.add("a response with text behind", "<response>It rains.</response> So.", text="It rains.So.")
    family.write()


def command(templates):
    t = {m: token(f"<|{m}|>") for m in ("START_THINKING", "END_THINKING", "START_RESPONSE", "END_RESPONSE")}
    family = listed("command", "<|START_ACTION|>", "<|END_ACTION|>", lambda text: t["START_THINKING"] + text + t["END_THINKING"],
                    ("tool_name", "parameters"), [f"<|{m}|>" for m in t])
    for label, calls in CALLS.items():
        template = environment().from_string((templates / "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja").read_text())
        items = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
        text = template.render(messages=[{"role": "user", "content": "Do."}, {"role": "assistant", "content": "", "reasoning_content": "I plan.", "tool_calls": items}],
                               tools=TOOLS, bos_token="", add_generation_prompt=False)
        text = text[text.rindex("<|CHATBOT_TOKEN|>", 0, text.rindex("<|START_ACTION|>")) + len("<|CHATBOT_TOKEN|>"):]
        text = text[:text.index("<|END_OF_TURN_TOKEN|>")]
        family.add(f"template command-r7b: {label}", family.mark(text), reasoning="I plan.", calls=calls)
    family.add("a response", t["START_THINKING"] + "Hm." + t["END_THINKING"] + t["START_RESPONSE"] + "It rains." + t["END_RESPONSE"], text="It rains.", reasoning="Hm.")
    family.write()


def gemma(templates):
    family = Family("gemma", [])
    def body(n, a):
        return f'{{"name": "{n}", "parameters": {dumps(a)}}}'
    def call(calls):
        return "\n".join(body(n, a) for n, a in calls)
    def fence(word, text):
        return f"```{word}\n{text}\n```"
    family.common(call, before=None)
    one = CALLS["one call"]
    for label, calls in CALLS.items():
        if len(calls) == 1:
            family.add(f"fenced: {label}", fence("tool_code", body(*calls[0])), calls=calls)
    family.add("fenced behind text", "I look.\n" + fence("tool_code", body(*one[0])), text="I look.", calls=one)
    family.add("fenced as json", fence("json", body(*one[0])) + "\n", calls=one)
    family.add("json that is no call", fence("json", '{"a": 1}'), text=fence("json", '{"a": 1}'))
    family.add("json behind text", "So:\n" + fence("json", body(*one[0])), text="So:\n" + fence("json", body(*one[0])))
    family.add("python", fence("tool_code", "print(now())"), text=fence("tool_code", "print(now())"), broken=1)
    family.add("a JSON answer", '{"a": {"name": "now"}}', text='{"a": {"name": "now"}}')
    family.add("another tool", body("rm", {}), text=body("rm", {}), broken=1)
    family.add("other fences", "```python\nprint(1)\n```\n", text="```python\nprint(1)\n```\n")
    family.add("cut", '{"name": "no', text='{"name": "no', broken=1)
    family.add("cut in the arguments", '{"name": "now", "parameters": {"a', calls=[("now", '{"a', {"open": True})], broken=1)
    family.add("text behind", body(*one[0]) + "\nDone.", text="Done.", calls=one)
    family.add("no tools", body(*one[0]), text=body(*one[0]), tools=False)
    family.write()


def gemma4(templates):
    family = Family("gemma4", ["<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>'])
    opens, ends, thinks, ends_thought, quote = (token(m) for m in family.tokens)
    def written(v):
        if isinstance(v, str):
            return quote + v + quote
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{written(each)}" for k, each in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ",".join(map(written, v)) + "]"
        return dumps(v)
    def body(n, arguments):
        return f"{opens}call:{n}{arguments}{ends}"
    def call(calls):
        return "".join(body(n, written(a)) for n, a in calls)
    family.common(call, lambda text: f"{thinks}thought\n{text}\n{ends_thought}")
    template = environment().from_string((templates / "google-gemma-4-31B-it.jinja").read_text())
    turn = "<|turn>model\n"
    for label, calls in CALLS.items():
        items = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
        text = template.render(messages=[{"role": "user", "content": "Do."}, {"role": "assistant", "content": "",
                                          "reasoning_content": "I plan.", "tool_calls": items}], tools=TOOLS, bos_token="")
        text = cut(text[text.rindex(turn) + len(turn):], "<|tool_response>")
        family.add(f"template gemma-4: {label}", family.mark(text), reasoning="I plan.", calls=calls)
    one = CALLS["one call"]
    family.add("an empty thought", f"{thinks}thought\n{ends_thought}It rains.", text="It rains.")
    family.add("a thought without the word", f"{thinks}Hm.{ends_thought}It rains.", text="It rains.", reasoning="Hm.")
    family.add("a thought behind the text", f"It rains.{thinks}thought\n{ends_thought}", text="It rains.")
    family.add("an end of a thought too many", f"It rains.{ends_thought}", text="It rains.")
    family.add("opened by the prompt", f"Hm.{ends_thought}{call(one)}", reasoning="Hm.", calls=one, opened=True)
    family.add("white space", body("get_weather", f"{{ city : {quote}Oslo{quote} ,\n days: 3 }}"), calls=[("get_weather", {"city": "Oslo", "days": 3})])
    family.add("names between marks", body("get_weather", f"{{{quote}city{quote}:{quote}Oslo{quote}}}"), calls=[("get_weather", {"city": "Oslo"})])
    family.add("Python's constants", body("search", "{exact:True,filter:None}"), calls=[("search", {"exact": True, "filter": None})])
    family.add("a text without marks", body("get_weather", "{city:New York}"), calls=[("get_weather", {"city": "New York"})])
    family.add("JSON", body("get_weather", '{"city": "Oslo"}'), calls=[("get_weather", {"city": "Oslo"})])
    family.add("an end in a text", body("write_file", f"{{path:{quote}{ends}}}{quote}}}"), calls=[("write_file", {"path": "<tool_call|>}"})])
    family.add("a call in a text", f"{opens}call:write_file{{path:{quote}a{call([('now', {})])}",
               calls=[("write_file", '{"path": "a', {"open": True}), ("now", {})], broken=1)
    family.add("no end mark", f"{opens}call:now{{}}", calls=[("now", {})])
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("another tool", body("rm", "{}"), text="<|tool_call>call:rm{}<tool_call|>", broken=1)
    family.add("no name", f"{opens}now(){ends}", text="<|tool_call>now()<tool_call|>", broken=1)
    family.add("no names of members", body("now", "{1,2}"), text=",2}<tool_call|>", calls=[("now", "{", {"open": True})], broken=1)
    family.add("no value", body("now", "{a:}"), text="}<tool_call|>", calls=[("now", '{"a": ', {"open": True})], broken=1)
    family.add("the wrong bracket", body("now", "{a:[1}"), text="}<tool_call|>", calls=[("now", '{"a": [', {"open": True})], broken=1)
    family.add("a mark behind a text", body("now", f"{{a:{quote}b{quote}{quote}"), text='<|"|><tool_call|>', calls=[("now", '{"a": "b"', {"open": True})], broken=1)
    family.add("cut before the name", f"{opens}call:no", text="<|tool_call>call:no", broken=1)
    family.add("cut in the arguments", f"{opens}call:now{{a:1,b:2", calls=[("now", '{"a": 1, "b": ', {"open": True})], broken=1)
    family.add("cut in a text", f"{opens}call:now{{a:{quote}b", calls=[("now", '{"a": "b', {"open": True})], broken=1)
    family.add("no tools", call(one), text="call:get_weather{city:Zürich,days:3,unit:celsius}<tool_call|>", tools=False)
    family.write()


def value(v):
    return v if isinstance(v, str) else dumps(v)


def coder(templates):
    family = Family("qwen3_coder", ["<tool_call>", "</tool_call>"])
    opens, ends = token("<tool_call>"), token("</tool_call>")
    def inner(n, a):
        return f"<function={n}>\n" + "".join(f"<parameter={k}>\n{value(v)}\n</parameter>\n" for k, v in a.items()) + "</function>"
    def call(calls):
        return "\n".join(f"{opens}\n{inner(n, a)}\n{ends}" for n, a in calls)
    family.common(call)
    one = CALLS["one call"]
    family.add("no opening mark", inner(*one[0]) + "\n" + ends, calls=one)
    family.add("no marks at all", "I look.\n" + inner(*one[0]), text="I look.", calls=one)
    family.add("one line", f"{opens}<function=get_weather><parameter=city>Oslo</parameter><parameter=days>2</parameter></function>{ends}", calls=[("get_weather", {"city": "Oslo", "days": 2})])
    family.add("numbers in a text", f"{opens}<function=get_weather><parameter=city>123</parameter></function>{ends}", calls=[("get_weather", {"city": "123"})])
    family.add("line feeds in a text", f"{opens}<function=write_file><parameter=content>\n\na\n\n\n</parameter></function>{ends}", calls=[("write_file", {"content": "\na\n\n"})])
    family.add("tags in a text", f"{opens}<function=write_file><parameter=content>\n<a></par</p<parameter=x></function>\n</parameter></function>{ends}", calls=[("write_file", {"content": "<a></par</p<parameter=x></function>"})])
    family.add("an empty text", f"{opens}<function=write_file><parameter=content>\n\n</parameter></function>{ends}", calls=[("write_file", {"content": ""})])
    family.add("Python's constants", f"{opens}<function=search><parameter=exact>\nTrue\n</parameter><parameter=filter>\nNone\n</parameter></function>{ends}", calls=[("search", {"exact": True, "filter": None})])
    family.add("no JSON where it should be", f"{opens}<function=get_weather><parameter=days>\na few\n</parameter></function>{ends}", calls=[("get_weather", {"days": "a few"})])
    family.add("an unknown parameter", f"{opens}<function=now><parameter=x>\n[1]\n</parameter></function>{ends}", calls=[("now", {"x": [1]})])
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("another tool", f"{opens}\n<function=rm>\n</function>\n{ends}", text="<tool_call>\n<function=rm>\n</function>\n</tool_call>", broken=1)
    family.add("JSON", f'{opens}\n{{"name": "now"}}\n{ends}', text='<tool_call>\n{"name": "now"}\n</tool_call>', broken=1)
    family.add("cut before the name", f"{opens}\n<func", text="<tool_call>\n<func", broken=1)
    family.add("cut in a text", f"{opens}\n<function=write_file>\n<parameter=content>\nabc\n", calls=[("write_file", '{"content": "abc', {"open": True})], text="\n", broken=1)
    family.add("cut in a number", f"{opens}\n<function=get_weather>\n<parameter=days>\n12", calls=[("get_weather", '{"days": ', {"open": True})], text="\n12", broken=1)
    family.add("no tools", call(one), text=call(one).replace("\ue000", "").replace("\ue001", ""), tools=False)
    family.write()


def glm(templates):
    family = Family("glm", ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>", "</think>"])
    t = {m: token(f"<{m}>") for m in ("tool_call", "/tool_call", "arg_key", "/arg_key", "arg_value", "/arg_value", "think", "/think")}
    def pair(k, v, feed="\n"):
        return f"{t['arg_key']}{k}{t['/arg_key']}{feed}{t['arg_value']}{value(v)}{t['/arg_value']}{feed}"
    def call(calls, feed="\n"):
        return "\n".join(f"{t['tool_call']}{n}{feed}" + "".join(pair(k, v, feed) for k, v in a.items()) + t["/tool_call"] for n, a in calls)
    family.common(call, lambda text: f"{t['think']}{text}{t['/think']}\n")
    for label, calls in CALLS.items():
        family.add(f"without line feeds: {label}", call(calls, ""), calls=calls)
    one = CALLS["one call"]
    family.add("line feeds belong to a text", call([("write_file", {"content": "\na\n"})]), calls=[("write_file", {"content": "\na\n"})])
    family.add("opened by the prompt", f"Hm.{t['/think']}\n{call(one)}", reasoning="Hm.", calls=one, opened=True)
    family.add("text behind", call(one) + "\nDone.", text="Done.", calls=one)
    family.add("another tool", call([("rm", {"a": 1})]), text=re.sub("[\ue000\ue001]", "", call([("rm", {"a": 1})])), broken=1)
    family.add("a value without a key", f"{t['tool_call']}now\n{t['arg_value']}1{t['/arg_value']}{t['/tool_call']}", text="<arg_value>1</arg_value></tool_call>", calls=[("now", "{", {"open": True})], broken=1)
    family.add("cut before the name", f"{t['tool_call']}get", text="<tool_call>get", broken=1)
    family.add("cut in a text", f"{t['tool_call']}write_file\n{t['arg_key']}path{t['/arg_key']}\n{t['arg_value']}a", calls=[("write_file", '{"path": "a', {"open": True})], broken=1)
    family.add("no tools", call(one), text=re.sub("[\ue000\ue001]", "", call(one)), tools=False)
    family.write()


def main():
    templates = pathlib.Path(sys.argv[1])
    hermes(templates, "hermes", ["Qwen-Qwen2.5-7B-Instruct.jinja", "Qwen-Qwen3-0.6B.jinja", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja"])
    hermes(templates, "smollm3", [])
    for make in (llama, mistral, deepseek, harmony, kimi, granite, command, gemma, gemma4, coder, glm):
        make(templates)


main()

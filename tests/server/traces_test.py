#!/usr/bin/env python3
"""traces_test.py BUILD: what annulusd sends with --otlp-endpoint is what OpenTelemetry's own messages read, over
gRPC and HTTP; a collector that is away costs answers nothing.

Skipped (77) if opentelemetry-proto, grpcio or the small language model cannot be had from PyPI. They are kept in folders
of BUILD.
"""

import concurrent.futures
import json
import pathlib
import queue
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "http"))
from clients_test import Daemon, check, install, model_in  # noqa: E402

PACKAGES = ["opentelemetry-proto==1.45.2", "grpcio==1.85.3"]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def ask(daemon, traceparent=None):
    headers = {"Content-Type": "application/json"}
    if traceparent:
        headers["traceparent"] = traceparent
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 4}).encode()
    request = urllib.request.Request(daemon.url + "/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def counts(daemon):
    with urllib.request.urlopen(daemon.metrics, timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("annulus_trace_spans_")}


def main():
    build = pathlib.Path(sys.argv[1])
    for package in PACKAGES:
        install(build, package)
    model = model_in(build / "models")
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
    from opentelemetry.proto.trace.v1 import trace_pb2

    got = queue.Queue()

    class Collector(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):
            got.put(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")

    with Daemon(build, model, "--otlp-endpoint", f"127.0.0.1:{port}") as daemon:
        ask(daemon)  # nobody listens yet
        server.start()
        answer = ask(daemon, f"00-{TRACE}-{PARENT}-01")
        ask(daemon, f"00-{TRACE}-{PARENT}-00")  # not sampled
        spans = {}

        def complete(of_trace):
            return any(span.kind == trace_pb2.Span.SPAN_KIND_SERVER for span in of_trace)

        while len(spans) < 2 or not all(complete(of_trace) for of_trace in spans.values()):
            sent = got.get(timeout=60)
            resource = sent.resource_spans[0]
            check({a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "annulusd",
                  f"{resource.resource}")
            for span in resource.scope_spans[0].spans:
                spans.setdefault(span.trace_id, []).append(span)
        check(bytes.fromhex(TRACE) in spans, f"{spans.keys()}")
        for trace, of_trace in spans.items():
            call = next(span for span in of_trace if span.kind == trace_pb2.Span.SPAN_KIND_SERVER)
            check(call.name == "/v1/completions", f"{call}")
            check(call.parent_span_id == (bytes.fromhex(PARENT) if trace == bytes.fromhex(TRACE) else b""), f"{call}")
            check(not call.HasField("status"), f"{call.status}")
            phases = [span for span in of_trace if span is not call]
            check({"prefill", "decode"} <= {span.name for span in phases} <= {"queue", "prefill", "decode"}, f"{phases}")
            for span in phases:
                check(span.parent_span_id == call.span_id and span.kind == trace_pb2.Span.SPAN_KIND_INTERNAL, f"{span}")
                check(call.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
                      <= call.end_time_unix_nano, f"{span} {call}")
        call = next(span for span in spans[bytes.fromhex(TRACE)] if span.kind == trace_pb2.Span.SPAN_KIND_SERVER)
        values = {a.key: a.value for a in call.attributes}
        check(values["gen_ai.usage.input_tokens"].int_value == answer["usage"]["prompt_tokens"], f"{values} {answer}")
        check(values["gen_ai.usage.output_tokens"].int_value == 4, f"{values}")
        check(values["gen_ai.response.id"].string_value in answer["id"], f"{values} {answer}")
        sent = sum(len(of_trace) for of_trace in spans.values())
        wanted = {"annulus_trace_spans_sent_total": sent, "annulus_trace_spans_dropped_total": 0}
        # The daemon counts them once the collector has answered, which is after they came here.
        until = time.monotonic() + 20
        while counts(daemon) != wanted:
            check(time.monotonic() < until, f"{counts(daemon)}, {sent} came")
    server.stop(None)


if __name__ == "__main__":
    main()

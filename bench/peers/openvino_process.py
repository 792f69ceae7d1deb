#!/usr/bin/env python3
"""Serves OpenVINO GenAI to programs.py: openvino_process.py FILE.gguf THREADS CACHE_GIB

Reads lines of JSON, {"id": .., "tokens": [..], "count": ..}, and prints "ready", then a line
"id" for each token of a request's answer when it is there, and "id end" after the last one, or after
{"id": .., "cancel": true}. All requests run in one ContinuousBatchingPipeline, which reads them before each of its steps. Runs in a
Python that has the package openvino-genai.
"""

import json
import queue
import sys
import threading

import numpy
import openvino
import openvino_genai


def main():
    model, threads, cache_gib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = cache_gib
    scheduler.enable_prefix_caching = True
    scheduler.max_num_batched_tokens = 2048
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
    requests = queue.Queue()

    def read():
        for line in sys.stdin:
            requests.put(json.loads(line))
        requests.put(None)

    threading.Thread(target=read, daemon=True).start()
    print("ready", flush=True)
    handles = {}
    while True:
        # Waits where nothing runs.
        while not handles or not requests.empty():
            request = requests.get()
            if request is None:
                return
            number = request["id"]
            if request.get("cancel"):
                if number in handles:
                    handles[number][0].cancel()
                    handles[number][1] = 0
                continue
            config = openvino_genai.GenerationConfig(
                max_new_tokens=request["count"], ignore_eos=True)
            tokens = openvino.Tensor(numpy.array([request["tokens"]], numpy.int64))
            handles[number] = [pipeline.add_request(number, tokens, config), request["count"]]
        pipeline.step()
        for number, state in list(handles.items()):
            while state[0].can_read():
                for output in state[0].read().values():
                    state[1] -= len(output.generated_ids)
                    for _ in output.generated_ids:
                        print(number, flush=True)
            if state[1] <= 0:
                print(number, "end", flush=True)
                del handles[number]


if __name__ == "__main__":
    main()

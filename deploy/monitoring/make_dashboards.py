#!/usr/bin/env python3
"""Writes the Grafana dashboards: deploy/monitoring/make_dashboards.py [FOLDER].

FOLDER is where NAME.json go, default `dashboards` beside this script. Change a panel here, run this,
and commit both: a test compares them.
"""

import argparse
import json
import pathlib

# (title, unit, kind, what it tells, [(legend, query), ...]). SEL stands for the labels that the
# variables of a dashboard choose. A stack shows shares of a whole, a stat only the latest value.
SEL = 'job=~"$job",instance=~"$instance"'


def quantile(share, family):
    return (f"histogram_quantile({share}, sum by (le) "
            f"(rate({family}_bucket{{{SEL}}}[$__rate_interval])))")


def rate(family, by="", more=""):
    chosen = SEL + ("," + more if more else "")
    by = f" by ({by})" if by else ""
    return f"sum{by} (rate({family}{{{chosen}}}[$__rate_interval]))"


def gauge(family, by="", more="", how="sum"):
    chosen = SEL + ("," + more if more else "")
    by = f" by ({by})" if by else ""
    return f"{how}{by} ({family}{{{chosen}}})"


SERVICE = [
    ("State", "short", "stat", "1 for the state that a daemon is in.",
     [("{{instance}} {{state}}", gauge("annulus_server_state", "instance, state") + " > 0")]),
    ("Requests", "short", "stack", "Running ones hold a place; parked ones wait for their readers.",
     [("running", gauge("annulus_num_requests_running")),
      ("waiting", gauge("annulus_num_requests_waiting")),
      ("parked", gauge("annulus_num_requests_parked"))]),
    ("Calls under way", "short", "lines", "Calls that generate or prefill.",
     [("{{instance}}", gauge("annulus_active_generations", "instance"))]),
    ("Calls that follow another one's request", "reqps", "lines", "Retries and second readers, by request_id.",
     [("{{instance}}", rate("annulus_calls_attached_total", "instance"))]),
    ("Answers kept for retries", "bytes", "lines", "At most --max-replay-memory.",
     [("{{instance}}", gauge("annulus_replay_memory_bytes", "instance"))]),
    ("Time to first token", "s", "lines", "From submission, the wait in the queue included.",
     [(name, quantile(share, "annulus_time_to_first_token_seconds"))
      for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))]),
    ("Time between tokens", "s", "lines", "Of one request.",
     [(name, quantile(share, "annulus_inter_token_latency_seconds"))
      for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))]),
    ("Longest gap between tokens", "s", "lines", "Of each request, the worst.",
     [(name, quantile(share, "annulus_request_longest_gap_seconds"))
      for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))]),
    ("Tokens of a step", "short", "lines", "Prompt rows, and one for each token sampled.",
     [(name, quantile(share, "annulus_iteration_tokens"))
      for name, share in (("p50", 0.5), ("p95", 0.95))]),
    ("Stalls", "short", "lines", "Times a second that a stream waited longer than --stall-budget for its "
     "next token.",
     [("{{instance}}", rate("annulus_stall_violations_total", "instance"))]),
    ("Smallest chunk of a prompt", "s", "lines", "Above --stall-budget it cannot be kept.",
     [("{{instance}}", gauge("annulus_smallest_chunk_seconds", "instance", how="max"))]),
    ("Stretches of chunks", "short", "lines", "Times a second that a step ran only some layers of a prompt's "
     "chunk: beside answers, as no page fits into --stall-budget; without any, as larger chunks are read faster.",
     [("{{instance}}", rate("annulus_chunk_stretches_total", "instance"))]),
    ("Error of foreseen step times", "percentunit", "lines", "Of the real time, mean of the last steps.",
     [("{{instance}}", gauge("annulus_step_cost_error_ratio", "instance", how="max"))]),
    ("Where a request's time goes, p95", "s", "lines", "The three follow each other.",
     [("queue", quantile(0.95, "annulus_request_queue_time_seconds")),
      ("prefill", quantile(0.95, "annulus_request_prefill_time_seconds")),
      ("decode", quantile(0.95, "annulus_request_decode_time_seconds")),
      ("prefill and decode", quantile(0.95, "annulus_request_inference_time_seconds")),
      ("all", quantile(0.95, "annulus_e2e_request_latency_seconds"))]),
    ("Tokens a second", "short", "lines", "Computed prompt tokens, and generated ones.",
     [("prompt", rate("annulus_prompt_tokens_total")),
      ("generated", rate("annulus_generation_tokens_total"))]),
    ("Time of the engine's loop", "percentunit", "lines", "Shares of a second. Between steps the ranks stand idle: "
     "results are used, the next step is planned.",
     [("steps", rate("annulus_step_seconds_total")), ("between", rate("annulus_host_seconds_total"))]),
    ("Experts that were not in memory", "percentunit", "lines", "With --expert-memory: of the experts that steps needed, and of "
     "the steps those that waited for one.",
     [("experts", rate("annulus_expert_misses_total") + " / clamp_min(" + rate("annulus_expert_hits_total")
       + " + " + rate("annulus_expert_misses_total") + ", 1e-9)"),
      ("steps", rate("annulus_expert_waited_steps_total") + " / clamp_min("
       + rate("annulus_expert_steps_total") + ", 1e-9)")]),
    ("Experts read", "Bps", "lines", "With --expert-memory.",
     [("{{instance}}", rate("annulus_expert_read_bytes_total", "instance"))]),
    ("Waits for experts", "short", "lines", "Seconds a second, of all ranks together.",
     [("{{instance}}", rate("annulus_expert_wait_seconds_total", "instance"))]),
    ("What a request waited for, p95", "s", "lines", "Of all its steps: a peer on the ring, or the engine between two steps.",
     [("ring", quantile(0.95, "annulus_request_ring_wait_seconds")),
      ("host", quantile(0.95, "annulus_request_host_time_seconds"))]),
    ("Tokens that a request was spared, p95", "short", "lines", "Found in a cache, or guessed right ahead.",
     [("cached", quantile(0.95, "annulus_request_cached_tokens")),
      ("guessed", quantile(0.95, "annulus_request_accepted_tokens"))]),
    ("Stalls and preemptions of a request, p99", "short", "lines", "Gaps longer than --stall-budget; times that it gave up its pages.",
     [("stalls", quantile(0.99, "annulus_request_stalls")),
      ("preemptions", quantile(0.99, "annulus_request_preemptions"))]),
    ("Tokens guessed ahead", "short", "lines", "A second: tried by --speculate, and right.",
     [("tried", rate("annulus_spec_decode_num_draft_tokens_total")),
      ("right", rate("annulus_spec_decode_num_accepted_tokens_total"))]),
    ("Requests that ended well", "reqps", "lines", "stop: the text ended; length: max_tokens did.",
     [("{{finished_reason}}", rate("annulus_request_success_total", "finished_reason"))]),
    ("Failed calls", "reqps", "lines", "By gRPC code.",
     [("{{code}}", rate("annulus_request_errors_total", "code"))]),
    ("Calls by method", "reqps", "lines", "That ended, whatever their code.",
     [("{{method}}", rate("annulus_grpc_requests_total", "method"))]),
    ("Calls by code", "reqps", "lines", "gRPC's, of all methods.",
     [("{{code}}", rate("annulus_grpc_requests_total", "code"))]),
    ("What became of generations", "reqps", "stack", "rejected: not allowed, by limits or load; failed: by a fault of the server.",
     [("{{fate}}", rate("annulus_requests_settled_total", "fate"))]),
    ("Generations offered, and open", "short", "lines", "Offered a second; open now. Offered = settled + open, exactly.",
     [("offered", rate("annulus_requests_offered_total")),
      ("open", gauge("annulus_requests_open"))]),
    ("Refused at the door", "reqps", "lines", "context: longer than the model's; memory: can never fit.",
     [("{{reason}}", rate("annulus_admission_rejections_total", "reason"))]),
    ("Time to refuse a call", "s", "lines", "For overload, on the server's clock.",
     [(name, quantile(share, "annulus_refusal_seconds"))
      for name, share in (("p50", 0.5), ("p99", 0.99))]),
    ("Refused by quotas", "reqps", "lines", "Generations and uploads beyond what the tokens file allows their tenant.",
     [("{{quota}}", rate("annulus_quota_refusals_total", "quota"))]),
    ("Connections cut off", "cps", "lines", "headers: too long; memory: the most begun and not ended; slow: a call's message did not come.",
     [("{{reason}}", rate("annulus_connections_cut_off_total", "reason"))]),
    ("Length of prompts", "short", "lines", "Tokens.",
     [(name, quantile(share, "annulus_request_prompt_tokens"))
      for name, share in (("p50", 0.5), ("p95", 0.95))]),
    ("Allowed length of answers", "short", "lines", "max_tokens.",
     [(name, quantile(share, "annulus_request_max_num_generation_tokens"))
      for name, share in (("p50", 0.5), ("p95", 0.95))]),
    ("Length of answers", "short", "lines", "Tokens.",
     [(name, quantile(share, "annulus_request_generation_tokens"))
      for name, share in (("p50", 0.5), ("p95", 0.95))]),
    ("Lost log lines", "short", "lines", "blocked: the log's reader is too slow; rate: clients cause too many.",
     [("{{reason}}", rate("annulus_log_lines_dropped_total", "reason"))]),
    ("Traces", "ops", "lines", "Spans for --otlp-endpoint; dropped: it took none.",
     [("sent", rate("annulus_trace_spans_sent_total")), ("dropped", rate("annulus_trace_spans_dropped_total"))]),
    ("Certificates end in", "s", "lines", "Seconds left of each certificate that a daemon uses; without TLS there is none.",
     [("{{instance}} {{option}} {{position}}",
       gauge("annulus_certificate_expiry_timestamp_seconds", "instance, option, position", how="min") + " - time()")]),
    ("Builds", "short", "stat", "Versions that run.",
     [("{{version}}", gauge("annulus_build_info", "version"))]),
]

MEMORY = [
    ("Pages in use", "percentunit", "lines", "Pages of running requests over all; reserved: promised at "
     "admission, with nothing in them yet.",
     [("{{instance}} in use", gauge("annulus_kv_cache_usage_perc", "instance", how="max")),
      ("{{instance}} reserved", gauge("annulus_kv_cache_reserved_perc", "instance", how="max"))]),
    ("Ranks up", "short", "lines", "1 while a rank answers.",
     [("rank {{rank}}", gauge("annulus_rank_up", "rank", how="min"))]),
    ("Memory of ranks", "bytes", "stack", "By what it is for.",
     [("{{kind}}", gauge("annulus_rank_memory_bytes", "kind"))]),
    ("Memory of each rank", "bytes", "lines", "All kinds together.",
     [("rank {{rank}}", gauge("annulus_rank_memory_bytes", "rank"))]),
    ("Pools", "bytes", "stack", "held: in use; reserved: for running requests; cached: given back when needed.",
     [("{{pool}} {{state}}", gauge("annulus_pool_bytes", "pool, state"))]),
    ("Pools: most ever held", "percentunit", "lines", "Over the pool's hard bound.",
     [("{{pool}}", gauge("annulus_pool_high_water_bytes", "pool", how="max") + " / "
       + gauge("annulus_pool_limit_bytes", "pool", how="max"))]),
    ("Fragmentation", "percentunit", "lines", "1 - largest free block / free bytes.",
     [("{{pool}}", gauge("annulus_pool_fragmentation_ratio", "pool", how="max"))]),
    ("Pools refuse, and give back", "ops", "lines", "Refusals at the bound; trims return memory to the device.",
     [("refused", rate("annulus_pool_refusals_total")),
      ("trims", rate("annulus_pool_trims_total"))]),
    ("Returned to the device", "Bps", "lines", "Bytes a second.",
     [("{{pool}}", rate("annulus_pool_trimmed_bytes_total", "pool"))]),
    ("Process", "bytes", "lines", "Resident, the most so far, and what admission foresaw.",
     [("resident", gauge("annulus_process_resident_bytes")),
      ("most", gauge("annulus_process_resident_most_bytes")),
      ("foreseen", gauge("annulus_memory_foreseen_bytes"))]),
    ("Processor time of the process", "short", "lines", "Processors in use, all threads.",
     [("{{instance}}", rate("process_cpu_seconds_total", "instance"))]),
    ("Descriptors", "percentunit", "lines", "Open over allowed.",
     [("{{instance}}", gauge("process_open_fds", "instance") + " / " + gauge("process_max_fds", "instance"))]),
    ("Up since", "s", "stat", "Seconds.",
     [("{{instance}}", "time() - " + gauge("process_start_time_seconds", "instance", how="min"))]),
    ("Cache", "short", "stat", "Tokens of a page, and how they are held.",
     [("{{block_size}} {{cache_dtype}}", gauge("annulus_cache_config_info", "block_size, cache_dtype"))]),
    ("Foreseen", "bytes", "stack", "Most memory that the process needs at once, by part.",
     [("{{part}}", gauge("annulus_memory_foreseen_bytes", "part"))]),
    ("What ranks do", "short", "lines", "Seconds a second. exposed_wait: nothing to attend until a peer sends.",
     [("rank {{rank}} {{phase}}", rate("annulus_ring_seconds_total", "rank, phase"))]),
    ("Share of waiting", "percentunit", "lines", "exposed_wait over all three.",
     [("rank {{rank}}", rate("annulus_ring_seconds_total", "rank", 'phase="exposed_wait"') + " / "
       + rate("annulus_ring_seconds_total", "rank"))]),
    ("Bytes between ranks", "Bps", "lines", "By ring mode; estimate: to settle which blocks are attended.",
     [("rank {{rank}} {{mode}}", rate("annulus_ring_bytes_total", "rank, mode"))]),
    ("Ring modes", "ops", "lines", "Item groups that a step ran in each.",
     [("{{mode}}", rate("annulus_ring_mode_total", "mode"))]),
    ("Workers", "short", "lines", "Processes that host ranks for a server; incomplete: 1 while it waits for some.",
     [("{{instance}} {{state}}", gauge("annulus_workers", "instance, state")),
      ("{{instance}} incomplete", gauge("annulus_ring_incomplete", "instance"))]),
    ("Workers up", "short", "lines", "As their coordinator sees them, and as they see it.",
     [("{{worker}}", gauge("annulus_worker_up", "worker", how="min")),
      ("{{instance}} connected", gauge("annulus_worker_connected", "instance"))]),
    ("Silence of workers", "s", "lines", "Since the last beat, which comes every 0.25 s.",
     [("{{worker}}", gauge("annulus_worker_silence_seconds", "worker", how="max"))]),
    ("Epochs", "short", "lines", "How often the ring between processes has formed.",
     [("{{instance}}", gauge("annulus_epoch", "instance", how="max"))]),
    ("Losses in rings of several processes", "ops", "lines",
     "Workers whose connection ended, that were silent or sent what they may not, and messages between ranks that failed.",
     [("{{cause}}", rate("annulus_ring_losses_total", "cause"))]),
    ("Links between processes", "Bps", "lines", "What a rank can send to others, as measured when the ring last formed.",
     [("{{instance}}", gauge("annulus_link_bytes_per_second", "instance", how="max"))]),
    ("Messages between processes", "s", "lines", "How long a small one takes, measured likewise.",
     [("{{instance}}", gauge("annulus_link_message_seconds", "instance", how="max"))]),
    ("What workers wait for", "short", "lines", "Seconds a second: their ranks for others, the worker for a step.",
     [("{{worker}} for ranks", rate("annulus_worker_exposed_seconds_total", "worker")),
      ("{{instance}} for steps", rate("annulus_worker_wait_seconds_total", "instance"))]),
    ("Steps of workers", "ops", "lines", "Ended on their ranks.",
     [("{{instance}}", rate("annulus_worker_steps_total", "instance"))]),
    ("Memory of workers' ranks", "bytes", "stack", "As the workers report it, by what it is for.",
     [("{{instance}} rank {{rank}} {{kind}}", gauge("annulus_worker_rank_memory_bytes", "instance, rank, kind"))]),
    ("Requests that gave up their pages", "ops", "lines", "Preemptions, and requests that went on after a step had failed.",
     [("preemptions", rate("annulus_num_preemptions_total")),
      ("{{way}}", rate("annulus_recovered_requests_total", "way")),
      ("failed steps", rate("annulus_failed_steps_total"))]),
    ("Lost tokens computed again", "short", "lines", "Tokens a second, in place: ranks had lost their keys and values.",
     [("repaired", rate("annulus_repaired_tokens_total"))]),
    ("Device graphs: steps", "ops", "lines", "On GPUs: whole, or cut into pieces.",
     [("{{outcome}}", rate("annulus_graph_steps_total", "outcome"))]),
    ("Device graphs: launches", "ops", "lines", "In graphs, or one by one.",
     [("{{how}}", rate("annulus_graph_launches_total", "how"))]),
    ("Device graphs: work on them", "ops", "lines", "Launches that differed, and graphs made anew.",
     [("updates", rate("annulus_graph_updates_total")),
      ("built", rate("annulus_graph_built_total"))]),
    ("Device graphs: cuts", "ops", "lines", "What cut them.",
     [("{{reason}}", rate("annulus_graph_cuts_total", "reason"))]),
]

DOCUMENTS = [
    ("Documents", "short", "lines", "Stored ones.",
     [("{{instance}}", gauge("annulus_documents", "instance"))]),
    ("Memory of documents", "bytes", "lines", "Token ids, uploads in progress included.",
     [("{{instance}}", gauge("annulus_document_memory_bytes", "instance"))]),
    ("Uploads", "ops", "lines", "unchanged: the same text was there.",
     [("{{outcome}}", rate("annulus_document_uploads_total", "outcome"))]),
    ("Documents evicted", "ops", "lines", "Uploaded for one question, and removed to make room for others.",
     [("{{instance}}", rate("annulus_documents_evicted_total", "instance"))]),
    ("Files of documents", "bytes", "lines", "With --documents: what they take, and may take.",
     [("{{instance}} taken", gauge("annulus_documents_disk_bytes", "instance")),
      ("{{instance}} limit", gauge("annulus_documents_disk_limit_bytes", "instance"))]),
    ("Faults of the documents' disk", "short", "lines",
     "Failed calls a second, a full disk included; files that the latest start could not load.",
     [("{{instance}} failed", rate("annulus_documents_disk_errors_total", "instance")),
      ("{{instance}} lost", gauge("annulus_documents_lost", "instance"))]),
    ("Prompt tokens found computed", "percentunit", "lines", "Reused over looked up: what a document saves when it is asked again.",
     [("hits", rate("annulus_prefix_cache_hits_total") + " / "
       + rate("annulus_prefix_cache_queries_total"))]),
    ("Prompt tokens", "short", "lines", "A second.",
     [("reused", rate("annulus_prefix_cache_hits_total")),
      ("computed", rate("annulus_prompt_tokens_total"))]),
    ("Keys and values kept", "bytes", "stack", "kv_cached is given back when a request needs it.",
     [("{{kind}}", gauge("annulus_rank_memory_bytes", "kind", 'kind=~"kv_.*"'))]),
    ("Bytes of the tiers", "bytes", "lines", "With --kv-host and --kv-disk: what their pages take, and may take.",
     [("{{tier}} taken", gauge("annulus_kv_tier_bytes", "tier")),
      ("{{tier}} limit", gauge("annulus_kv_tier_limit_bytes", "tier"))]),
    ("Tokens back from the tiers", "short", "lines", "A second: not computed again.",
     [("{{tier}}", rate("annulus_kv_tier_hits_total", "tier"))]),
    ("Reads and writes of the tiers", "Bps", "lines", "Of pages.",
     [("{{tier}} {{way}}", rate("annulus_kv_tier_moved_bytes_total", "tier, way"))]),
    ("Time of the tiers", "short", "lines",
     "Seconds a second that pages were read or written, and that prompts waited for writes.",
     [("{{tier}} {{way}}", rate("annulus_kv_tier_seconds_total", "tier, way")),
      ("{{tier}} waited for", rate("annulus_kv_tier_wait_seconds_total", "tier"))]),
    ("Faults of the tiers", "short", "lines", "Pages refused, or not as computed, and calls that failed, a second; restores; in use: 1.",
     [("{{tier}} refused", rate("annulus_kv_tier_rejects_total", "tier")),
      ("{{tier}} not as computed", rate("annulus_kv_tier_mismatches_total", "tier")),
      ("{{tier}} compared", rate("annulus_kv_tier_checks_total", "tier")),
      ("{{tier}} failed", rate("annulus_kv_tier_io_errors_total", "tier")),
      ("{{tier}} restores", rate("annulus_kv_tier_restores_total", "tier")),
      ("{{tier}} in use", gauge("annulus_kv_tier_up", "tier", how="max"))]),
    ("Pages of the tiers", "short", "lines", "On disk, files; and those that are still to be written.",
     [("{{tier}}", gauge("annulus_kv_tier_pages", "tier")),
      ("{{tier}} to be written", gauge("annulus_kv_tier_waiting_pages", "tier"))]),
]

POLICIES = [
    ("Density", "percentunit", "lines", "Attended over causal pairs, since the start.",
     [("{{instance}}", gauge("annulus_attention_density_ratio", "instance", how="max"))]),
    ("Coverage", "percentunit", "lines", "Share of the attention inside the chosen blocks, since the start; 0 until one was sampled.",
     [("measured", gauge("annulus_attention_coverage_ratio", "instance", how="min")),
      ("estimated", gauge("annulus_attention_estimated_coverage_ratio", "instance", how="min"))]),
    ("What contracts did", "ops", "lines", "Layers that kept the policy's blocks, got more, or became dense.",
     [("{{outcome}}", rate("annulus_attention_layers_total", "outcome"))]),
    ("Block lists found", "percentunit", "lines", "Of sparse attention: there already, over all.",
     [("hits", rate("annulus_pattern_cache_hits_total") + " / ("
       + rate("annulus_pattern_cache_hits_total") + " + "
       + rate("annulus_pattern_cache_misses_total") + ")")]),
    ("Memory of block lists", "bytes", "lines", "Kept for reuse.",
     [("{{instance}}", gauge("annulus_pattern_cache_bytes", "instance"))]),
    ("Bytes to settle blocks", "Bps", "lines", "What ranks exchange to choose.",
     [("rank {{rank}}", rate("annulus_ring_bytes_total", "rank", 'mode="estimate"'))]),
    ("Models", "short", "stat", "What is served.",
     [("{{architecture}} {{weights_dtype}} {{kv_dtype}} {{kernels}}",
       gauge("annulus_model_info", "architecture, weights_dtype, kv_dtype, kernels"))]),
]

DASHBOARDS = {
    "service": ("Annulus: service", "For those who promise answers", SERVICE),
    "memory-and-rings": ("Annulus: memory and rings", "For those who plan machines", MEMORY),
    "documents": ("Annulus: documents", "For those who upload and ask", DOCUMENTS),
    "policies": ("Annulus: policies and coverage", "For those who choose attention", POLICIES),
}

COLUMNS, HEIGHT = 2, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, title, unit, kind, text, queries):
    custom = {} if kind == "stat" else {
        "fillOpacity": 30 if kind == "stack" else 0, "lineWidth": 1, "showPoints": "never",
        "stacking": {"mode": "normal" if kind == "stack" else "none"}}
    defaults = {"unit": unit, "min": 0}
    if custom:
        defaults["custom"] = custom
    width = 24 // COLUMNS
    return {
        "id": number + 1, "title": title, "description": text, "datasource": SOURCE,
        "type": "stat" if kind == "stat" else "timeseries",
        "gridPos": {"h": HEIGHT, "w": width, "x": number % COLUMNS * width,
                    "y": number // COLUMNS * HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
        if custom else {"textMode": "value_and_name"},
        "targets": [{"refId": chr(ord("A") + i), "datasource": SOURCE, "legendFormat": legend,
                     "expr": query} for i, (legend, query) in enumerate(queries)],
    }


def variable(name, label):
    return {"name": name, "type": "query", "datasource": SOURCE, "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"},
            "query": f"label_values(annulus_build_info, {label})"}


def dashboard(name, title, text, panels):
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": "annulus-" + name, "title": title, "description": text, "tags": ["annulus"],
        "schemaVersion": 37, "version": 1, "editable": True, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, variable("job", "job"), variable("instance", "instance")]},
        "panels": [panel(i, *row) for i, row in enumerate(panels)],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent / "dashboards")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, text, panels) in DASHBOARDS.items():
        written = json.dumps(dashboard(name, title, text, panels), indent=1) + "\n"
        (folder / f"{name}.json").write_text(written)


main()

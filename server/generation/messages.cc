#include "server/generation/messages.h"

#include <algorithm>
#include <utility>

#include "kernels/base/dtype.h"
#include "server/generation/attention_messages.h"

namespace annulus::server {

ChatRequest FromMessage(const v1::Messages& messages) {
  ChatRequest request;
  for (const v1::Message& message : messages.messages()) {
    ChatMessage& chat = request.messages.emplace_back();
    chat.role = message.role();
    if (message.has_content()) chat.content = message.content();
    if (message.has_name()) chat.name = message.name();
    if (message.has_reasoning()) chat.reasoning = message.reasoning();
    if (message.has_tool_calls()) chat.tool_calls = message.tool_calls();
    if (message.has_tool_call_id()) chat.tool_call_id = message.tool_call_id();
  }
  if (messages.has_tools()) request.tools = messages.tools();
  if (messages.has_template_options()) request.template_options = messages.template_options();
  request.continue_final_message = messages.continue_final_message();
  request.add_generation_prompt = messages.has_add_generation_prompt()
                                      ? messages.add_generation_prompt()
                                      : !request.continue_final_message;
  return request;
}

v1::PromptProgress ToMessage(const PromptProgress& progress) {
  v1::PromptProgress message;
  message.set_total(progress.total);
  message.set_cached(progress.cached);
  message.set_processed(progress.processed);
  message.set_elapsed(progress.elapsed_seconds);
  message.set_eta(progress.eta_seconds);
  return message;
}

v1::TokenLogprob ToMessage(const TokenLogprob& logprob) {
  v1::TokenLogprob message;
  message.set_token_id(logprob.token_id);
  message.set_logprob(logprob.logprob);
  const auto add_text = [&logprob](size_t index, auto& token) {
    if (index >= logprob.texts.size()) return;
    token.set_text(logprob.texts[index]);
    token.set_bytes(std::string(logprob.BytesOf(index)));
  };
  add_text(0, message);
  for (const auto& [token_id, value] : logprob.alternatives) {
    v1::LogprobAlternative* alternative = message.add_alternatives();
    alternative->set_token_id(token_id);
    alternative->set_logprob(value);
    add_text(static_cast<size_t>(message.alternatives_size()), *alternative);
  }
  return message;
}

v1::SentenceEvidence ToMessage(const SentenceEvidence& sentence) {
  v1::SentenceEvidence message;
  message.set_begin(sentence.begin);
  message.set_end(sentence.end);
  for (const Passage& passage : sentence.passages) {
    v1::Passage& to = *message.add_passages();
    to.set_document(passage.place.document);
    to.set_document_index(passage.document);
    to.set_token_begin(passage.begin);
    to.set_token_end(passage.end);
    to.set_byte_begin(passage.place.byte_begin);
    to.set_byte_end(passage.place.byte_end);
    to.set_character_begin(passage.place.character_begin);
    to.set_character_end(passage.place.character_end);
    to.set_label(passage.place.label);
    to.set_score(passage.score);
    to.set_text(passage.place.text);
  }
  return message;
}

v1::Delta ToMessage(Delta delta) {
  v1::Delta message;
  message.set_text(std::move(delta.text));
  message.mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
  for (const TokenLogprob& logprob : delta.logprobs) *message.add_logprobs() = ToMessage(logprob);
  for (const TokenLogprob& logprob : delta.prompt_logprobs) {
    *message.add_prompt_logprobs() = ToMessage(logprob);
  }
  message.set_reasoning(std::move(delta.reasoning));
  for (ToolCallDelta& call : delta.calls) {
    v1::ToolCallDelta& to = *message.add_tool_calls();
    to.set_index(call.index);
    to.set_id(std::move(call.id));
    to.set_name(std::move(call.name));
    to.set_arguments(std::move(call.arguments));
  }
  for (const SentenceEvidence& sentence : delta.evidence) {
    *message.add_evidence() = ToMessage(sentence);
  }
  return message;
}

v1::CacheMiss ToMessage(const CacheMiss& miss) {
  v1::CacheMiss message;
  message.set_position(miss.position);
  switch (miss.reason) {
    case CacheMiss::Reason::kOtherTokens:
      message.set_reason(v1::CacheMiss::REASON_OTHER_TOKENS);
      break;
    case CacheMiss::Reason::kEvicted:
      message.set_reason(v1::CacheMiss::REASON_EVICTED);
      break;
    case CacheMiss::Reason::kOtherAttention:
      message.set_reason(v1::CacheMiss::REASON_OTHER_ATTENTION);
      break;
    case CacheMiss::Reason::kOtherModel:
      message.set_reason(v1::CacheMiss::REASON_OTHER_MODEL);
      break;
    case CacheMiss::Reason::kIgnored:
      message.set_reason(v1::CacheMiss::REASON_IGNORED);
      break;
    case CacheMiss::Reason::kDiskSlower:
      message.set_reason(v1::CacheMiss::REASON_DISK_SLOWER);
      break;
    case CacheMiss::Reason::kDiskRefused:
      message.set_reason(v1::CacheMiss::REASON_DISK_REFUSED);
      break;
    case CacheMiss::Reason::kNotTold:
      break;
  }
  return message;
}

v1::Completion ToMessage(const Completion& completion, const std::string& request_id,
                         const v1::Origin& origin) {
  v1::Completion message;
  message.set_finish_reason(completion.finish_reason == FinishReason::kLength
                                ? v1::FINISH_REASON_LENGTH
                            : completion.calls.empty() ? v1::FINISH_REASON_STOP
                                                       : v1::FINISH_REASON_TOOL_CALLS);
  for (const ToolCall& call : completion.calls) {
    v1::ToolCall& to = *message.add_tool_calls();
    to.set_id(call.id);
    to.set_name(call.name);
    to.set_arguments(call.arguments);
  }
  message.mutable_broken_calls()->Add(completion.broken_calls.begin(),
                                      completion.broken_calls.end());
  if (!completion.matched_stop.empty()) message.set_matched_stop(completion.matched_stop);
  message.set_output_below_min_tokens(completion.output_below_min_tokens);
  v1::Usage* usage = message.mutable_usage();
  usage->set_prompt_tokens(completion.usage.prompt_tokens);
  usage->set_completion_tokens(completion.usage.completion_tokens);
  usage->set_cached_tokens(completion.usage.cached_tokens);
  usage->set_restored_tokens(completion.usage.restored_tokens);
  usage->set_host_tokens(completion.usage.host_tokens);
  if (completion.usage.checked_position.has_value()) {
    usage->set_checked_position(*completion.usage.checked_position);
  }
  usage->set_reasoning_tokens(completion.usage.reasoning_tokens);
  usage->set_drafted_tokens(completion.usage.drafted_tokens);
  usage->set_accepted_tokens(completion.usage.accepted_tokens);
  if (completion.usage.cache_miss.has_value()) {
    *usage->mutable_cache_miss() = ToMessage(*completion.usage.cache_miss);
  }
  v1::Timings* timings = message.mutable_timings();
  timings->set_queue(completion.timings.queue);
  timings->set_prefill(completion.timings.prefill);
  timings->set_time_to_first_token(completion.timings.time_to_first_token);
  timings->set_decode(completion.timings.decode);
  timings->set_total(completion.timings.total);
  timings->set_longest_gap(completion.timings.longest_gap);
  timings->set_stalls(completion.timings.stalls);
  timings->set_ring_wait(completion.timings.ring_wait);
  timings->set_host(completion.timings.host);
  timings->set_preemptions(completion.timings.preemptions);
  timings->set_recovered(completion.timings.recovered);
  timings->set_repaired(completion.timings.repaired);
  *message.mutable_attention() = ToMessage(completion.attention);
  if (!completion.evidence_heads.empty()) {
    v1::Evidence& evidence = *message.mutable_evidence();
    evidence.set_heads(completion.evidence_heads);
    for (const SentenceEvidence& sentence : completion.evidence) {
      *evidence.add_sentences() = ToMessage(sentence);
    }
  }
  message.set_request_id(request_id);
  message.set_rope_factors(completion.rope_factors);
  v1::Origin& follows = *message.mutable_origin();
  follows = origin;
  follows.set_ring_degree(completion.attention.ring_degree);
  follows.set_digest(completion.digest);
  return message;
}

v1::SamplingParams DefaultsMessage(const SamplingParams& params) {
  v1::SamplingParams message;
  message.set_temperature(params.temperature);
  message.set_top_p(params.top_p);
  message.set_top_k(params.top_k);
  message.set_min_p(params.min_p);
  message.set_repetition_penalty(params.repetition_penalty);
  return message;
}

v1::Model ToMessage(const ModelInfo& info, const std::string& name) {
  v1::Model message;
  message.set_name(name);
  message.set_architecture(info.architecture);
  message.set_description(info.description);
  message.set_parameters(info.parameters);
  message.set_layers(info.layers);
  message.set_hidden_size(info.hidden_size);
  message.set_vocabulary(info.vocabulary);
  message.set_max_context(info.max_context);
  message.set_weights_dtype(std::string(DTypeName(info.weights_dtype)));
  message.set_kv_dtype(std::string(DTypeName(info.kv_dtype)));
  message.set_kv_bytes_per_token(info.kv_bytes_per_token);
  message.set_kernels(info.kernels);
  message.set_has_chat_template(info.has_chat_template);
  message.mutable_end_of_text_ids()->Add(info.end_of_text_ids.begin(), info.end_of_text_ids.end());
  *message.mutable_default_sampling() = DefaultsMessage(info.default_sampling);
  return message;
}

v1::RankLoad ToMessage(const RankLoad& rank) {
  v1::RankLoad message;
  message.set_rank(rank.rank);
  message.set_up(rank.up);
  message.set_device(rank.device);
  for (const auto& [kind, bytes] : rank.memory_bytes) {
    (*message.mutable_memory_bytes())[kind] = bytes;
  }
  message.set_kv_bytes_used(rank.kv_bytes_used);
  message.set_kv_bytes_total(rank.kv_bytes_total);
  if (rank.node >= 0) message.set_node(rank.node);
  return message;
}

v1::WorkerLoad ToMessage(const WorkerLoad& worker) {
  v1::WorkerLoad message;
  message.set_name(worker.name);
  message.set_peer(worker.peer);
  message.set_first_rank(worker.first_rank);
  message.set_ranks(worker.ranks);
  message.set_up(!worker.lost);
  message.set_silent_seconds(worker.silent_seconds);
  message.set_exposed_seconds(worker.exposed_seconds);
  return message;
}

v1::GetLoadResponse ToMessage(const EngineLoad& load) {
  v1::GetLoadResponse message;
  message.set_running(load.running);
  message.set_waiting(load.waiting);
  message.set_kv_usage(load.kv_usage);
  message.set_seconds_since_step(load.seconds_since_step);
  message.set_healthy(load.healthy);
  for (const RankLoad& rank : load.ranks) *message.add_ranks() = ToMessage(rank);
  v1::ExchangeRates& exchange = *message.mutable_exchange();
  exchange.set_attention_flops(load.exchange.attention.back().flops);
  for (const AttentionRate& rate : load.exchange.attention) {
    v1::AttentionRate& added = *exchange.add_attention();
    added.set_rows(rate.rows);
    added.set_flops(rate.flops);
    added.set_alone_flops(rate.alone_flops);
    added.set_query_seconds(rate.query_seconds);
  }
  exchange.set_call_keys(load.exchange.call_keys);
  exchange.set_link_bytes_per_second(load.exchange.link_bytes_per_second);
  exchange.set_message_seconds(load.exchange.message_seconds);
  exchange.set_part_seconds(load.exchange.part_seconds);
  exchange.set_source(load.exchange_source);
  message.set_ring_transport(load.ring_transport);
  message.set_epoch(static_cast<int64_t>(load.ring.epoch));
  for (const WorkerLoad& worker : load.ring.workers) *message.add_workers() = ToMessage(worker);
  return message;
}

v1::Document ToMessage(const StoredDocument& document, const KeptDocument& kept) {
  v1::Document message;
  message.set_name(document.name);
  message.set_size_bytes(static_cast<int64_t>(document.size_bytes));
  message.set_sha256(document.sha256);
  message.set_token_count(static_cast<int64_t>(document.tokens.size()));
  const SteadyTime now = std::chrono::steady_clock::now();
  message.set_age(std::chrono::duration<double>(now - document.stored_at).count());
  message.set_title(document.title);
  const SteadyTime used = document.last_used.load(std::memory_order_relaxed);
  if (used != document.stored_at) {
    message.set_last_used(std::chrono::duration<double>(now - used).count());
  }
  message.set_pinned(kept.pinned);
  if (kept.expires_in.has_value()) message.set_expires_in(*kept.expires_in);
  message.set_memory_tokens(std::min(kept.memory_tokens, message.token_count()));
  message.set_host_tokens(std::min(kept.host_tokens, message.token_count()));
  message.set_disk_tokens(std::min(kept.disk_tokens, message.token_count()));
  message.set_transient(document.transient);
  message.set_has_bytes(document.has_bytes);
  message.set_has_text(document.has_text);
  return message;
}

}  // namespace annulus::server

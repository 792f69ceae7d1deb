#include "engine/runner/rank_state.h"

namespace annulus {
namespace {

RingAttentionConfig RingConfig(const RankParts& parts) {
  RingAttentionConfig config;
  config.shape = parts.model->page_shape;
  config.layer_page_bytes = parts.model->ops->kv_page_bytes(config.shape);
  const ModelConfig& model = parts.model->config;
  config.heads = WidestAttention(model).heads;
  config.scale = AttentionScale(model, WidestAttention(model));
  config.soft_cap = model.attention_soft_cap;
  config.shards = ShardsOf(*parts.model->ops, parts.channel->size());
  config.timeout = parts.exchange_timeout;
  config.heartbeat = parts.heartbeat;
  return config;
}

}  // namespace

RankState::RankState(const RankParts& given)
    : parts(given),
      config(RingConfig(parts)),
      ring(*parts.channel, *parts.backend, ops(), stream(), config),
      choice{ring.link(), *parts.backend, ops(),        stream(),
             config,      messages,       *parts.arena, model().gates.get()},
      chooser(choice),
      sampler(choice),
      grammars(model().tokens, GrammarCache::kDefaultBytes) {}

}  // namespace annulus

#include "engine/runner/rank_state.h"

namespace annulus {
namespace {

RingAttentionConfig RingConfig(const RankParts& parts) {
  const ModelConfig& model = parts.model->config;
  RingAttentionConfig config{RingShapeOf(*parts.model, WidestAttention(model))};
  config.soft_cap = model.attention_soft_cap;
  config.shards = ShardsOf(*parts.model->ops, parts.channel->size());
  config.timeout = parts.exchange_timeout;
  config.heartbeat = parts.heartbeat;
  return config;
}

std::vector<RingShape> RingShapes(const RankModel& model) {
  std::vector<RingShape> shapes;
  for (const LayerConfig& layer : model.config.layers) {
    shapes.push_back(RingShapeOf(model, layer.attention));
  }
  return shapes;
}

}  // namespace

RankState::RankState(const RankParts& given)
    : parts(given),
      config(RingConfig(parts)),
      shapes(RingShapes(model())),
      ring(*parts.channel, *parts.backend, ops(), stream(), config),
      choice{ring.link(), *parts.backend, ops(),        stream(),
             config,      messages,       *parts.arena, model().gates.get()},
      chooser(choice),
      sampler(choice),
      evidence(choice),
      grammars(model().tokens, GrammarCache::kDefaultBytes) {}

}  // namespace annulus

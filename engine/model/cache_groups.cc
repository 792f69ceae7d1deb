#include "engine/model/cache_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace annulus {

std::vector<CacheGroup> CacheGroups(const ModelConfig& config) {
  std::map<int32_t, std::vector<int32_t>> layers_by_window;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    layers_by_window[config.layers[layer].window].push_back(static_cast<int32_t>(layer));
  }
  size_t layers_per_group = 0;
  for (const auto& [window, layers] : layers_by_window) {
    layers_per_group = std::gcd(layers_per_group, layers.size());
  }
  std::vector<CacheGroup> groups;
  for (const auto& [window, layers] : layers_by_window) {
    for (auto begin = layers.begin(); begin != layers.end(); begin += layers_per_group) {
      CacheGroup& group = groups.emplace_back();
      group.kind = window == 0 ? CacheGroup::Kind::kFull : CacheGroup::Kind::kWindow;
      group.window = window;
      group.layers.assign(begin, begin + layers_per_group);
    }
  }
  std::sort(groups.begin(), groups.end(), [](const CacheGroup& a, const CacheGroup& b) {
    return a.layers.front() < b.layers.front();
  });
  return groups;
}

}  // namespace annulus

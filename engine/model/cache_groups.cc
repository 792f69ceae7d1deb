#include "engine/model/cache_groups.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// Layers that may share groups.
struct Alike {
  int32_t window = 0;
  AttentionShape shape;
  std::vector<int32_t> layers;  // ascending

  // Elements of a token's keys and values in one layer.
  int64_t elements() const { return shape.key_columns() + shape.value_columns(); }
  // How many layers of a group fit into pages of so many elements a token.
  int64_t per_group(int64_t page) const {
    return std::min<int64_t>(std::ssize(layers), page / elements());
  }
  // Elements a token that pages of this size leave empty, over all groups.
  int64_t empty(int64_t page) const {
    const int64_t groups = (std::ssize(layers) + per_group(page) - 1) / per_group(page);
    return groups * page - std::ssize(layers) * elements();
  }
};

std::vector<Alike> AlikeLayers(const ModelConfig& config) {
  std::vector<Alike> all;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (!layer.has_own_keys()) continue;
    auto found = std::find_if(all.begin(), all.end(), [&](const Alike& each) {
      return each.window == layer.window && each.shape == layer.attention;
    });
    if (found == all.end()) found = all.insert(all.end(), {layer.window, layer.attention, {}});
    ANNULUS_CHECK(found->elements() > 0) << "layer " << i << " has no keys";
    found->layers.push_back(static_cast<int32_t>(i));
  }
  return all;
}

// Elements a token.
int64_t PageSize(const std::vector<Alike>& all) {
  int64_t least = 0;  // that holds a layer of each
  for (const Alike& each : all) least = std::max(least, each.elements());
  using Order = std::tuple<int64_t, int64_t, int64_t>;
  std::optional<Order> best;
  for (const Alike& by : all) {
    for (int64_t page = by.elements(); page <= std::ssize(by.layers) * by.elements();
         page += by.elements()) {
      if (page < least) continue;
      int64_t full = 0, total = 0;
      for (const Alike& each : all) {
        total += each.empty(page);
        if (each.window == 0) full += each.empty(page);
      }
      const Order order{full, total, -page};
      if (!best.has_value() || order < *best) best = order;
    }
  }
  return -std::get<2>(*best);
}

}  // namespace

std::vector<CacheGroup> CacheGroups(const ModelConfig& config) {
  const std::vector<Alike> all = AlikeLayers(config);
  const int64_t page = PageSize(all);
  std::vector<CacheGroup> groups;
  for (const Alike& each : all) {
    const auto count = static_cast<size_t>(each.per_group(page));
    for (size_t first = 0; first < each.layers.size(); first += count) {
      CacheGroup& group = groups.emplace_back();
      group.kind = each.window == 0 ? CacheGroup::Kind::kFull : CacheGroup::Kind::kWindow;
      group.window = each.window;
      const auto begin = each.layers.begin() + static_cast<int64_t>(first);
      group.layers.assign(
          begin, begin + static_cast<int64_t>(std::min(count, each.layers.size() - first)));
    }
  }
  std::sort(groups.begin(), groups.end(), [](const CacheGroup& a, const CacheGroup& b) {
    return a.layers.front() < b.layers.front();
  });
  return groups;
}

}  // namespace annulus

#ifndef ANNULUS_ENGINE_MODEL_ATTENTION_SHAPE_H_
#define ANNULUS_ENGINE_MODEL_ATTENTION_SHAPE_H_

#include <cstdint>

namespace annulus {

// The shape of a layer's attention. Query head h reads head h / (heads / kv_heads) of keys and
// values. How many elements of a query or key rope turns is its own: RopeConfig::pairs.
struct AttentionShape {
  int32_t heads = 0;     // of queries: 1..1024, a multiple of kv_heads
  int32_t kv_heads = 0;  // of keys, and of values: >= 1
  int32_t k_dim = 0;     // elements of a head of queries or keys: 2..512, even
  int32_t v_dim = 0;  // elements of a head of values, and of what attention makes of them: 1..512

  // Columns of a row's queries, keys, values, and of what its queries attend.
  int64_t query_columns() const { return int64_t{heads} * k_dim; }
  int64_t key_columns() const { return int64_t{kv_heads} * k_dim; }
  int64_t value_columns() const { return int64_t{kv_heads} * v_dim; }
  int64_t attended_columns() const { return int64_t{heads} * v_dim; }

  bool operator==(const AttentionShape&) const = default;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_ATTENTION_SHAPE_H_

#ifndef ANNULUS_BENCH_ATTENTION_STRUCTURED_HEAD_H_
#define ANNULUS_BENCH_ATTENTION_STRUCTURED_HEAD_H_

#include <cstdint>
#include <vector>

namespace annulus::bench {

// Queries, keys and values of one head whose attention has a known structure, like that of trained
// heads. Every head has sinks (the first 4 keys) and a local band (about 60 tokens). Depending on
// `head` modulo 3 it also has
//   0: vertical lines, each 16 keys that all later queries attend;
//   1: a slash (keys at one distance) and fewer vertical lines;
//   2: heavy blocks of 64 x 64, scattered by a topic of each block of queries and of keys.
// A score is query . key / sqrt(head_dim). Bands and slashes are peaks of a sum of cosines of the
// distance; lines, sinks and topics have a channel each; all channels have noise. At 65,536 tokens
// the smallest set of blocks with 0.95 of the mass is 5% to 10% of the causal ones, depending on
// the head.
struct StructuredHead {
  static constexpr int kSinks = 4;
  static constexpr int kLine = 16;
  static constexpr int kBlock = 64;
  static constexpr int kLeastHeadDim = 16;

  int64_t tokens = 0;
  int head_dim = 0;
  std::vector<float> query, key, value;  // [tokens][head_dim]

  const float* query_row(int64_t i) const { return query.data() + i * head_dim; }
  const float* key_row(int64_t i) const { return key.data() + i * head_dim; }
  const float* value_row(int64_t i) const { return value.data() + i * head_dim; }
};

// Deterministic in its arguments. `head_dim` is a multiple of 8, at least kLeastHeadDim.
StructuredHead MakeStructuredHead(int64_t tokens, int head_dim, int head, uint32_t seed);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_STRUCTURED_HEAD_H_

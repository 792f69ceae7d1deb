#ifndef ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_
#define ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_

#include <cstdint>
#include <vector>

namespace annulus {

// Samples of what one key/value head attended in one document.
struct GateExamples {
  int k_dim = 0;
  int heads = 1;                // query heads that share the key head
  std::vector<float> features;  // [pages][3 * k_dim]: mean, least and greatest key of a page
  struct Example {
    int32_t pages = 0;          // number of pages its rows see, counted from the first
    int32_t head = 0;           // index among `heads`
    std::vector<float> query;   // [k_dim]: mean of a query block's rows
    std::vector<float> target;  // [pages]: the attention each page got; sums to 1
  };
  std::vector<Example> examples;
};

struct GateFitting {
  int width = 32;
  int passes = 60;     // passes over all examples
  float rate = 0.01f;  // of Adam (Kingma and Ba 2014); decays to a tenth
  uint32_t seed = 1;
};

// The gates of one key/value head.
struct FittedGate {
  std::vector<float> query;  // [heads][width][k_dim]
  std::vector<float> key;    // [width][3 * k_dim]
  double loss_before = 0;    // mean Kullback-Leibler divergence of estimates from targets
  double loss_after = 0;
};

// Distils gates from attention (SeerAttention, arXiv 2410.13276, section 3.2): minimises the
// divergence between the softmax over the scores of the pages an example sees and its target.
// Starts from random projections of queries and mean keys, for which scores are about q . k /
// sqrt(k_dim). All documents must have the same k_dim and heads. Deterministic.
FittedGate FitGate(const std::vector<GateExamples>& documents, const GateFitting& options);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_

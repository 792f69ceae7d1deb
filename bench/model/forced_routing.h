#ifndef ANNULUS_BENCH_MODEL_FORCED_ROUTING_H_
#define ANNULUS_BENCH_MODEL_FORCED_ROUTING_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/registry.h"

namespace annulus::bench {

// How often rows choose an expert if the bench decides it, and not the router of random weights.
enum class ForcedRouting : uint8_t {
  kUniform,  // each as often as any other
  kZipf,     // the one of rank n in proportion to 1 / n
};

// "uniform", "zipf"
absl::string_view ForcedRoutingName(ForcedRouting routing);

// Registers the CPU kernels that this machine can run, with a router that ignores what the logits
// say: it draws a row's experts one after the other from those that are left, in proportion to the
// weights above, and gives all the same share. Ranks are a fixed order of the experts, the same in
// every layer. A row's draw is seeded by the bits of its logits, so it is the same in any batch, on
// any rank and in any run, while rows and layers, whose logits differ, draw independently. Groups,
// biases and factors of experts are ignored. Activations in int8 are not supported.
//
// Measurements of experts that do not fit use it. No other program links this.
void RegisterForcedKernels(ForcedRouting routing, KernelRegistry& registry);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_FORCED_ROUTING_H_

#ifndef ANNULUS_BENCH_MODEL_BENCH_MACHINE_H_
#define ANNULUS_BENCH_MODEL_BENCH_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/peak/ceiling.h"
#include "engine/api/load.h"
#include "kernels/backend.h"
#include "kernels/base/dtype.h"
#include "kernels/registry.h"

namespace annulus::bench {

// Measures how fast the machine reads memory. Call it between the runs that are timed.
class MemoryMeter {
 public:
  virtual ~MemoryMeter() = default;
  // Reads a buffer larger than all caches once and returns the rate.
  virtual absl::StatusOr<double> BytesPerSecond() = 0;
  // Bytes of host memory that the meter keeps allocated.
  virtual int64_t host_bytes() const { return 0; }
};

// The type in which a model's layers multiply: int8 if their inputs are int8, else the weights'.
inline DType ProductsOf(const ModelInfo& model) {
  return model.activations == Activations::kInt8 ? DType::kI8 : model.weights_dtype;
}

// The machine that a model is timed on, and the limits of it that runs are compared with. Not
// thread-safe.
class BenchMachine {
 public:
  virtual ~BenchMachine() = default;

  // Both live as long as the machine.
  virtual Backend& backend() = 0;
  virtual const KernelRegistry& kernels() const = 0;

  // Finds the fastest instructions for weights of this type (ProductsOf), for MeasureProducts.
  virtual absl::Status ChooseProducts(DType weights) = 0;
  // Call ChooseProducts first. `vector` of the result is not set if vector_name() is empty.
  virtual absl::StatusOr<CeilingRates> MeasureProducts() = 0;
  virtual std::string products_name() const = 0;
  virtual std::string vector_name() const { return {}; }

  virtual absl::StatusOr<std::unique_ptr<MemoryMeter>> TakeMemoryMeter() = 0;
  virtual std::string memory_name() const = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BENCH_MACHINE_H_

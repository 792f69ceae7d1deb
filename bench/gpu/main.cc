// gpu-lab [FILE]: times single ops on the first GPU; FILE also gets every row as JSON. See
// bench/README.md.
#include <fstream>
#include <iostream>
#include <string>

#include "bench/gpu/op_times.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"

namespace annulus {
namespace {

absl::Status Run(std::ostream* json) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCudaBackend(0));
  KernelRegistry registry;
  RegisterCudaKernels(registry);
  RowWriter writer({std::cout, RowOutput::Format::kTable, json});
  std::cout << backend->capabilities().description << "\n";
  // The fastest table whole; of the others, which share its ops, what is their own.
  OpTimesOptions options;
  for (const OpTable* ops : registry.Available("cuda")) {
    ANNULUS_RETURN_IF_ERROR(
        MeasureOps(*backend, *ops, options, [&](const Row& row) { writer.Write(row); }));
    options.prefill_only = true;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc > 2) {
    std::cerr << "usage: gpu-lab [FILE]\n";
    return 2;
  }
  std::ofstream file;
  if (argc == 2) {
    file.open(argv[1]);
    if (!file) {
      std::cerr << "gpu-lab: cannot write " << argv[1] << "\n";
      return 2;
    }
  }
  const absl::Status status = annulus::Run(argc == 2 ? &file : nullptr);
  if (status.ok()) return 0;
  std::cerr << "gpu-lab: " << status.message() << "\n";
  return 1;
}

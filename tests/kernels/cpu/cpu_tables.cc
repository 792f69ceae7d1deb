// The tested tables are those of the CPU.
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {

std::vector<const OpTable*> TestedTables() { return CpuRegistry().Available("cpu"); }
std::vector<const OpTable*> TestedAttention() { return TestedTables(); }

Backend& BackendOf(const OpTable&) { return CpuBackend(); }
bool IsRealGpu() { return false; }

}  // namespace annulus::testing

#ifndef ANNULUS_KERNELS_CPU_X86_FEATURES_H_
#define ANNULUS_KERNELS_CPU_X86_FEATURES_H_

#include <string>
#include <vector>

namespace annulus {

// One thing that a table needs of the processor and the operating system.
struct X86Feature {
  const char* name;
  bool present;
};

// The features of each level, those of the levels below included.
std::vector<X86Feature> Avx2Features();
std::vector<X86Feature> Avx512Features();
std::vector<X86Feature> Avx512Bf16Features();
// Asks the system to let this process use the tile registers (arch_prctl(2), ARCH_REQ_XCOMP_PERM),
// which holds for all threads from then on; a refusal is a missing feature.
std::vector<X86Feature> AmxFeatures();

// The names of those that are missing, with commas between them; empty: none.
std::string MissingFeatures(const std::vector<X86Feature>& features);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_X86_FEATURES_H_

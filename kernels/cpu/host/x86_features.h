#ifndef ANNULUS_KERNELS_CPU_HOST_X86_FEATURES_H_
#define ANNULUS_KERNELS_CPU_HOST_X86_FEATURES_H_

#include <string>
#include <vector>

namespace annulus {

// Something that a table requires of the processor and the operating system.
struct X86Feature {
  const char* name;
  bool present;
};

// The features that each level requires, including those of the levels below.
std::vector<X86Feature> Avx2Features();
std::vector<X86Feature> Avx512Features();
std::vector<X86Feature> Avx512Bf16Features();
// Also asks the system to let this process use the tile registers (arch_prctl(2),
// ARCH_REQ_XCOMP_PERM), which then holds for all threads. If refused, the feature is missing.
std::vector<X86Feature> AmxFeatures();

// The names of the missing features, separated by commas; empty if none is missing.
std::string MissingFeatures(const std::vector<X86Feature>& features);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_X86_FEATURES_H_

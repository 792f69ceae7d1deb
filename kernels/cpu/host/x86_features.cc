#include "kernels/cpu/host/x86_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_join.h"

namespace annulus {
namespace {

// Bits of CPUID leaf 7, register EDX (Intel SDM, volume 2A, CPUID).
constexpr unsigned kAmxBf16 = 1u << 22;
constexpr unsigned kAmxTile = 1u << 24;
constexpr unsigned kAmxInt8 = 1u << 25;

unsigned Leaf7Edx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 ? edx : 0;
}

bool RequestTileRegisters() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.

std::vector<X86Feature> Avx2Features() {
  __builtin_cpu_init();
  return {{"AVX2", __builtin_cpu_supports("avx2") != 0},
          {"FMA", __builtin_cpu_supports("fma") != 0},
          {"F16C", __builtin_cpu_supports("f16c") != 0}};
}

std::vector<X86Feature> Avx512Features() {
  std::vector<X86Feature> features = Avx2Features();
  features.push_back({"AVX512F", __builtin_cpu_supports("avx512f") != 0});
  features.push_back({"AVX512BW", __builtin_cpu_supports("avx512bw") != 0});
  features.push_back({"AVX512DQ", __builtin_cpu_supports("avx512dq") != 0});
  features.push_back({"AVX512VL", __builtin_cpu_supports("avx512vl") != 0});
  return features;
}

std::vector<X86Feature> Avx512Bf16Features() {
  std::vector<X86Feature> features = Avx512Features();
  features.push_back({"AVX512_BF16", __builtin_cpu_supports("avx512bf16") != 0});
  features.push_back({"AVX512_VBMI", __builtin_cpu_supports("avx512vbmi") != 0});
  features.push_back({"AVX512_VNNI", __builtin_cpu_supports("avx512vnni") != 0});
  return features;
}

std::vector<X86Feature> AmxFeatures() {
  std::vector<X86Feature> features = Avx512Bf16Features();
  const unsigned edx = Leaf7Edx();
  constexpr unsigned kAll = kAmxTile | kAmxBf16 | kAmxInt8;
  features.push_back({"AMX_TILE", (edx & kAmxTile) != 0});
  features.push_back({"AMX_BF16", (edx & kAmxBf16) != 0});
  features.push_back({"AMX_INT8", (edx & kAmxInt8) != 0});
  if ((edx & kAll) == kAll)
    features.push_back({"permission of the system to use AMX", RequestTileRegisters()});
  return features;
}

std::string MissingFeatures(const std::vector<X86Feature>& features) {
  std::vector<std::string> missing;
  for (const X86Feature& feature : features) {
    if (!feature.present) missing.push_back(feature.name);
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace annulus

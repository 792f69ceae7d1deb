#include "engine/memory/memory_block.h"

#include "kernels/base/check.h"

namespace annulus {

absl::string_view LifetimeName(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kWeights:
      return "weights";
    case Lifetime::kPages:
      return "kv";
    case Lifetime::kRingSlots:
      return "ring";
    case Lifetime::kWorkspace:
      return "workspace";
    case Lifetime::kStep:
      return "step";
  }
  ANNULUS_CHECK(false) << "lifetime " << static_cast<int>(lifetime);
  return "";
}

}  // namespace annulus

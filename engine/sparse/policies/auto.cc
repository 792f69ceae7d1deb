// Another policy for each request, by its length, the available kernels, the measured costs of
// attending and estimating, and the contract: see engine/request/auto_policy.h.
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr const PolicyParameter* kAutoParameters[] = {&kBlockParameter, &kCoverageParameter};

}  // namespace

constinit const PolicyType kAuto = {
    .name = "auto",
    .summary =
        "dense, adaptive or learned: the server chooses one for each request by its length and "
        "cost",
    .parameters = kAutoParameters,
    .automatic = true,
};

}  // namespace annulus::policies

// Two tenants use one store of documents in random interleavings. What each is told, errors
// included, is what it would be told if it were alone, and no document that it gets holds another's
// marker.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/sanitizers.h"
#include "server/base/errors.h"
#include "server/documents/document_store.h"
#include "server/grpc/calls/grpc_call.h"

namespace annulus::server {
namespace {

constexpr int kInterleavings = kSanitized ? 5'000 : 100'000;
constexpr int kStepsOfEach = 6;
constexpr size_t kTenants = 2;

struct Step {
  size_t tenant = 0;
  unsigned kind = 0;
  unsigned name = 0;  // of few, so that both tenants use the same ones
  unsigned text = 0;
};

class World {
 public:
  // Does the step and says what its tenant is told.
  std::string Do(const Step& step) {
    const TenantId tenant = *TenantId::FromName(step.tenant == 0 ? "a" : "b");
    const std::string name = absl::StrCat("doc", step.name);
    switch (step.kind % 5) {
      case 0:
        return Add(step, tenant, name);
      case 1:
        return Told(step, store_.Get(tenant, name));
      case 2:
        return Told(store_.Delete(tenant, name).status());
      case 3:
        if (last_[step.tenant] != nullptr) store_.Withdraw(last_[step.tenant]);
        return "withdrawn";
      default: {
        std::string names = "list:";
        for (const DocumentPtr& document :
             store_.List(tenant, step.text == 0 ? "" : name, 1 + step.text)) {
          absl::StrAppend(&names, " ", Told(step, document));
        }
        return names;
      }
    }
  }

 private:
  std::string Add(const Step& step, const TenantId& tenant, const std::string& name) {
    // Its tokens are its tenant's marker.
    TokenList tokens;
    tokens.Append(std::vector<int32_t>{static_cast<int32_t>(step.tenant)});
    auto document =
        std::make_shared<StoredDocument>(tenant, name, size_t{1}, absl::StrCat("hash", step.text),
                                         std::move(tokens), SteadyTime(), store_.NewLease(tenant));
    const auto stored = store_.Add(std::move(document));
    if (stored.ok()) last_[step.tenant] = *stored;
    return Told(step, stored);
  }

  static std::string Told(const absl::Status& status) {
    const grpc::Status wire = ToGrpcStatus(status);
    return absl::StrCat(wire.error_code(), " ", wire.error_message(), wire.error_details());
  }
  static std::string Told(const Step& step, const absl::StatusOr<DocumentPtr>& document) {
    if (!document.ok()) return Told(document.status());
    std::vector<int32_t> tokens;
    (*document)->tokens.AppendTo(tokens);
    EXPECT_EQ(tokens, std::vector<int32_t>{static_cast<int32_t>(step.tenant)});
    return absl::StrCat((*document)->name, "=", (*document)->sha256);
  }

  DocumentStore store_{DocumentLimits{1000, 1000, 1000}};
  std::array<DocumentPtr, kTenants> last_;
};

TEST(TenantInterleavingTest, EachIsToldWhatItWouldBeToldAlone) {
  int64_t found = 0;
  for (unsigned seed = 1; seed <= kInterleavings && !::testing::Test::HasFailure(); ++seed) {
    std::minstd_rand random(seed);
    std::vector<Step> both;
    for (size_t i = 0; i < kTenants * kStepsOfEach; ++i) {
      both.push_back({random() / 7 % kTenants, static_cast<unsigned>(random() / 7),
                      static_cast<unsigned>(random() / 7 % 3),
                      static_cast<unsigned>(random() / 7 % 2)});
    }
    World together;
    std::array<World, kTenants> alone;
    for (const Step& step : both) {
      const std::string told = together.Do(step);
      EXPECT_EQ(told, alone[step.tenant].Do(step)) << "seed " << seed;
      found += told.find("=hash") != std::string::npos;
    }
  }
  EXPECT_GT(found, kInterleavings) << "hardly anything was found, so little was tried";
}

}  // namespace
}  // namespace annulus::server

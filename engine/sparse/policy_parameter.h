#ifndef ANNULUS_ENGINE_SPARSE_POLICY_PARAMETER_H_
#define ANNULUS_ENGINE_SPARSE_POLICY_PARAMETER_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/sparse/policy.h"

namespace annulus {

inline constexpr int32_t kMostPolicyTokens = 1 << 30;
inline constexpr int32_t kMostPolicyBlocks = 1 << 20;

// A parameter of a policy: its name in texts, and how its value is read, checked, printed and
// described. Constant data, so that a policy's file can list its parameters. Errors are
// INVALID_ARGUMENT, begin with "attention policy NAME: ", and say what is allowed.
class PolicyParameter {
 public:
  absl::string_view name() const { return name_; }

  // Sets the parameter from its text.
  virtual absl::Status Read(absl::string_view text, AttentionPolicy& policy) const = 0;
  // OK if the value is in range.
  virtual absl::Status Check(const AttentionPolicy& policy) const = 0;
  // The value's text, which Read takes back; nullopt if PolicyText leaves it out.
  virtual std::optional<std::string> Text(const AttentionPolicy& policy) const = 0;
  // The default, then the range in parentheses, for help texts.
  virtual std::string Describe(const AttentionPolicy& defaults) const = 0;

 protected:
  constexpr explicit PolicyParameter(const char* name) : name_(name) {}
  constexpr ~PolicyParameter() = default;

 private:
  const char* name_;
};

// A number from `low` to `high`.
class NumberParameter final : public PolicyParameter {
 public:
  constexpr NumberParameter(const char* name, int32_t AttentionPolicy::*field, int32_t low,
                            int32_t high)
      : PolicyParameter(name), field_(field), low_(low), high_(high) {}

  absl::Status Read(absl::string_view text, AttentionPolicy& policy) const override;
  absl::Status Check(const AttentionPolicy& policy) const override;
  std::optional<std::string> Text(const AttentionPolicy& policy) const override;
  std::string Describe(const AttentionPolicy& defaults) const override;

 private:
  int32_t AttentionPolicy::*field_;
  int32_t low_;
  int32_t high_;
};

// A list of 1 to 64 numbers, each from 1 to `high`, written with "/".
class ListParameter : public PolicyParameter {
 public:
  constexpr ListParameter(const char* name, std::vector<int32_t> AttentionPolicy::*field,
                          int32_t high)
      : PolicyParameter(name), field_(field), high_(high) {}

  absl::Status Read(absl::string_view text, AttentionPolicy& policy) const override;
  absl::Status Check(const AttentionPolicy& policy) const override;
  std::optional<std::string> Text(const AttentionPolicy& policy) const override;
  std::string Describe(const AttentionPolicy& defaults) const override;

 protected:
  std::string Joined(const AttentionPolicy& policy) const;

 private:
  std::vector<int32_t> AttentionPolicy::*field_;
  int32_t high_;
};

// A share of the attention, above 0 and at most 1.
class ShareParameter final : public PolicyParameter {
 public:
  // `optional`: 0 stands for "not asked for", and is not printed.
  constexpr ShareParameter(const char* name, double AttentionPolicy::*field, bool optional)
      : PolicyParameter(name), field_(field), optional_(optional) {}

  absl::Status Read(absl::string_view text, AttentionPolicy& policy) const override;
  absl::Status Check(const AttentionPolicy& policy) const override;
  std::optional<std::string> Text(const AttentionPolicy& policy) const override;
  std::string Describe(const AttentionPolicy& defaults) const override;

 private:
  double AttentionPolicy::*field_;
  bool optional_;
};

// Parameters that several policies have.
inline constexpr NumberParameter kBlockParameter{"block", &AttentionPolicy::block, 16, 4096};
inline constexpr NumberParameter kWindowParameter{"window", &AttentionPolicy::window, 1,
                                                  kMostPolicyTokens};
inline constexpr NumberParameter kGlobalParameter{"global", &AttentionPolicy::global, 0,
                                                  kMostPolicyBlocks};
inline constexpr ShareParameter kTauParameter{"tau", &AttentionPolicy::tau, false};
inline constexpr ShareParameter kCoverageParameter{"coverage", &AttentionPolicy::coverage, true};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_POLICY_PARAMETER_H_

#include "engine/sparse/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/check.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int32_t kMostTokens = 1 << 30;
constexpr int32_t kMostBlocks = 1 << 20;
constexpr size_t kMostRates = 64;

using Kind = PolicyKind;

constexpr std::array<Kind, 12> kKinds = {
    Kind::kDense,    Kind::kWindow,      Kind::kDilated, Kind::kDilatedBlocks,
    Kind::kStrided,  Kind::kGlobalLocal, Kind::kRandom,  Kind::kHierarchical,
    Kind::kAdaptive, Kind::kTopPages,    Kind::kLearned, Kind::kAuto};

constexpr unsigned Bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }

// One number of a policy: who uses it, where it lies, what it may be.
struct Parameter {
  const char* name;
  unsigned kinds;  // of Bit()
  int32_t AttentionPolicy::*field;
  int32_t low;
  int32_t high;
};

constexpr unsigned kSparse = ~Bit(Kind::kDense);
constexpr Parameter kParameters[] = {
    {"block", kSparse, &AttentionPolicy::block, 16, 4096},
    {"sinks", Bit(Kind::kWindow), &AttentionPolicy::sinks, 0, kMostTokens},
    {"window", Bit(Kind::kWindow) | Bit(Kind::kGlobalLocal) | Bit(Kind::kRandom),
     &AttentionPolicy::window, 1, kMostTokens},
    {"stride", Bit(Kind::kStrided), &AttentionPolicy::stride, 1, kMostBlocks},
    {"local", Bit(Kind::kStrided), &AttentionPolicy::local, 0, kMostBlocks},
    {"global", Bit(Kind::kGlobalLocal) | Bit(Kind::kRandom), &AttentionPolicy::global, 0,
     kMostBlocks},
    {"random", Bit(Kind::kRandom), &AttentionPolicy::random, 0, 4096},
    {"seed", Bit(Kind::kRandom), &AttentionPolicy::seed, 0, std::numeric_limits<int32_t>::max()},
    {"near", Bit(Kind::kHierarchical), &AttentionPolicy::near, 1, kMostBlocks},
    {"fan", Bit(Kind::kHierarchical), &AttentionPolicy::fan, 2, 64},
    {"levels", Bit(Kind::kHierarchical), &AttentionPolicy::levels, 0, 16},
    {"stride", Bit(Kind::kAdaptive), &AttentionPolicy::score_stride, 8, 16},
    {"pages", Bit(Kind::kTopPages), &AttentionPolicy::pages, 1, kMostBlocks},
    {"top", Bit(Kind::kLearned), &AttentionPolicy::top, 0, kMostBlocks},
};

// A share of the attention, in (0, 1].
struct ShareParameter {
  const char* name;
  unsigned kinds;
  double AttentionPolicy::*field;
  bool optional;  // 0: not asked for, and not printed
};

constexpr ShareParameter kShares[] = {
    {"tau", Bit(Kind::kAdaptive) | Bit(Kind::kLearned), &AttentionPolicy::tau, false},
    {"coverage", kSparse & ~Bit(Kind::kTopPages) & ~Bit(Kind::kDilated), &AttentionPolicy::coverage,
     true},
};

constexpr char kRatesName[] = "rates";
bool UsesRates(Kind kind) { return kind == Kind::kDilatedBlocks || kind == Kind::kDilated; }

constexpr char kSegmentsName[] = "segments";
constexpr absl::string_view kAuto = "auto";
constexpr int32_t kFirstAutoSegment = 2048;
bool UsesSegments(Kind kind) { return kind == Kind::kDilated; }
bool IsAuto(const AttentionPolicy& policy) {
  return UsesSegments(policy.kind) && policy.segments.empty();
}

constexpr char kEstimatorName[] = "estimator";
constexpr std::array<Estimator, 2> kEstimators = {Estimator::kAntidiagonal, Estimator::kPooled};
bool UsesEstimator(Kind kind) { return kind == Kind::kAdaptive; }

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Kind kind : kKinds) names.emplace_back(PolicyName(kind));
  return names;
}

std::vector<std::string> ParameterNames(Kind kind) {
  std::vector<std::string> names;
  for (const Parameter& parameter : kParameters) {
    if (parameter.kinds & Bit(kind)) names.emplace_back(parameter.name);
  }
  if (UsesSegments(kind)) names.emplace_back(kSegmentsName);
  if (UsesRates(kind)) names.emplace_back(kRatesName);
  if (UsesEstimator(kind)) names.emplace_back(kEstimatorName);
  for (const ShareParameter& share : kShares) {
    if (share.kinds & Bit(kind)) names.emplace_back(share.name);
  }
  return names;
}

absl::Status OutOfRange(Kind kind, absl::string_view name, absl::string_view value, int32_t low,
                        int32_t high) {
  return absl::InvalidArgumentError(absl::StrCat("attention policy ", PolicyName(kind), ": ", name,
                                                 " ", value, " is not allowed: ", low, " to ",
                                                 high));
}

absl::Status ReadNumber(Kind kind, absl::string_view name, absl::string_view text, int32_t low,
                        int32_t high, int32_t& value) {
  if (!absl::SimpleAtoi(text, &value) || value < low || value > high) {
    return OutOfRange(kind, name, absl::StrCat("'", text.substr(0, 32), "'"), low, high);
  }
  return absl::OkStatus();
}

absl::Status ReadList(Kind kind, absl::string_view name, absl::string_view text, int32_t high,
                      std::vector<int32_t>& list) {
  list.clear();
  for (const absl::string_view part : absl::StrSplit(text, '/')) {
    if (list.size() == kMostRates) {
      return absl::InvalidArgumentError(absl::StrCat("attention policy ", PolicyName(kind),
                                                     ": at most ", kMostRates, " ", name,
                                                     " are allowed"));
    }
    int32_t value = 0;
    ANNULUS_RETURN_IF_ERROR(ReadNumber(kind, name, part, 1, high, value));
    list.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ReadSegments(absl::string_view text, AttentionPolicy& policy) {
  if (text != kAuto) {
    return ReadList(policy.kind, kSegmentsName, text, kMostTokens, policy.segments);
  }
  policy.segments.clear();
  return absl::OkStatus();
}

absl::Status ReadEstimator(absl::string_view text, AttentionPolicy& policy) {
  std::vector<std::string> known;
  for (const Estimator estimator : kEstimators) {
    known.emplace_back(EstimatorName(estimator));
    if (text != EstimatorName(estimator)) continue;
    policy.estimator = estimator;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attention policy ", PolicyName(policy.kind), ": unknown estimator '", text.substr(0, 32),
      "'; did you mean ", NearestName(text, known), "? Known: ", absl::StrJoin(known, ", ")));
}

bool IsShare(double value) { return value > 0 && value <= 1; }

absl::Status ShareOutOfRange(Kind kind, absl::string_view name, absl::string_view value) {
  return absl::InvalidArgumentError(absl::StrCat("attention policy ", PolicyName(kind), ": ", name,
                                                 " ", value,
                                                 " is not allowed: above 0, at most 1"));
}

absl::Status ReadShare(Kind kind, absl::string_view name, absl::string_view text, double& value) {
  if (!absl::SimpleAtod(text, &value) || !IsShare(value)) {
    return ShareOutOfRange(kind, name, absl::StrCat("'", text.substr(0, 32), "'"));
  }
  return absl::OkStatus();
}

// The shortest text that reads back as the same number.
std::string ShareText(double value) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

absl::Status ReadParameter(absl::string_view text, AttentionPolicy& policy) {
  const size_t equals = text.find('=');
  const absl::string_view name = text.substr(0, equals);
  const absl::string_view value =
      equals == absl::string_view::npos ? absl::string_view() : text.substr(equals + 1);
  if (UsesSegments(policy.kind) && name == kSegmentsName) return ReadSegments(value, policy);
  if (UsesRates(policy.kind) && name == kRatesName) {
    return ReadList(policy.kind, name, value, kMostBlocks, policy.rates);
  }
  if (UsesEstimator(policy.kind) && name == kEstimatorName) return ReadEstimator(value, policy);
  for (const ShareParameter& share : kShares) {
    if (name != share.name || !(share.kinds & Bit(policy.kind))) continue;
    return ReadShare(policy.kind, name, value, policy.*share.field);
  }
  for (const Parameter& parameter : kParameters) {
    if (name != parameter.name || !(parameter.kinds & Bit(policy.kind))) continue;
    return ReadNumber(policy.kind, name, value, parameter.low, parameter.high,
                      policy.*parameter.field);
  }
  const std::vector<std::string> known = ParameterNames(policy.kind);
  if (known.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention policy ", PolicyName(policy.kind), " has no parameters"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attention policy ", PolicyName(policy.kind), " has no parameter '", name.substr(0, 32),
      "'; did you mean ", NearestName(name, known), "? It has: ", absl::StrJoin(known, ", ")));
}

absl::Status CheckRates(const AttentionPolicy& policy) {
  const bool good = !policy.rates.empty() && policy.rates.size() <= kMostRates &&
                    std::all_of(policy.rates.begin(), policy.rates.end(),
                                [](int32_t rate) { return rate >= 1 && rate <= kMostBlocks; });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("attention policy ", PolicyName(policy.kind),
                                                 ": 1 to ", kMostRates,
                                                 " rates are allowed, each 1 to ", kMostBlocks));
}

absl::Status CheckSegments(const AttentionPolicy& policy) {
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("attention policy dilated: ", why...));
  };
  if (IsAuto(policy)) {
    if (policy.rates != AttentionPolicy().rates) {
      return refuse("rates go with given segments; those of segments=auto are 1, 2, 4, ..");
    }
    if (kFirstAutoSegment % policy.block == 0) return absl::OkStatus();
    return refuse("block ", policy.block,
                  " is not allowed with segments=auto, of which the first has ", kFirstAutoSegment,
                  " tokens: it must divide them; or give segments");
  }
  if (policy.segments.size() != policy.rates.size()) {
    return refuse(policy.segments.size(), " segments and ", policy.rates.size(),
                  " rates are given; each segment has one rate");
  }
  for (size_t i = 0; i < policy.segments.size(); ++i) {
    const int32_t segment = policy.segments[i];
    if (segment < 1 || segment > kMostTokens || segment % policy.rates[i] != 0 ||
        segment % policy.block != 0) {
      return refuse("segment ", segment, " is not allowed: a multiple of its rate (",
                    policy.rates[i], ") and of the block (", policy.block, "), at most ",
                    kMostTokens);
    }
  }
  if (std::find(policy.rates.begin(), policy.rates.end(), 1) == policy.rates.end()) {
    return refuse("one rate must be 1, so that every row attends at least itself");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view PolicyName(PolicyKind kind) {
  switch (kind) {
    case Kind::kDense:
      return "dense";
    case Kind::kWindow:
      return "window";
    case Kind::kDilated:
      return "dilated";
    case Kind::kDilatedBlocks:
      return "dilated_blocks";
    case Kind::kStrided:
      return "strided";
    case Kind::kGlobalLocal:
      return "global_local";
    case Kind::kRandom:
      return "random";
    case Kind::kHierarchical:
      return "hierarchical";
    case Kind::kAdaptive:
      return "adaptive";
    case Kind::kTopPages:
      return "top_pages";
    case Kind::kLearned:
      return "learned";
    case Kind::kAuto:
      return "auto";
  }
  ANNULUS_CHECK(false) << "unknown policy " << static_cast<int>(kind);
  return "";
}

absl::string_view EstimatorName(Estimator estimator) {
  return estimator == Estimator::kAntidiagonal ? "antidiagonal" : "pooled";
}

absl::StatusOr<AttentionPolicy> ParsePolicy(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view name = text.substr(0, colon);
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                 [&](Kind candidate) { return PolicyName(candidate) == name; });
  if (kind == kKinds.end()) {
    const std::vector<std::string> known = PolicyNames();
    return absl::InvalidArgumentError(absl::StrCat("unknown attention policy '", name.substr(0, 64),
                                                   "'; did you mean ", NearestName(name, known),
                                                   "? Known: ", absl::StrJoin(known, ", ")));
  }
  AttentionPolicy policy;
  policy.kind = *kind;
  if (colon != absl::string_view::npos) {
    for (const absl::string_view part : absl::StrSplit(text.substr(colon + 1), ',')) {
      ANNULUS_RETURN_IF_ERROR(ReadParameter(part, policy));
    }
  }
  return policy;
}

std::string PolicyText(const AttentionPolicy& policy) {
  std::string text(PolicyName(policy.kind));
  char separator = ':';
  const auto add = [&](absl::string_view name, absl::string_view value) {
    text.push_back(separator);
    separator = ',';
    absl::StrAppend(&text, name, "=", value);
  };
  for (const Parameter& parameter : kParameters) {
    if (parameter.kinds & Bit(policy.kind)) {
      add(parameter.name, absl::StrCat(policy.*parameter.field));
    }
  }
  if (IsAuto(policy)) add(kSegmentsName, kAuto);
  if (UsesSegments(policy.kind) && !IsAuto(policy)) {
    add(kSegmentsName, absl::StrJoin(policy.segments, "/"));
  }
  if (UsesRates(policy.kind) && !IsAuto(policy)) {
    add(kRatesName, absl::StrJoin(policy.rates, "/"));
  }
  if (UsesEstimator(policy.kind)) add(kEstimatorName, EstimatorName(policy.estimator));
  for (const ShareParameter& share : kShares) {
    const double value = policy.*share.field;
    if (!(share.kinds & Bit(policy.kind)) || (share.optional && value == 0)) continue;
    add(share.name, ShareText(value));
  }
  return text;
}

absl::Status CheckPolicy(const AttentionPolicy& policy, int page_tokens) {
  for (const Parameter& parameter : kParameters) {
    if (!(parameter.kinds & Bit(policy.kind))) continue;
    const int32_t value = policy.*parameter.field;
    if (value < parameter.low || value > parameter.high) {
      return OutOfRange(policy.kind, parameter.name, absl::StrCat(value), parameter.low,
                        parameter.high);
    }
  }
  if (UsesRates(policy.kind)) ANNULUS_RETURN_IF_ERROR(CheckRates(policy));
  if (UsesSegments(policy.kind)) ANNULUS_RETURN_IF_ERROR(CheckSegments(policy));
  for (const ShareParameter& share : kShares) {
    const double value = policy.*share.field;
    if (!(share.kinds & Bit(policy.kind)) || (share.optional && value == 0)) continue;
    if (!IsShare(value)) return ShareOutOfRange(policy.kind, share.name, absl::StrCat(value));
  }
  if (policy.kind == Kind::kAdaptive && policy.score_stride != 8 && policy.score_stride != 16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention policy adaptive: stride ", policy.score_stride, " is not allowed: 8 or 16"));
  }
  if (policy.kind != Kind::kDense && policy.block % page_tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention policy ", PolicyName(policy.kind), ": block ", policy.block,
        " is not allowed: a multiple of the page, which has ", page_tokens, " tokens"));
  }
  return absl::OkStatus();
}

AttentionPolicy ResolvePolicy(const AttentionPolicy& policy, int64_t tokens) {
  AttentionPolicy resolved = policy;
  if (!IsAuto(policy)) return resolved;
  resolved.rates.clear();
  int32_t rate = 1;
  do {
    resolved.segments.push_back(kFirstAutoSegment * rate);
    resolved.rates.push_back(rate);
    rate *= 2;
  } while (resolved.segments.back() < tokens && resolved.segments.back() < kMostTokens);
  return resolved;
}

std::string DescribePolicies() {
  const AttentionPolicy defaults;
  std::string text;
  for (const Kind kind : kKinds) {
    std::vector<std::string> parts;
    for (const Parameter& parameter : kParameters) {
      if (!(parameter.kinds & Bit(kind))) continue;
      parts.push_back(absl::StrCat(parameter.name, "=", defaults.*parameter.field, " (",
                                   parameter.low, " to ", parameter.high, ")"));
    }
    if (UsesSegments(kind)) {
      parts.push_back(absl::StrCat(kSegmentsName, "=", absl::StrJoin(defaults.segments, "/"),
                                   " (multiples of rate and block, or auto)"));
    }
    if (UsesRates(kind)) {
      parts.push_back(absl::StrCat(kRatesName, "=", absl::StrJoin(defaults.rates, "/"),
                                   " (each 1 to ", kMostBlocks, ")"));
    }
    if (UsesEstimator(kind)) parts.push_back("estimator=antidiagonal (or pooled)");
    for (const ShareParameter& share : kShares) {
      if (!(share.kinds & Bit(kind))) continue;
      const std::string value = share.optional ? "none" : ShareText(defaults.*share.field);
      parts.push_back(absl::StrCat(share.name, "=", value, " (above 0, at most 1)"));
    }
    absl::StrAppend(&text, PolicyName(kind), parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "),
                    "\n");
  }
  return text;
}

}  // namespace annulus

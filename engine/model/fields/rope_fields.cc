#include "engine/model/fields/rope_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr double kMostFactor = 1e6;
constexpr double kLeastFactor = 1e-3;

struct KindName {
  absl::string_view name;
  RopeKind kind;
};
constexpr std::array<KindName, 7> kKinds = {{{"default", RopeKind::kDefault},
                                             {"linear", RopeKind::kLinear},
                                             {"dynamic", RopeKind::kDynamic},
                                             {"llama3", RopeKind::kLlama3},
                                             {"yarn", RopeKind::kYarn},
                                             {"longrope", RopeKind::kLongrope},
                                             {"proportional", RopeKind::kProportional}}};

// Reads one rope setting. `rope` is the object that holds it, `fields` the whole file.
class RopeParser {
 public:
  RopeParser(const JsonFields& fields, const JsonFields& rope, const Family& family,
             const ModelConfig& config, int32_t head_dim)
      : fields_(fields), rope_(rope), family_(family), config_(config), head_dim_(head_dim) {}

  absl::StatusOr<RopeConfig> Parse(const JsonFields& theta_place, const char* theta_key,
                                   double theta);

  // The length that the setting just read is made for, at least max_context.
  int64_t reach() const { return std::clamp(reach_, config_.max_context, kMostContext); }

 private:
  absl::StatusOr<RopeKind> Kind() const;
  absl::StatusOr<int32_t> Pairs() const;
  absl::StatusOr<int64_t> OriginalContext() const;
  absl::Status ParseFactor(std::optional<double> fallback);
  absl::Status ParseLlama3();
  absl::Status ParseYarn();
  absl::Status ParseLongrope();
  absl::Status ParseAlpha();
  absl::Status ParseProportion();
  absl::StatusOr<float> Scale(double fallback) const;
  void ReachTo(int64_t context) {
    reach_ = static_cast<int64_t>(std::min(made_.factor * static_cast<double>(context), 2e9));
  }

  const JsonFields& fields_;
  const JsonFields& rope_;
  const Family& family_;
  const ModelConfig& config_;
  const int32_t head_dim_;
  RopeConfig made_;
  int64_t reach_ = 0;
};

absl::StatusOr<RopeKind> RopeParser::Kind() const {
  const char* key = rope_.Has("rope_type") ? "rope_type" : "type";
  ANNULUS_ASSIGN_OR_RETURN(std::string name, rope_.String(key, "default"));
  const bool phi3 = family_.rope == RopeRule::kPhi3;
  if (phi3 && (name == "su" || name == "yarn")) name = "longrope";
  if (family_.rope == RopeRule::kMrope && name == "mrope") name = "default";
  std::vector<std::string> allowed;
  for (const KindName& kind : kKinds) {
    if (phi3 && kind.kind != RopeKind::kDefault && kind.kind != RopeKind::kLongrope) continue;
    if (kind.name == name) return kind.kind;
    allowed.push_back(absl::StrCat("\"", kind.name, "\""));
  }
  return rope_.Unsupported(key, absl::StrJoin(allowed, ", "));
}

absl::StatusOr<int32_t> RopeParser::Pairs() const {
  const char* key = "partial_rotary_factor";
  const JsonFields& place = rope_.Has(key) ? rope_ : fields_;
  if (family_.rope == RopeRule::kRotaryDim && !place.Has(key)) {
    const char* dim = "rotary_dim";
    ANNULUS_ASSIGN_OR_RETURN(const int32_t rows, fields_.Integer(dim, 2, head_dim_, head_dim_));
    if (rows % 2 == 0) return rows / 2;
    return fields_.Invalid(dim, "an even number");
  }
  const bool all = family_.partial_rotary == 0;
  ANNULUS_ASSIGN_OR_RETURN(const double partial,
                           place.Number(key, 0, 1, all ? 1 : family_.partial_rotary));
  if (partial != 1 && all) return place.Unsupported(key, "1");
  const auto rotated = static_cast<int32_t>(head_dim_ * partial);
  if (rotated >= 2 && rotated % 2 == 0) return rotated / 2;
  return place.Invalid(key, absl::StrCat("a number whose product with the head_dim of ", head_dim_,
                                         " is even and at least 2"));
}

absl::StatusOr<int64_t> RopeParser::OriginalContext() const {
  const char* key = "original_max_position_embeddings";
  const JsonFields& place = fields_.Has(key) || family_.original_context > 0 ? fields_ : rope_;
  const int64_t fallback =
      family_.original_context > 0 ? family_.original_context : config_.max_context;
  return place.Integer(key, 1, kMostContext, fallback);
}

absl::Status RopeParser::ParseFactor(std::optional<double> fallback) {
  ANNULUS_ASSIGN_OR_RETURN(made_.factor, rope_.Number("factor", 1, kMostFactor, fallback));
  return absl::OkStatus();
}

absl::Status RopeParser::ParseLlama3() {
  ANNULUS_RETURN_IF_ERROR(ParseFactor(std::nullopt));
  ANNULUS_ASSIGN_OR_RETURN(made_.low_frequency_factor,
                           rope_.Number("low_freq_factor", kLeastFactor, kMostFactor));
  ANNULUS_ASSIGN_OR_RETURN(made_.high_frequency_factor,
                           rope_.Number("high_freq_factor", kLeastFactor, kMostFactor));
  if (made_.high_frequency_factor <= made_.low_frequency_factor) {
    return rope_.Invalid("high_freq_factor",
                         absl::StrCat("more than low_freq_factor, ", made_.low_frequency_factor));
  }
  ANNULUS_ASSIGN_OR_RETURN(made_.original_context, OriginalContext());
  ReachTo(made_.original_context);
  return absl::OkStatus();
}

// 0.1 * m * ln(factor) + 1: what keeps the entropy of attention (Peng et al. 2023, section 3.4).
double YarnScale(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1;
}

absl::Status RopeParser::ParseYarn() {
  ANNULUS_ASSIGN_OR_RETURN(made_.original_context, OriginalContext());
  const double ratio =
      static_cast<double>(config_.max_context) / static_cast<double>(made_.original_context);
  ANNULUS_RETURN_IF_ERROR(ParseFactor(ratio));
  ANNULUS_ASSIGN_OR_RETURN(made_.fast_turns,
                           rope_.Number("beta_fast", kLeastFactor, kMostFactor, 32));
  ANNULUS_ASSIGN_OR_RETURN(made_.slow_turns,
                           rope_.Number("beta_slow", kLeastFactor, kMostFactor, 1));
  ANNULUS_ASSIGN_OR_RETURN(made_.whole_borders, rope_.Boolean("truncate", true));
  if (made_.theta <= 1) return rope_.Invalid("rope_theta", "more than 1 with YaRN");
  ANNULUS_ASSIGN_OR_RETURN(const double m, rope_.Number("mscale", 0, kMostFactor, 0));
  ANNULUS_ASSIGN_OR_RETURN(const double m_all, rope_.Number("mscale_all_dim", 0, kMostFactor, 0));
  const double usual = m != 0 && m_all != 0
                           ? YarnScale(made_.factor, m) / YarnScale(made_.factor, m_all)
                           : YarnScale(made_.factor, 1);
  ANNULUS_ASSIGN_OR_RETURN(made_.scale, Scale(usual));
  ReachTo(made_.original_context);
  return absl::OkStatus();
}

absl::Status RopeParser::ParseLongrope() {
  ANNULUS_ASSIGN_OR_RETURN(made_.original_context, OriginalContext());
  const auto original = static_cast<double>(made_.original_context);
  ANNULUS_RETURN_IF_ERROR(
      ParseFactor(std::max(1.0, static_cast<double>(config_.max_context) / original)));
  const auto read = [&](const char* key, std::vector<float>& divisors) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(
        const std::vector<double> numbers,
        rope_.Numbers(key, static_cast<size_t>(made_.pairs), false, kLeastFactor, kMostFactor));
    divisors.assign(numbers.begin(), numbers.end());
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(read("short_factor", made_.short_divisors));
  ANNULUS_RETURN_IF_ERROR(read("long_factor", made_.long_divisors));
  const bool stretched = made_.factor > 1 && made_.original_context > 1;
  ANNULUS_ASSIGN_OR_RETURN(
      made_.scale,
      Scale(stretched ? std::sqrt(1 + std::log(made_.factor) / std::log(original)) : 1));
  ReachTo(made_.original_context);
  return absl::OkStatus();
}

// A dynamic NTK that does not depend on the length.
absl::Status RopeParser::ParseAlpha() {
  ANNULUS_ASSIGN_OR_RETURN(const double alpha, rope_.Number("alpha", 1, kMostFactor));
  const double rotated = 2.0 * made_.pairs;
  made_.kind = RopeKind::kDefault;
  made_.theta *= std::pow(alpha, rotated / (rotated - 2));
  return absl::OkStatus();
}

absl::Status RopeParser::ParseProportion() {
  ANNULUS_ASSIGN_OR_RETURN(const double part, rope_.Number("partial_rotary_factor", 0, 1, 1));
  ANNULUS_RETURN_IF_ERROR(ParseFactor(1));
  made_.pairs = head_dim_ / 2;
  made_.turning = static_cast<int32_t>(part * head_dim_ / 2);
  return absl::OkStatus();
}

absl::StatusOr<float> RopeParser::Scale(double fallback) const {
  ANNULUS_ASSIGN_OR_RETURN(const double scale,
                           rope_.Number("attention_factor", kLeastFactor, 1e3, fallback));
  return static_cast<float>(scale);
}

absl::StatusOr<RopeConfig> RopeParser::Parse(const JsonFields& theta_place, const char* theta_key,
                                             double theta) {
  // The bound keeps theta a float32, in which the frequencies are formed.
  ANNULUS_ASSIGN_OR_RETURN(made_.theta, theta_place.Number(theta_key, 1, 1e38, theta));
  ANNULUS_ASSIGN_OR_RETURN(made_.kind, Kind());
  if (made_.kind == RopeKind::kProportional) {
    ANNULUS_RETURN_IF_ERROR(ParseProportion());
    return std::move(made_);
  }
  ANNULUS_ASSIGN_OR_RETURN(made_.pairs, Pairs());
  switch (made_.kind) {
    case RopeKind::kDefault:
    case RopeKind::kProportional:
      break;
    case RopeKind::kLinear: {
      ANNULUS_RETURN_IF_ERROR(ParseFactor(std::nullopt));
      ANNULUS_ASSIGN_OR_RETURN(const int64_t original, OriginalContext());
      ReachTo(original);
      break;
    }
    case RopeKind::kDynamic:
      if (made_.pairs < 2) return fields_.Invalid("head_dim", "at least 4 with dynamic rope");
      if (family_.rope == RopeRule::kNtkAlpha && rope_.Has("alpha")) {
        ANNULUS_RETURN_IF_ERROR(ParseAlpha());
        break;
      }
      ANNULUS_RETURN_IF_ERROR(ParseFactor(std::nullopt));
      made_.original_context = config_.max_context;
      ReachTo(config_.max_context);
      break;
    case RopeKind::kLlama3:
      ANNULUS_RETURN_IF_ERROR(ParseLlama3());
      break;
    case RopeKind::kYarn:
      ANNULUS_RETURN_IF_ERROR(ParseYarn());
      break;
    case RopeKind::kLongrope:
      ANNULUS_RETURN_IF_ERROR(ParseLongrope());
      break;
  }
  return std::move(made_);
}

// The object that holds the rope settings.
absl::StatusOr<const char*> RopeKey(const JsonFields& fields) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* value = fields.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return fields.Invalid(key, "an object or null");
    if (!value->empty()) return key;
  }
  return nullptr;
}

// Ministral 3: ropes[0] serves keys, ropes[1] queries, which it scales by their position, too.
absl::Status AddGrowingQueries(const JsonFields& rope, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const double growth, rope.Number("llama_4_scaling_beta", 0, 100, 0));
  if (growth == 0) return absl::OkStatus();
  RopeConfig queries = config.ropes.front();
  queries.growth = growth;
  // Also that of YaRN.
  ANNULUS_ASSIGN_OR_RETURN(queries.original_context,
                           rope.Integer("original_max_position_embeddings", 1, kMostContext));
  config.ropes.push_back(std::move(queries));
  for (LayerConfig& layer : config.layers) layer.query_rope = 1;
  return absl::OkStatus();
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// Gemma 3, OLMo 3: ropes[0] serves the full layers, ropes[1] the sliding ones. Older files have
// `rope_theta` and `rope_scaling` for the former, and for the latter Gemma's `rope_local_base_freq`
// or OLMo's `rope_theta`: so it is in Transformers 4.57, which wrote these, and llama.cpp.
// Transformers 5 gives OLMo's sliding layers the family's theta, whatever such a file says.
absl::Status ParsePerLayer(const JsonFields& fields, const JsonFields& rope, const Family& family,
                           ModelConfig& config) {
  const nlohmann::json none = nlohmann::json::object();
  const auto inner = [&](const char* kind,
                         const nlohmann::json& absent) -> absl::StatusOr<JsonFields> {
    const nlohmann::json* value = rope.Find(kind);
    if (value != nullptr && !value->is_object()) return rope.Invalid(kind, "an object or null");
    return rope.Inside(kind, value == nullptr ? absent : *value);
  };
  const bool listed = rope.Has(kFull) || rope.Has(kSliding);
  ANNULUS_ASSIGN_OR_RETURN(const JsonFields listed_full, inner(kFull, none));
  const JsonFields& full = listed ? listed_full : rope;
  ANNULUS_ASSIGN_OR_RETURN(const JsonFields sliding, inner(kSliding, none));
  const auto slides = [](const LayerConfig& layer) { return layer.window > 0; };
  const auto first = std::find_if(config.layers.begin(), config.layers.end(), slides);
  const int32_t full_dim = WidestAttention(config).k_dim;
  const int32_t sliding_dim = first == config.layers.end() ? full_dim : first->attention.k_dim;
  RopeParser full_parser(fields, full, family, config, full_dim);
  const bool full_theta = full.Has("rope_theta");
  ANNULUS_ASSIGN_OR_RETURN(RopeConfig full_rope, full_parser.Parse(full_theta ? full : fields,
                                                                   "rope_theta", family.theta));
  RopeParser sliding_parser(fields, sliding, family, config, sliding_dim);
  const bool scaled_full = family.rope == RopeRule::kScaledFull;
  const JsonFields& shared = !listed && full_theta ? full : fields;
  const bool sliding_theta = sliding.Has("rope_theta");
  ANNULUS_ASSIGN_OR_RETURN(
      RopeConfig sliding_rope,
      sliding_parser.Parse(sliding_theta ? sliding
                           : scaled_full ? shared
                                         : fields,
                           sliding_theta || scaled_full ? "rope_theta" : "rope_local_base_freq",
                           scaled_full ? family.theta : 10000));
  config.ropes = {std::move(full_rope), std::move(sliding_rope)};
  config.rope_context = full_parser.reach();
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseRopes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const char* found, RopeKey(fields));
  const nlohmann::json absent = family.rope_default == nullptr
                                    ? nlohmann::json::object()
                                    : nlohmann::json::parse(family.rope_default);
  const JsonFields rope = found == nullptr ? fields.Inside("rope_parameters", absent)
                                           : fields.Inside(found, *fields.Find(found));
  if (family.rope == RopeRule::kPerLayer || family.rope == RopeRule::kScaledFull) {
    return ParsePerLayer(fields, rope, family, config);
  }
  for (const char* per_layer : {kFull, kSliding}) {
    if (rope.Has(per_layer)) return rope.Unsupported(per_layer, "one rope setting for all layers");
  }
  RopeParser parser(fields, rope, family, config, WidestAttention(config).k_dim);
  const JsonFields& theta_place = rope.Has("rope_theta") ? rope : fields;
  ANNULUS_ASSIGN_OR_RETURN(RopeConfig made, parser.Parse(theta_place, "rope_theta", family.theta));
  config.ropes = {std::move(made)};
  config.rope_context = parser.reach();
  if (family.rope == RopeRule::kGrowingQueries) return AddGrowingQueries(rope, config);
  if (family.rope != RopeRule::kNamed) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(const std::string name, fields.String("position_embedding_type", ""));
  for (LayerConfig& layer : config.layers) {
    if (name != "rope") layer.rope = kNoRope;
  }
  return absl::OkStatus();
}

}  // namespace annulus

#include "engine/model/families.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/family_table.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Whether the row is only a larger model's text half, which no checkpoint has alone.
bool IsHalf(const Family& family) { return absl::EndsWith(family.architecture, "TextModel"); }

const Family* Named(absl::string_view architecture) {
  for (const Family& family : Families()) {
    if (family.architecture == architecture && !IsHalf(family)) return &family;
  }
  return nullptr;
}

// The family of the text half that the fields describe. Whoever reads them checks their type.
FoundFamily TextHalf(const LargerModel& larger, const JsonFields& fields) {
  absl::string_view type = larger.text_types.front();
  const nlohmann::json* text = fields.Find("text_config");
  if (text != nullptr && text->is_object()) {
    const auto named = text->find("model_type");
    for (const absl::string_view allowed : larger.text_types) {
      if (named != text->end() && !allowed.empty() && *named == std::string(allowed)) {
        type = allowed;
      }
    }
  }
  return {larger.architecture, &FamilyOf(type), text != nullptr || !larger.flat, larger.text_types};
}

std::optional<FoundFamily> OfArchitecture(absl::string_view name, const JsonFields& fields) {
  for (const OlderName& older : OlderNames()) {
    if (older.name == name) name = older.architecture;
  }
  if (const Family* family = Named(name)) return FoundFamily{family->architecture, family};
  for (const LargerModel& larger : LargerModels()) {
    if (larger.architecture == name) return TextHalf(larger, fields);
  }
  return std::nullopt;
}

std::optional<FoundFamily> OfModelType(absl::string_view name, const JsonFields& fields) {
  for (const Family& family : Families()) {
    if (family.model_type == name && !IsHalf(family)) {
      return FoundFamily{family.architecture, &family};
    }
  }
  for (const LargerModel& larger : LargerModels()) {
    if (larger.model_type == name) return TextHalf(larger, fields);
  }
  return std::nullopt;
}

std::string Types() {
  std::vector<absl::string_view> types;
  for (const Family& family : Families()) {
    if (!IsHalf(family)) types.push_back(family.model_type);
  }
  for (const LargerModel& larger : LargerModels()) types.push_back(larger.model_type);
  return absl::StrJoin(types, ", ");
}

// What is served, and why a model of this type is not.
std::string AllowedTypes(absl::string_view type) {
  const std::string allowed = absl::StrCat("one of ", Types());
  for (const RefusedType& refused : RefusedTypes()) {
    if (refused.model_type != type) continue;
    return absl::StrCat(allowed, ". Such a model has ", refused.has, ", which is not served",
                        refused.nearest.empty() ? "" : "; the nearest type is ", refused.nearest);
  }
  return allowed;
}

std::string Allowed() { return absl::StrCat("a list with an architecture of the types ", Types()); }

// Where the architectures are absent, several or unknown: as Transformers, by the model's type.
absl::StatusOr<FoundFamily> FindByType(const JsonFields& fields,
                                       const std::vector<absl::string_view>& named) {
  constexpr char kKey[] = "model_type";
  if (!fields.Has(kKey)) {
    return fields.Invalid("architectures", absl::StrCat(Allowed(), ", or a known model_type"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string type, fields.String(kKey, ""));
  const std::optional<FoundFamily> found = OfModelType(type, fields);
  if (!found.has_value()) return fields.Unsupported(kKey, AllowedTypes(type));
  const bool among = std::find(named.begin(), named.end(), found->architecture) != named.end();
  if (named.empty() || among) return *found;
  return fields.Unsupported("architectures", absl::StrCat("with the model_type \"", type,
                                                          "\": a list with ", found->architecture));
}

}  // namespace

const Family& FamilyOf(absl::string_view model_type) {
  const std::span<const Family> all = Families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family& family) {
    return family.model_type == model_type;
  });
  ANNULUS_CHECK(found != all.end()) << model_type;
  return *found;
}

std::vector<std::string> SupportedArchitectures() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    if (!IsHalf(family)) names.emplace_back(family.architecture);
  }
  for (const LargerModel& larger : LargerModels()) names.emplace_back(larger.architecture);
  return names;
}

absl::StatusOr<FoundFamily> FindFamily(const JsonFields& fields) {
  constexpr char kKey[] = "architectures";
  std::vector<absl::string_view> named;
  if (const nlohmann::json* list = fields.Find(kKey)) {
    if (!list->is_array()) return fields.Invalid(kKey, Allowed());
    for (const nlohmann::json& name : *list) {
      if (!name.is_string()) return fields.Invalid(kKey, Allowed());
      named.push_back(name.get_ref<const std::string&>());
    }
  }
  if (named.size() == 1) {
    if (const auto found = OfArchitecture(named[0], fields)) return *found;
    if (!fields.Has("model_type")) return fields.Unsupported(kKey, Allowed());
  }
  return FindByType(fields, named);
}

}  // namespace annulus

#include "engine/exchange/exchange_profile.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/json_fields.h"
#include "engine/base/json_parser.h"
#include "engine/model/files/regular_file.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kFormat[] = "annulus exchange profile 3";
constexpr uint64_t kMostProfileBytes = 64 << 10;
constexpr size_t kMostRates = 16;
constexpr int64_t kMostRows = 1 << 20;

nlohmann::json ToJson(const ExchangeSetup& setup) {
  return {{"device", setup.device},
          {"kernels", setup.kernels},
          {"ranks", setup.ranks},
          {"threads", setup.threads},
          {"heads", setup.attention.heads},
          {"kv_heads", setup.attention.page.kv_heads},
          {"k_dim", setup.attention.page.k_dim},
          {"v_dim", setup.attention.page.v_dim},
          {"page_tokens", setup.attention.page.page_tokens},
          {"kv_dtype", std::string(DTypeName(setup.attention.page.dtype))}};
}

nlohmann::json ToJson(const std::vector<AttentionRate>& rates) {
  nlohmann::json list = nlohmann::json::array();
  for (const AttentionRate& rate : rates) {
    list.push_back({{"rows", rate.rows},
                    {"flops", rate.flops},
                    {"alone_flops", rate.alone_flops},
                    {"query_seconds", rate.query_seconds}});
  }
  return list;
}

absl::StatusOr<std::vector<AttentionRate>> ReadAttention(const std::string& path,
                                                         const JsonFields& fields,
                                                         const nlohmann::json& list) {
  constexpr char kAllowed[] =
      "1 to 16 objects of rows, flops, alone_flops and query_seconds, by ascending rows; delete "
      "the file to measure again";
  if (!list.is_array() || list.empty() || list.size() > kMostRates) {
    return fields.Invalid("attention", kAllowed);
  }
  std::vector<AttentionRate> rates;
  for (const nlohmann::json& entry : list) {
    if (!entry.is_object() || entry.size() != 4) return fields.Invalid("attention", kAllowed);
    const JsonFields values(path, "rates.attention", entry);
    const int least = rates.empty() ? 1 : rates.back().rows + 1;
    AttentionRate& rate = rates.emplace_back();
    ANNULUS_ASSIGN_OR_RETURN(const int64_t rows, values.Integer("rows", least, kMostRows));
    rate.rows = static_cast<int>(rows);
    ANNULUS_ASSIGN_OR_RETURN(rate.flops, values.Number("flops", 1e3, 1e18));
    ANNULUS_ASSIGN_OR_RETURN(rate.alone_flops, values.Number("alone_flops", 1e3, 1e18));
    ANNULUS_ASSIGN_OR_RETURN(rate.query_seconds, values.Number("query_seconds", -10, 10));
  }
  return rates;
}

// A member that is an object with exactly these keys.
absl::StatusOr<const nlohmann::json*> Section(const std::string& path, const nlohmann::json& all,
                                              const char* name,
                                              std::initializer_list<const char*> keys) {
  const auto section = all.find(name);
  if (section == all.end() || !section->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", name, " is missing or not an object; delete the file to measure again"));
  }
  for (const char* key : keys) {
    if (section->contains(key)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", name, ".", key, " is missing; delete the file to measure again"));
  }
  if (section->size() != keys.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", name, " has an unknown key; it has ", section->size(),
        " keys, but expected are ", keys.size(), "; delete the file to measure again"));
  }
  return &*section;
}

absl::Status CheckSetup(const std::string& path, const nlohmann::json& saved,
                        const ExchangeSetup& setup) {
  const nlohmann::json own = ToJson(setup);
  for (const auto& [key, value] : own.items()) {
    if (saved.at(key) == value) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was measured with ", key, " ", QuoteForMessage(saved.at(key).dump()),
                     ", but this server has ", value.dump(), "; delete it or name another file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExchangeRates> LoadExchangeProfile(const std::string& path,
                                                  const ExchangeSetup& setup) {
  const std::filesystem::path file(path);
  const std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                           ReadSmallFile(directory, file.filename().string(), kMostProfileBytes));
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json all, ParseJsonTree(text, path));
  if (!all.is_object() || all.value("format", nlohmann::json()) != kFormat || all.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " does not have exactly the keys format (\"", kFormat,
                     "\"), setup and rates; delete the file to measure again"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json* saved,
                           Section(path, all, "setup",
                                   {"device", "kernels", "ranks", "threads", "heads", "kv_heads",
                                    "k_dim", "v_dim", "page_tokens", "kv_dtype"}));
  ANNULUS_RETURN_IF_ERROR(CheckSetup(path, *saved, setup));
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json* values,
                           Section(path, all, "rates",
                                   {"attention", "call_keys", "link_bytes_per_second",
                                    "message_seconds", "part_seconds"}));
  const JsonFields fields(path, "rates", *values);
  ExchangeRates rates;
  ANNULUS_ASSIGN_OR_RETURN(rates.attention, ReadAttention(path, fields, values->at("attention")));
  ANNULUS_ASSIGN_OR_RETURN(rates.call_keys, fields.Number("call_keys", 0, 1e9));
  ANNULUS_ASSIGN_OR_RETURN(rates.link_bytes_per_second,
                           fields.Number("link_bytes_per_second", 0, 1e15));
  ANNULUS_ASSIGN_OR_RETURN(rates.message_seconds, fields.Number("message_seconds", 0, 10));
  ANNULUS_ASSIGN_OR_RETURN(rates.part_seconds, fields.Number("part_seconds", 0, 1));
  return rates;
}

absl::Status SaveExchangeProfile(const std::string& path, const ExchangeSetup& setup,
                                 const ExchangeRates& rates) {
  const nlohmann::json all = {{"format", kFormat},
                              {"setup", ToJson(setup)},
                              {"rates",
                               {{"attention", ToJson(rates.attention)},
                                {"call_keys", rates.call_keys},
                                {"link_bytes_per_second", rates.link_bytes_per_second},
                                {"message_seconds", rates.message_seconds},
                                {"part_seconds", rates.part_seconds}}}};
  const std::string beside = absl::StrCat(path, ".", getpid());
  std::ofstream file(beside, std::ios::binary);
  file << all.dump(2) << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (file && !error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  return absl::FailedPreconditionError(
      absl::StrCat("ring-profile: cannot write ", path, "; give a file in a writable folder"));
}

}  // namespace annulus

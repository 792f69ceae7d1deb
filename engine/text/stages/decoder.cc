#include "engine/text/stages/decoder.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/text/models/byte_alphabet.h"
#include "engine/text/stages/metaspace.h"
#include "engine/text/stages/normalizer.h"
#include "engine/text/stages/text_stage.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The byte of a token <0xNN>.
std::optional<char> ByteToken(absl::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return std::nullopt;
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(digit));
    value = value * 16 + (lower <= '9' ? lower - '0' : lower - 'a' + 10);
  }
  return static_cast<char>(value);
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const JsonNode& node) {
  if (node.is_null()) return node.Error("missing: without a decoder ids cannot become text");
  Decoder decoder;
  ANNULUS_RETURN_IF_ERROR(decoder.ParseStage(node));
  return decoder;
}

absl::Status Decoder::ParseStage(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode type_node, node.Require("type"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view type, type_node.String());
  if (type == "Sequence") {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode members, node.Require("decoders"));
    return members.ForEachElement([this](const JsonNode& member) { return ParseStage(member); });
  }
  if (type == "Replace") return ParseReplace(node);
  if (type == "Metaspace") return ParseMetaspaceStep(node);
  if (type == "ByteFallback" || type == "ByteLevel") {
    bytes_ = type == "ByteLevel" ? Bytes::kByteLevel : Bytes::kFallback;
    return Enter(Stage::kBytes, node);
  }
  if (type == "Fuse") return Enter(Stage::kFuse, node);
  if (type == "Strip") return ParseStrip(node);
  return type_node.Unsupported(
      "decoder", type,
      {"Sequence", "Replace", "Metaspace", "ByteFallback", "ByteLevel", "Fuse", "Strip"});
}

absl::Status Decoder::Enter(Stage stage, const JsonNode& node) {
  const bool repeats = stage == Stage::kToken && last_stage_ == stage;
  if (last_stage_.has_value() && *last_stage_ >= stage && !repeats) {
    return node.Unsupported(
        "a decoder in this place", node.StringMember("type", "").value_or(""),
        {"the order Replace, Metaspace or Strip, ByteFallback or ByteLevel, Fuse, Strip"});
  }
  last_stage_ = stage;
  return absl::OkStatus();
}

absl::Status Decoder::ParseReplace(const JsonNode& node) {
  ANNULUS_RETURN_IF_ERROR(Enter(Stage::kToken, node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Require("pattern"));
  ANNULUS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content_node, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view content, content_node.String());
  steps_.push_back(Replacement{std::move(pattern), std::string(content)});
  return absl::OkStatus();
}

// A space for each replacement; nothing in the first token, unless encoding puts none in front.
absl::Status Decoder::ParseMetaspaceStep(const JsonNode& node) {
  ANNULUS_RETURN_IF_ERROR(Enter(Stage::kToken, node));
  ANNULUS_ASSIGN_OR_RETURN(const MetaspaceOptions options, ParseMetaspace(node));
  const bool only_later = options.prepend != MetaspaceOptions::Prepend::kNever;
  first_token_differs_ |= only_later;
  steps_.push_back(Replacement{Pattern::FromLiteral(options.replacement), " ", only_later});
  return absl::OkStatus();
}

absl::Status Decoder::ParseStrip(const JsonNode& node) {
  const bool of_text = last_stage_ == Stage::kFuse || bytes_ == Bytes::kByteLevel;
  ANNULUS_RETURN_IF_ERROR(Enter(of_text ? Stage::kStrip : Stage::kToken, node));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode content_node, node.Require("content"));
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view content, content_node.String());
  size_t position = 0;
  if (!content.empty()) NextCodePoint(content, &position);
  if (content.empty() || position != content.size()) {
    return content_node.Error("expected one character");
  }
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode start_node, node.Require("start"));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t start, start_node.Integer(0, 1 << 20));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode stop_node, node.Require("stop"));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t stop, stop_node.Integer(0, 1 << 20));
  if (!of_text) {
    steps_.push_back(
        StripEnds{std::string(content), static_cast<size_t>(start), static_cast<size_t>(stop)});
    return absl::OkStatus();
  }
  if (content.size() != 1) {
    return content_node.Unsupported("to strip from the text", content, {"one ASCII character"});
  }
  if (stop != 0) return stop_node.Unsupported("to strip at the end", absl::StrCat(stop), {"0"});
  strip_ = content.front();
  strip_count_ = static_cast<size_t>(start);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decoder::DecodeToken(absl::string_view token, bool is_first) const {
  std::string text(token);
  const uint64_t max_bytes = MaxNormalizedBytes(token.size());
  for (const TokenStep& step : steps_) {
    if (const auto* strip = std::get_if<StripEnds>(&step)) {
      absl::string_view rest = text;
      for (size_t i = 0; i < strip->start && absl::ConsumePrefix(&rest, strip->character);) ++i;
      for (size_t i = 0; i < strip->stop && absl::ConsumeSuffix(&rest, strip->character);) ++i;
      text = std::string(rest);
      continue;
    }
    const auto& replacement = std::get<Replacement>(step);
    const bool drops = is_first && replacement.only_later;
    std::string replaced;
    WorkMeter work("the decoding", EncodeSteps(text.size()), CancelFlag::Never());
    ANNULUS_RETURN_IF_ERROR(replacement.pattern.NewScanner(&work)->Push(
        text, true, [&](absl::string_view range, bool is_match) -> absl::Status {
          if (is_match && drops) return absl::OkStatus();
          const absl::string_view part = is_match ? replacement.content : range;
          replaced.append(part.data(), part.size());
          if (replaced.size() <= max_bytes) return absl::OkStatus();
          return absl::InvalidArgumentError("the decoder makes the token too long");
        }));
    text = std::move(replaced);
  }
  if (bytes_ == Bytes::kByteLevel) return FromByteAlphabet(text).value_or(text);
  if (bytes_ == Bytes::kFallback) {
    if (const std::optional<char> byte = ByteToken(text); byte.has_value()) {
      return std::string(1, *byte);
    }
  }
  return text;
}

void Decoder::Append(absl::string_view bytes, DecodeState* state, std::string* text) const {
  state->before_tokens = false;
  while (state->at_start && !bytes.empty()) {
    if (state->stripped < strip_count_ && bytes.front() == strip_) {
      bytes.remove_prefix(1);
      ++state->stripped;
    } else {
      state->at_start = false;
    }
  }
  text->append(bytes.data(), bytes.size());
}

}  // namespace annulus

#include "server/http/json/json_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/api/field_errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_events.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kDeepest = 64;
constexpr size_t kReaderBytes = 8192;
// The parts of a form that are made once.
constexpr size_t kFormBytes = 4096;
// Memory is held in steps of this size.
constexpr size_t kStep = size_t{16} << 10;

// Writes events as JSON text again.
class Capture {
 public:
  void Begin(char bracket) {
    Separate();
    text_.push_back(bracket);
    firsts_.push_back(true);
  }
  void End(char bracket) {
    text_.push_back(bracket);
    firsts_.pop_back();
  }
  void Key(absl::string_view key) {
    Separate();
    AppendJsonString(key, text_);
    text_.push_back(':');
    after_key_ = true;
  }
  void Scalar(absl::string_view json) {
    Separate();
    absl::StrAppend(&text_, json);
  }
  void String(absl::string_view value) {
    Separate();
    AppendJsonString(value, text_);
  }
  bool complete() const { return firsts_.empty(); }
  const std::string& text() const { return text_; }

 private:
  void Separate() {
    if (std::exchange(after_key_, false) || firsts_.empty()) return;
    if (!firsts_.back()) text_.push_back(',');
    firsts_.back() = false;
  }

  std::string text_;
  std::vector<bool> firsts_;  // for each open array or object: whether nothing stands in it yet
  bool after_key_ = false;
};

// Follows the path of each value and hands it to the form.
class Handler final : public JsonEvents {
 public:
  Handler(JsonForm& form, CallMemory& memory) : form_(form), memory_(memory) {}

  // Why the reading ended, or what the form refused.
  absl::Status status() const { return status_.ok() ? JoinFieldErrors(violations_) : status_; }

  // Reserves memory for the stored part plus `bytes`.
  bool Charge(size_t bytes);

  bool Null() override { return Scalar({.kind = Kind::kNull}, "null"); }
  bool Bool(bool value) override {
    return Scalar({.kind = Kind::kBool, .truth = value}, value ? "true" : "false");
  }
  bool Integer(int64_t value) override {
    return Scalar({.kind = Kind::kNumber, .number = static_cast<double>(value), .integer = value},
                  absl::StrCat(value));
  }
  bool Natural(uint64_t value) override {
    JsonValue number{.kind = Kind::kNumber, .number = static_cast<double>(value)};
    if (value <= INT64_MAX) number.integer = static_cast<int64_t>(value);
    number.natural = value;
    return Scalar(number, absl::StrCat(value));
  }
  bool Real(double value, absl::string_view text) override {
    return Scalar({.kind = Kind::kNumber, .number = value}, text);
  }
  bool String(std::string& value) override {
    return Scalar({.kind = Kind::kString, .text = value, .buffer = &value}, "");
  }
  bool StartObject() override { return Open(Kind::kObject); }
  bool StartArray() override { return Open(Kind::kArray); }
  bool EndObject() override { return Shut('}'); }
  bool EndArray() override { return Shut(']'); }
  bool Key(absl::string_view name) override;

 private:
  // An open array or object that is taken.
  struct Level {
    bool is_array;
    size_t path_size;    // of path_, without what follows here
    int64_t index = -1;  // of an array's newest value
    std::string key = {};
    std::vector<std::string> keys = {};  // all keys of an object so far
  };

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool EnterValue();
  bool Scalar(JsonValue value, absl::string_view json);
  bool Open(Kind kind);
  bool Shut(char bracket);
  bool Take(JsonValue value, const JsonForm::Rule& rule);
  bool CaptureScalar(const JsonValue& value, absl::string_view json);
  bool Note(absl::Status violation);
  bool Refuse(const JsonValue& value);
  std::string Where() const;

  JsonForm& form_;
  CallMemory& memory_;
  absl::Status status_;
  std::vector<absl::Status> violations_;
  size_t charged_ = 0;
  size_t held_ = 0;
  size_t depth_ = 0;
  std::string path_;
  std::vector<Level> levels_;
  size_t skipped_ = 0;  // open arrays and objects of a value that is skipped
  std::optional<Capture> capture_;
  const JsonForm::Rule* captured_by_ = nullptr;
  Kind captured_kind_ = Kind::kNull;
};

bool Handler::Charge(size_t bytes) {
  charged_ += bytes;
  if (charged_ <= held_) return true;
  const size_t wanted = (charged_ / kStep + 1) * kStep;
  absl::Status status = memory_.Hold(CallMemory::kDecoded, wanted);
  if (!status.ok()) return Fail(std::move(status));
  held_ = wanted;
  return true;
}

// "messages[3].content"
std::string Handler::Where() const {
  std::string where;
  for (const Level& level : levels_) {
    if (level.is_array) {
      if (level.index >= 0) absl::StrAppend(&where, "[", level.index, "]");
    } else if (!level.key.empty()) {
      absl::StrAppend(&where, where.empty() ? "" : ".", level.key);
    }
  }
  return where;
}

bool Handler::Key(absl::string_view name) {
  if (skipped_ > 0) return true;
  if (capture_.has_value()) {
    if (!Charge(3 * (JsonStringSize(name) + 2))) return false;
    capture_->Key(name);
    return true;
  }
  Level& level = levels_.back();
  // A form has few keys; where any may stand, the form's own limit ends this soon.
  constexpr size_t kMostKeys = 2048;
  constexpr size_t kLongestKey = 256;
  if (name.size() > kLongestKey || level.keys.size() >= kMostKeys) {
    level.key = QuoteName(name);
    return Fail(
        FieldError(Where(), "is not allowed: the key is too long, or there are too many keys"));
  }
  if (!Charge(3 * (sizeof(std::string) + name.size() + 32))) return false;
  level.key = std::string(name);
  const auto place = std::lower_bound(level.keys.begin(), level.keys.end(), name);
  if (place != level.keys.end() && *place == name) {
    return Fail(FieldError(Where(), "is given twice"));
  }
  level.keys.emplace(place, name);
  path_.resize(level.path_size);
  if (!path_.empty()) path_.push_back('.');
  absl::StrAppend(&path_, name);
  return true;
}

// Moves on to the next value of an array.
bool Handler::EnterValue() {
  if (levels_.empty() || !levels_.back().is_array) return true;
  Level& level = levels_.back();
  ++level.index;
  path_.resize(level.path_size);
  path_ += "[]";
  return true;
}

// Goes on behind a value that the form refuses, so that a client is told all that is wrong at once.
bool Handler::Note(absl::Status violation) {
  if (!absl::IsInvalidArgument(violation)) return Fail(std::move(violation));
  if (!Charge(3 * (violation.message().size() + 256))) return false;
  violations_.push_back(std::move(violation));
  return violations_.size() < kMostFieldErrors || Fail(JoinFieldErrors(violations_));
}

bool Handler::Refuse(const JsonValue& value) {
  return Note(FieldError(Where(), form_.Reason(path_, value.kind)));
}

bool Handler::Take(JsonValue value, const JsonForm::Rule& rule) {
  if (!Charge(rule.value_bytes + rule.text_factor * value.text.size())) return false;
  if (!levels_.empty() && !levels_.back().is_array) value.key = levels_.back().key;
  absl::Status status = form_.Take(path_, value);
  if (status.ok()) return true;
  const bool named = status.GetPayload(kFieldPayload).has_value();
  return Note(named ? std::move(status) : WithField(status, Where()));
}

bool Handler::CaptureScalar(const JsonValue& value, absl::string_view json) {
  const bool is_string = value.kind == Kind::kString;
  if (!Charge(3 * ((is_string ? JsonStringSize(value.text) : json.size()) + 2))) return false;
  is_string ? capture_->String(value.text) : capture_->Scalar(json);
  return true;
}

bool Handler::Scalar(JsonValue value, absl::string_view json) {
  if (skipped_ > 0) return true;
  if (capture_.has_value()) return CaptureScalar(value, json);
  EnterValue();
  if (levels_.empty()) return Refuse(value);
  const JsonForm::Rule* const rule = form_.Find(path_, value.kind);
  if (rule == nullptr) return Refuse(value);
  return rule->use == JsonUse::kSkip || Take(value, *rule);
}

bool Handler::Open(Kind kind) {
  if (++depth_ > kDeepest) {
    return Fail(FieldError(Where(), absl::StrCat("nests deeper than ", kDeepest)));
  }
  if (skipped_ > 0) {
    ++skipped_;
    return true;
  }
  if (!capture_.has_value()) {
    EnterValue();
    const JsonForm::Rule* const rule = form_.Find(path_, kind);
    if (rule == nullptr || rule->use == JsonUse::kSkip) {
      skipped_ = 1;
      return rule != nullptr || Refuse({.kind = kind});
    }
    if (rule->use == JsonUse::kTake) {
      const size_t before = violations_.size();
      if (!Charge(3 * sizeof(Level)) || !Take({.kind = kind}, *rule)) return false;
      if (violations_.size() > before) {
        skipped_ = 1;
      } else {
        levels_.push_back({kind == Kind::kArray, path_.size()});
      }
      return true;
    }
    capture_.emplace();
    captured_by_ = rule;
    captured_kind_ = kind;
  }
  if (!Charge(16)) return false;
  capture_->Begin(kind == Kind::kArray ? '[' : '{');
  return true;
}

bool Handler::Shut(char bracket) {
  --depth_;
  if (skipped_ > 0) {
    --skipped_;
    return true;
  }
  if (capture_.has_value()) {
    if (!Charge(8)) return false;
    capture_->End(bracket);
    if (!capture_->complete()) return true;
    const Capture captured = *std::exchange(capture_, std::nullopt);
    return Take({.kind = Kind::kText, .text = captured.text()}, *captured_by_);
  }
  levels_.pop_back();
  return true;
}

}  // namespace

std::string TakeText(const JsonValue& value) {
  // What it has beyond the text is within the bytes that each value is charged.
  constexpr size_t kMostBeyond = 64;
  const bool fits =
      value.buffer != nullptr && value.buffer->capacity() <= value.text.size() + kMostBeyond;
  return fits ? std::move(*value.buffer) : std::string(value.text);
}

absl::Status ReadJson(const std::deque<std::string>& pieces, JsonForm& form, CallMemory& memory,
                      const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, kReaderBytes));
  const absl::StatusOr<JsonSurvey> survey = SurveyJson(pieces, cancel);
  ANNULUS_RETURN_IF_ERROR(survey.status());
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, kReaderBytes + survey->longest_string));
  Handler handler(form, memory);
  if (!handler.Charge(kFormBytes)) return handler.status();
  const JsonEnding ending = ParseJsonEvents(pieces, *survey, cancel, handler);
  memory.Release(CallMemory::kWork);
  if (cancel.cancelled()) return absl::CancelledError("the request was cancelled");
  ANNULUS_RETURN_IF_ERROR(handler.status());
  if (ending.complete) return absl::OkStatus();
  return FieldError("", absl::StrCat("the body is not valid JSON in UTF-8: error at byte ",
                                     ending.error_byte.value_or(0)));
}

}  // namespace annulus::server

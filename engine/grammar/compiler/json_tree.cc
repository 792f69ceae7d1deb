#include "engine/grammar/compiler/json_tree.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_parser.h"
#include "engine/grammar/compiler/decimal_range.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A value with its place among its parent's, with room for vectors that double.
constexpr size_t kBytesPerValue = 3 * sizeof(JsonTree);
constexpr size_t kBytesPerKey = 6 * sizeof(std::string);
// The parser keeps what it reads twice, in buffers that double.
constexpr size_t kBytesPerTextByte = 4;
constexpr size_t kBytesGrantedAtOnce = size_t{64} << 10;

class OrderedTreeBuilder final : public JsonHandler {
 public:
  OrderedTreeBuilder(WorkMeter* work, MemoryGrant* memory) : work_(*work), memory_(*memory) {}

  // Asks for what reading so many bytes takes beside the tree.
  absl::Status Begin(size_t text_bytes) {
    granted_ = bytes_ = kBytesPerTextByte * text_bytes;
    return memory_.Allow(granted_);
  }
  JsonTree Take() { return std::move(root_); }
  const absl::Status& refused() const { return refused_; }
  size_t granted() const { return granted_; }

  bool null() override { return Add(JsonTree::Kind::kNull, ""); }
  bool boolean(bool value) override {
    return Add(value ? JsonTree::Kind::kTrue : JsonTree::Kind::kFalse, "");
  }
  bool number_integer(int64_t value) override {
    return Add(JsonTree::Kind::kNumber, absl::StrCat(value));
  }
  bool number_unsigned(uint64_t value) override {
    return Add(JsonTree::Kind::kNumber, absl::StrCat(value));
  }
  bool number_float(double, const std::string& text) override {
    return Add(JsonTree::Kind::kNumber, text);
  }
  bool string(std::string& value) override {
    return Add(JsonTree::Kind::kString, std::move(value));
  }
  bool start_object(size_t) override { return Open(JsonTree::Kind::kObject); }
  bool start_array(size_t) override { return Open(JsonTree::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    if (!Charge(kBytesPerKey + 2 * name.size())) return false;
    JsonTree::Members& members = *open_.back()->members;
    members.keys.push_back(name);
    return members.places.emplace(name, members.keys.size() - 1).second || Fail("is given twice");
  }

 protected:
  std::string Where() const override {
    std::string path;
    for (const JsonTree* open : open_) {
      if (!open->is_object() || open->members->keys.empty()) continue;
      absl::StrAppend(&path, path.empty() ? "" : ".", QuoteForMessage(open->members->keys.back()));
    }
    return path;
  }

 private:
  bool Charge(size_t bytes) {
    refused_ = work_.Step();
    bytes_ += bytes;
    if (refused_.ok() && bytes_ > granted_) {
      granted_ = bytes_ + kBytesGrantedAtOnce;
      refused_ = memory_.Allow(granted_);
    }
    return refused_.ok() || Fail("is more than the limits allow");
  }

  JsonTree* Place(JsonTree value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    return &open_.back()->items.emplace_back(std::move(value));
  }

  bool Add(JsonTree::Kind kind, std::string text) {
    if (!Charge(kBytesPerValue + text.size())) return false;
    JsonTree value;
    value.kind = kind;
    value.text = std::move(text);
    Place(std::move(value));
    return true;
  }

  bool Open(JsonTree::Kind kind) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(absl::StrCat("is nested more than ", kMaxJsonDepth, " levels deep"));
    }
    if (!Charge(kBytesPerValue + sizeof(JsonTree::Members))) return false;
    JsonTree value;
    value.kind = kind;
    if (kind == JsonTree::Kind::kObject) value.members = std::make_unique<JsonTree::Members>();
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  WorkMeter& work_;
  MemoryGrant& memory_;
  absl::Status refused_;  // of one of the two
  size_t bytes_ = 0;
  size_t granted_ = 0;
  JsonTree root_;
  std::vector<JsonTree*> open_;  // do not move while a deeper one is open
};

void AppendCompact(const JsonTree& value, bool sorted, std::string* text) {
  switch (value.kind) {
    case JsonTree::Kind::kNull:
      absl::StrAppend(text, "null");
      return;
    case JsonTree::Kind::kFalse:
      absl::StrAppend(text, "false");
      return;
    case JsonTree::Kind::kTrue:
      absl::StrAppend(text, "true");
      return;
    case JsonTree::Kind::kNumber:
      absl::StrAppend(text, CanonicalNumber(value.text));
      return;
    case JsonTree::Kind::kString:
      absl::StrAppend(text, JsonQuoted(value.text));
      return;
    default:
      break;
  }
  std::vector<size_t> order(value.items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (value.is_object() && sorted) {
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return value.members->keys[a] < value.members->keys[b]; });
  }
  text->push_back(value.is_object() ? '{' : '[');
  for (const size_t i : order) {
    if (i != order.front()) text->push_back(',');
    if (value.is_object()) absl::StrAppend(text, JsonQuoted(value.members->keys[i]), ":");
    AppendCompact(value.items[i], sorted, text);
  }
  text->push_back(value.is_object() ? '}' : ']');
}

}  // namespace

void JsonTree::LinkParents() {
  for (JsonTree& item : items) {
    item.parent = this;
    item.LinkParents();
  }
}

const JsonTree* JsonTree::Find(absl::string_view key) const {
  if (!is_object()) return nullptr;
  const auto place = members->places.find(key);
  return place == members->places.end() ? nullptr : &items[place->second];
}

absl::StatusOr<JsonTree> ParseOrderedJson(absl::string_view text, absl::string_view name,
                                          WorkMeter* work, MemoryGrant* memory, size_t* bytes) {
  ANNULUS_RETURN_IF_ERROR(work->Step(StepsFor(text.size())));
  OrderedTreeBuilder builder(work, memory);
  ANNULUS_RETURN_IF_ERROR(builder.Begin(text.size()));
  const absl::Status parsed = ParseJson(text, name, builder);
  ANNULUS_RETURN_IF_ERROR(builder.refused());
  ANNULUS_RETURN_IF_ERROR(parsed);
  *bytes = builder.granted();
  return builder.Take();
}

std::string CompactJson(const JsonTree& value, bool sorted) {
  std::string text;
  AppendCompact(value, sorted, &text);
  return text;
}

std::string JsonQuoted(absl::string_view text) { return nlohmann::json(std::string(text)).dump(); }

std::string CanonicalNumber(absl::string_view number) {
  const absl::StatusOr<Decimal> value = Decimal::Parse(number);
  if (!value.ok()) return std::string(number);
  return absl::StrCat(value->negative ? "-" : "", value->whole.empty() ? "0" : value->whole,
                      value->fraction.empty() ? "" : ".", value->fraction);
}

}  // namespace annulus

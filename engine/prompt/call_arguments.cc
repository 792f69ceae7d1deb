#include "engine/prompt/call_arguments.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

// Reads a text and tells how many of its bytes were read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* read) : at_(at), read_(read) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  size_t* read_;
};

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The parser stops at a NUL byte and skips a byte order mark: neither may come into other JSON.
bool IsObject(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && text[begin] == '{' && text.find('\0') == std::string::npos &&
         Json::accept(text);
}

// Copies calls while the parser, which needs no stack for nested values, reads them. The parser
// reads nothing behind the end of a text, an array or an object before it tells of it.
class Rewriter final : public nlohmann::json_sax<Json> {
 public:
  Rewriter(const std::string& calls, bool as_text, const CancelFlag& cancel)
      : calls_(calls),
        as_text_(as_text),
        meter_("rewriting tool calls", std::numeric_limits<int64_t>::max(), cancel) {}

  absl::StatusOr<std::string> Run() {
    const char* const begin = calls_.data();
    const bool parsed = Json::sax_parse(CountingIterator(begin, &read_),
                                        CountingIterator(begin + calls_.size(), &read_), this);
    ANNULUS_RETURN_IF_ERROR(status_);
    if (!parsed) return calls_;
    rewritten_.append(calls_, copied_);
    return std::move(rewritten_);
  }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(int64_t) override { return Count(); }
  bool number_unsigned(uint64_t) override { return Count(); }
  bool number_float(double, const std::string&) override { return Count(); }
  bool binary(Json::binary_t&) override { return false; }
  bool string(std::string& value) override {
    if (!Count(value.size())) return false;
    if (as_text_ || !AtArguments() || !IsObject(value)) return true;
    Replace(calls_.find('"', key_end_), value);
    return true;
  }
  bool key(std::string& name) override {
    if (AtPath(kCall)) on_path_ = name == "function";
    if (AtPath(kFunction)) on_path_ = name == "arguments";
    key_end_ = read_;
    return Count(name.size());
  }
  bool start_array(size_t) override {
    Descend(depth_ + 1 == kList);
    return Count();
  }
  bool start_object(size_t) override {
    const size_t depth = depth_ + 1;
    Descend(depth == kCall || ((depth == kFunction || depth == kArguments) && on_path_));
    if (AtPath(kArguments)) begin_ = read_ - 1;
    return Count();
  }
  bool end_array() override { return Ascend(); }
  bool end_object() override {
    if (as_text_ && AtPath(kArguments)) {
      Replace(begin_, Quoted(calls_.substr(begin_, read_ - begin_)));
    }
    return Ascend();
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  // The depths of what leads to the arguments.
  static constexpr size_t kList = 1;
  static constexpr size_t kCall = 2;
  static constexpr size_t kFunction = 3;
  static constexpr size_t kArguments = 4;

  bool Count(size_t bytes = 0) {
    status_ = meter_.Step(StepsFor(bytes));
    return status_.ok();
  }

  // Whether the parser is directly inside what leads to the arguments at that depth.
  bool AtPath(size_t depth) const { return depth_ == depth && matched_ == depth; }
  bool AtArguments() const { return AtPath(kFunction) && on_path_; }

  void Descend(bool leads_on) {
    if (matched_ == depth_ && leads_on) ++matched_;
    ++depth_;
  }
  bool Ascend() {
    if (matched_ == depth_) --matched_;
    --depth_;
    return Count();
  }

  // Puts `value` in the place of the bytes from `begin` to what was read last.
  void Replace(size_t begin, const std::string& value) {
    rewritten_.append(calls_, copied_, begin - copied_);
    rewritten_.append(value);
    copied_ = read_;
  }

  const std::string& calls_;
  const bool as_text_;
  WorkMeter meter_;
  absl::Status status_;
  size_t read_ = 0;
  size_t depth_ = 0;
  size_t matched_ = 0;    // how many of the open arrays and objects, from the first, lead there
  bool on_path_ = false;  // the member that is being read leads there; see key
  size_t key_end_ = 0;    // of the last name
  size_t begin_ = 0;      // of the arguments
  std::string rewritten_;
  size_t copied_ = 0;  // so many bytes of the calls are rewritten
};

}  // namespace

absl::StatusOr<std::string> WithArguments(const std::string& calls, bool as_text,
                                          const CancelFlag& cancel) {
  return Rewriter(calls, as_text, cancel).Run();
}

}  // namespace annulus

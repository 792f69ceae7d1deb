#include "engine/grammar/compiler/decimal_range.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/json_parser.h"

namespace annulus {
namespace {

constexpr int64_t kMaxDigits = 60;

std::strong_ordering CompareMagnitude(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
  if (a.whole != b.whole) return a.whole.compare(b.whole) <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;
}

// A bound on the magnitude, by its digits.
struct Limit {
  std::string whole;  // at least one digit
  std::string fraction;
  bool exclusive = false;

  char FractionDigit(size_t i) const { return i < fraction.size() ? fraction[i] : '0'; }
};

std::optional<Limit> LimitOf(const std::optional<DecimalBound>& bound) {
  if (!bound) return std::nullopt;
  return Limit{bound->value.whole.empty() ? "0" : bound->value.whole, bound->value.fraction,
               bound->exclusive};
}

// Emits the magnitudes between two limits. A state says whether the digits so far equal those of
// each limit ("tight"); a tight digit may not pass the limit's.
class MagnitudeEmitter {
 public:
  MagnitudeEmitter(std::optional<Limit> low, std::optional<Limit> high, bool whole_numbers,
                   NodeId next, MachineBuilder* builder)
      : low_(std::move(low)),
        high_(std::move(high)),
        whole_numbers_(whole_numbers),
        next_(next),
        builder_(*builder) {
    const size_t low_digits = low_ ? low_->fraction.size() : 0;
    const size_t high_digits = high_ ? high_->fraction.size() : 0;
    fraction_digits_ = std::max(low_digits, high_digits);
  }

  NodeId Emit() {
    const size_t least = low_ ? low_->whole.size() : 1;
    const size_t most = high_ ? high_->whole.size() : least + 1;
    std::vector<NodeId> targets;
    for (size_t digits = least; digits <= most && builder_.ok(); ++digits) {
      const bool endless = !high_ && digits == most;
      targets.push_back(Whole(0, digits, low_ && digits == least,
                              high_ && digits == high_->whole.size(), endless));
    }
    return builder_.Split(targets);
  }

 private:
  // Digit `at` of `digits` before the point.
  NodeId Whole(size_t at, size_t digits, bool low_tight, bool high_tight, bool endless) {
    if (at == digits) {
      const NodeId end = Fraction(0, low_tight, high_tight, /*empty=*/true);
      if (!endless) return end;
      const NodeId loop = builder_.OpenLoop();
      builder_.CloseLoop(loop, builder_.Bytes({{'0', '9', loop}}), end);
      return loop;
    }
    const auto key = std::tuple(at, digits, low_tight, high_tight);
    if (const auto known = wholes_.find(key); known != wholes_.end()) return known->second;
    std::vector<ByteEdge> edges;
    const char first = at == 0 && digits > 1 ? '1' : '0';
    for (char digit = first; digit <= '9' && builder_.ok(); ++digit) {
      if (low_tight && digit < low_->whole[at]) continue;
      if (high_tight && digit > high_->whole[at]) continue;
      const auto byte = static_cast<uint8_t>(digit);
      edges.push_back({byte, byte,
                       Whole(at + 1, digits, low_tight && digit == low_->whole[at],
                             high_tight && digit == high_->whole[at], endless)});
    }
    return wholes_[key] = builder_.Bytes(edges);
  }

  // Whether a number may end here, where `at` digits after the point have been read.
  bool MayEnd(size_t at, bool low_tight, bool high_tight) const {
    const auto rest_is_zero = [at](const Limit& limit) {
      return at >= limit.fraction.size();  // it has no trailing zeros
    };
    if (low_tight && (!rest_is_zero(*low_) || low_->exclusive)) return false;
    return !high_tight || !rest_is_zero(*high_) || !high_->exclusive;
  }

  // Digit `at` after the point, or the point itself if `empty`.
  NodeId Fraction(size_t at, bool low_tight, bool high_tight, bool empty) {
    at = std::min(at, fraction_digits_);  // beyond all digits of the limits
    const auto key = std::tuple(at, low_tight, high_tight, empty);
    if (const auto known = fractions_.find(key); known != fractions_.end()) return known->second;
    const bool may_end = MayEnd(at, low_tight, high_tight);
    if (empty) {
      std::vector<NodeId> targets;
      if (may_end) targets.push_back(next_);
      if (!whole_numbers_) {
        targets.push_back(builder_.Byte('.', Digit(0, low_tight, high_tight)));
      }
      return fractions_[key] = builder_.Split(targets);
    }
    // A loop: the state after all digits leads to itself.
    const NodeId loop = builder_.OpenLoop();
    fractions_[key] = loop;
    const NodeId dead = builder_.Split({});
    builder_.CloseLoop(loop, Digit(at, low_tight, high_tight), may_end ? next_ : dead);
    return loop;
  }

  NodeId Digit(size_t at, bool low_tight, bool high_tight) {
    std::vector<ByteEdge> edges;
    for (char digit = '0'; digit <= '9' && builder_.ok(); ++digit) {
      if (low_tight && digit < low_->FractionDigit(at)) continue;
      if (high_tight && digit > high_->FractionDigit(at)) continue;
      const auto byte = static_cast<uint8_t>(digit);
      edges.push_back({byte, byte,
                       Fraction(at + 1, low_tight && digit == low_->FractionDigit(at),
                                high_tight && digit == high_->FractionDigit(at), false)});
    }
    return builder_.Bytes(edges);
  }

  const std::optional<Limit> low_;
  const std::optional<Limit> high_;
  const bool whole_numbers_;
  const NodeId next_;
  MachineBuilder& builder_;
  size_t fraction_digits_ = 0;
  std::map<std::tuple<size_t, size_t, bool, bool>, NodeId> wholes_;
  std::map<std::tuple<size_t, bool, bool, bool>, NodeId> fractions_;
};

}  // namespace

absl::StatusOr<Decimal> Decimal::Parse(absl::string_view number) {
  const std::string text(number);
  Decimal result;
  result.negative = absl::ConsumePrefix(&number, "-");
  const size_t exponent_at = std::min(number.find_first_of("eE"), number.size());
  absl::string_view digits = number.substr(0, exponent_at);
  int64_t exponent = 0;
  if (exponent_at < number.size()) {
    absl::string_view power = number.substr(exponent_at + 1);
    absl::ConsumePrefix(&power, "+");
    if (!absl::SimpleAtoi(power, &exponent)) exponent = kMaxDigits * 100;
  }
  const size_t point = std::min(digits.find('.'), digits.size());
  std::string all =
      absl::StrCat(digits.substr(0, point), point < digits.size() ? digits.substr(point + 1) : "");
  int64_t whole_digits = static_cast<int64_t>(point) + exponent;
  if (all.find_first_not_of('0') == std::string::npos) return Decimal();
  if (whole_digits > kMaxDigits || whole_digits < -kMaxDigits ||
      static_cast<int64_t>(all.size()) - whole_digits > kMaxDigits) {
    return absl::InvalidArgumentError(absl::StrCat("the bound ", QuoteForMessage(text),
                                                   " has more than ", kMaxDigits,
                                                   " digits before or after the point"));
  }
  if (whole_digits < 0) {
    all.insert(0, static_cast<size_t>(-whole_digits), '0');
    whole_digits = 0;
  }
  if (static_cast<int64_t>(all.size()) < whole_digits) {
    all.append(static_cast<size_t>(whole_digits) - all.size(), '0');
  }
  result.whole = all.substr(0, static_cast<size_t>(whole_digits));
  result.fraction = all.substr(static_cast<size_t>(whole_digits));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  return result;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) {
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return negative ? CompareMagnitude(other, *this) : CompareMagnitude(*this, other);
}

void DecimalRange::AtLeast(const DecimalBound& bound) {
  if (!low || bound.value > low->value || (bound.value == low->value && bound.exclusive)) {
    low = bound;
  }
}

void DecimalRange::AtMost(const DecimalBound& bound) {
  if (!high || bound.value < high->value || (bound.value == high->value && bound.exclusive)) {
    high = bound;
  }
}

bool DecimalRange::Contains(const Decimal& value) const {
  if (whole_numbers && !value.fraction.empty()) return false;
  if (low && (value < low->value || (low->exclusive && value == low->value))) return false;
  return !high || value < high->value || (!high->exclusive && value == high->value);
}

NodeId EmitDecimalRange(const DecimalRange& range, NodeId next, MachineBuilder* builder) {
  const auto emit = [&](const std::optional<DecimalBound>& low,
                        const std::optional<DecimalBound>& high) {
    if (low && high && CompareMagnitude(low->value, high->value) > 0) return builder->Split({});
    return MagnitudeEmitter(LimitOf(low), LimitOf(high), range.whole_numbers, next, builder).Emit();
  };
  const auto& low = range.low;
  const auto& high = range.high;
  std::vector<NodeId> targets;
  if (!high || !high->value.negative) {
    targets.push_back(emit(low && !low->value.negative ? low : std::nullopt, high));
  }
  if (!low || low->value.negative) {
    // Mirrored: the upper bound limits the magnitude from below. -0 is 0.
    const bool limits = high && (high->value.negative || (high->value.zero() && high->exclusive));
    targets.push_back(builder->Byte('-', emit(limits ? high : std::nullopt, low)));
  }
  return builder->Split(targets);
}

}  // namespace annulus

#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_DECIMAL_RANGE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_DECIMAL_RANGE_H_

#include <compare>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/machine_builder.h"

namespace annulus {

// A decimal number, exact. Canonical: no leading or trailing zeros, and zero is not negative.
struct Decimal {
  bool negative = false;
  std::string whole;     // digits before the point; empty: 0
  std::string fraction;  // digits after it

  // From the text of a JSON number. INVALID_ARGUMENT above 60 digits on a side of the point.
  static absl::StatusOr<Decimal> Parse(absl::string_view number);

  bool zero() const { return whole.empty() && fraction.empty(); }
  std::strong_ordering operator<=>(const Decimal& other) const;
  bool operator==(const Decimal&) const = default;
};

struct DecimalBound {
  Decimal value;
  bool exclusive = false;
};

struct DecimalRange {
  std::optional<DecimalBound> low;
  std::optional<DecimalBound> high;
  bool whole_numbers = false;

  // Narrows the range.
  void AtLeast(const DecimalBound& bound);
  void AtMost(const DecimalBound& bound);
  bool bounded() const { return low.has_value() || high.has_value(); }
  bool Contains(const Decimal& value) const;
};

// Adds what reads a number of the range, written without an exponent and without needless leading
// zeros, and then goes on at `next`.
NodeId EmitDecimalRange(const DecimalRange& range, NodeId next, MachineBuilder* builder);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_DECIMAL_RANGE_H_

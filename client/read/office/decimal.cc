#include "client/read/office/decimal.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace annulus::client {

std::string FixedDecimal(double value, int places) {
  constexpr int kDigits = 15;
  const std::string shown = absl::StrFormat("%.*e", kDigits - 1, value);  // "1.23400000000000e+02"
  int exponent = 0;
  if (!absl::SimpleAtoi(shown.substr(shown.find('e') + 1), &exponent)) return shown;
  std::string digits = shown.substr(0, 1) + shown.substr(2, kDigits - 1);
  const int kept = exponent + 1 + places;  // of the digits
  const bool up = kept >= 0 && kept < kDigits && digits[static_cast<size_t>(kept)] >= '5';
  digits.resize(static_cast<size_t>(std::max(kept, 0)), '0');
  auto at = digits.rbegin();
  for (; up && at != digits.rend() && *at == '9'; ++at) *at = '0';
  if (up && at != digits.rend()) {
    ++*at;
  } else if (up) {
    digits.insert(0, "1");
  }
  const auto least = static_cast<size_t>(places) + 1;
  if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
  if (places > 0) digits.insert(digits.size() - static_cast<size_t>(places), ".");
  return digits;
}

Fraction NearestFraction(double value, int most) {
  Fraction best;
  double least = 2;
  for (int below = 1; below <= most; ++below) {
    const auto above = static_cast<int>(std::lround(value * below));
    const double off = std::fabs(value - static_cast<double>(above) / below);
    if (off < least - 1e-12) {
      least = off;
      best = {above, below};
    }
  }
  return best;
}

}  // namespace annulus::client

#ifndef ANNULUS_CLIENT_READ_OFFICE_DECIMAL_H_
#define ANNULUS_CLIENT_READ_OFFICE_DECIMAL_H_

#include <string>

namespace annulus::client {

// A number from 0 to 1e15 with that many places, rounded as spreadsheets do: of the 15 digits that
// they keep, halves go up. "0.13" for 0.125 and 2 places, where printf gives 0.12.
std::string FixedDecimal(double value, int places);

// A fraction near a number below 1.
struct Fraction {
  int above = 0, below = 1;
};

// The nearest fraction whose denominator is at most `most`, from 1 to 999.
Fraction NearestFraction(double value, int most);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_DECIMAL_H_

#ifndef ANNULUS_CLIENT_READ_OFFICE_NUMBER_FORMAT_H_
#define ANNULUS_CLIENT_READ_OFFICE_NUMBER_FORMAT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

// The format code that a spreadsheet means by one of its built-in numbers ("0.00%" for 10);
// "General" for any other.
absl::string_view BuiltinNumberFormat(int id);

// Shows a number as a spreadsheet does by a format code such as "#,##0.00 \"EUR\"" or "0.0%". Dates
// and times become "2024-05-31 14:30" whatever the order in the code; `since_1904` says which day
// is number 0. Empty if the code shows nothing of the number, as "0;-0;;" does of zeros.
std::string FormatNumber(double value, absl::string_view code, bool since_1904);

// Whether a cell with this code shows nothing of a text in it.
bool HidesText(absl::string_view code);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_NUMBER_FORMAT_H_

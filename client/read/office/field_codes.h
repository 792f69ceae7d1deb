#ifndef ANNULUS_CLIENT_READ_OFFICE_FIELD_CODES_H_
#define ANNULUS_CLIENT_READ_OFFICE_FIELD_CODES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

// What a field of Word shows by its code alone: the sign of SYMBOL 163 \f "Symbol" ("≤"), and the
// formula of EQ \f(1,2) ("1/2"; see Word's help on EQ). Empty for fields of other kinds, which have
// their result beside the code.
std::string FieldText(absl::string_view code);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_FIELD_CODES_H_

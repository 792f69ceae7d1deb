#ifndef ANNULUS_TESTS_PROTO_LINT_H_
#define ANNULUS_TESTS_PROTO_LINT_H_

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::testing {

// Checks the files of `set` whose path begins with `own_prefix` against the rules that Buf calls
// STANDARD (minus PROTOVALIDATE: no such annotation is used) and COMMENTS. Every rule is known by
// Buf's name for it (https://buf.build/docs/lint/rules).
//
// `set` must hold every import, before its importers, and source information. Returns one line
// "RULE path: what is wrong" for each offence, in the order of the files; UNRESOLVED for a set that
// is not valid at all.
std::vector<std::string> Lint(const google::protobuf::FileDescriptorSet& set,
                              absl::string_view own_prefix);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_PROTO_LINT_H_

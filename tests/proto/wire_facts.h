#ifndef ANNULUS_TESTS_PROTO_WIRE_FACTS_H_
#define ANNULUS_TESTS_PROTO_WIRE_FACTS_H_

#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>

namespace annulus::testing {

// What programs that were built with the files of `set` rely on, one line for each: every method
// with its messages, every field with its number, kind and oneof, every value of an enumeration. A
// daemon and a client understand each other if each knows the lines of the older one.
//
// `set` must hold every import, before its importers; empty for a set that is not valid.
std::set<std::string> WireFacts(const google::protobuf::FileDescriptorSet& set);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_PROTO_WIRE_FACTS_H_

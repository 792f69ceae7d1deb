// In builds with the thread sanitizer only, every source that uses the messages includes this before
// all else (proto/CMakeLists.txt). Under that sanitizer map_field.h gives every map two more members,
// but the installed libprotobuf was compiled without them: members that follow a map in a message
// would have other offsets in our code than in the library.
#ifndef ANNULUS_PROTO_MAP_LAYOUT_H_
#define ANNULUS_PROTO_MAP_LAYOUT_H_

#include <memory>  // first: the standard library itself goes by the macro, and must see it

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")

#endif  // ANNULUS_PROTO_MAP_LAYOUT_H_

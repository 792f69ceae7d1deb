// Read before all else by whatever uses the messages, in builds with the thread sanitizer only
// (proto/CMakeLists.txt). Under that sanitizer map_field.h gives every map two more members, which
// the installed libprotobuf, compiled without it, knows nothing of: the members of a message behind
// its map would lie in other places for our code than for the library's.
#ifndef ANNULUS_PROTO_MAP_LAYOUT_H_
#define ANNULUS_PROTO_MAP_LAYOUT_H_

#include <memory>  // first: the standard library itself goes by the macro, and must see it

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")

#endif  // ANNULUS_PROTO_MAP_LAYOUT_H_

#ifndef ANNULUS_ENGINE_API_OPTION_VALUES_H_
#define ANNULUS_ENGINE_API_OPTION_VALUES_H_

// Which values an option of the engine allows, as data. server/config parses texts by it,
// CheckOptions checks fields by it. The type of the option's field decides how a value is written:
// an int is a whole number, size_t and int64_t are sizes in bytes, milliseconds are a duration.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace annulus::option {

// Numbers, or sizes in bytes, from `low` to `high`.
struct Within {
  int64_t low = 0;
  int64_t high = 0;
};
// Also "auto", which stores 0: the engine chooses.
struct WithinOrAuto {
  int64_t low = 0;
  int64_t high = 0;
};

struct TimeWithin {
  std::chrono::milliseconds low{0};
  std::chrono::milliseconds high{0};
};
// Also "off", which stores 0, and "auto", which stores nullopt: the engine chooses.
struct TimeOffOrAuto {
  std::chrono::milliseconds low{0};
  std::chrono::milliseconds high{0};
};

// 0 to 1, written as a whole percentage.
struct Share {};

// The values that have a name here.
template <typename T>
struct OneOf {
  std::vector<std::pair<std::string, T>> choices;
};

// What the parser of the field's type accepts; if the field is optional, also "auto", which stores
// nullopt.
struct Any {};

// A text that is not empty. `examples` completes the error "... is not allowed: ".
struct Required {
  std::string examples;
};

}  // namespace annulus::option

#endif  // ANNULUS_ENGINE_API_OPTION_VALUES_H_

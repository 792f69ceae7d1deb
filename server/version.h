#ifndef ANNULUS_SERVER_VERSION_H_
#define ANNULUS_SERVER_VERSION_H_

namespace annulus {

inline constexpr char kVersion[] = ANNULUS_VERSION;  // set by CMake from the project's version

}  // namespace annulus

#endif  // ANNULUS_SERVER_VERSION_H_

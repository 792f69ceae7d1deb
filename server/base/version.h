#ifndef ANNULUS_SERVER_BASE_VERSION_H_
#define ANNULUS_SERVER_BASE_VERSION_H_

namespace annulus::server {

inline constexpr char kVersion[] = ANNULUS_VERSION;  // set by CMake from the project's version

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_VERSION_H_

#ifndef ANNULUS_KERNELS_BASE_SANITIZERS_H_
#define ANNULUS_KERNELS_BASE_SANITIZERS_H_

namespace annulus {

// Which sanitizer this build uses. Tests and limits depend on it: sanitizers need extra memory, and
// the thread sanitizer makes the program several times slower.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_SANITIZERS_H_

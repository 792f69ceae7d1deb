#ifndef ANNULUS_TESTS_SUPPORT_SANITIZED_H_
#define ANNULUS_TESTS_SUPPORT_SANITIZED_H_

namespace annulus {

// What the test was built for. Sanitizers keep memory of their own beside the program's, and the
// thread sanitizer makes it several times slower.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif

}  // namespace annulus

#endif  // ANNULUS_TESTS_SUPPORT_SANITIZED_H_

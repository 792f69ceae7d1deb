# What tests run under: for tests/run.sh and tests/nightly.sh, which source this with `root` set.

# Decides which of their cases the tests take that do not take all (tests/support/thinned.h): others
# every day.
export ANNULUS_TEST_SEED=${ANNULUS_TEST_SEED:-$(date -u +%Y%m%d)}
if [[ ! $ANNULUS_TEST_SEED =~ ^[0-9]{1,15}$ ]]; then
  echo "ANNULUS_TEST_SEED is a number of at most 15 digits, not '$ANNULUS_TEST_SEED'" >&2
  exit 2
fi
# A filter that somebody has set for a program of theirs would leave tests out of all.
unset "${!GTEST_@}"

# The sanitizers stop at their first report; a leak is one too.
# GCC 12's runtime takes a block of thread-local storage that begins at an odd place for one with the
# header of a glibc before 2.25, reads its bounds from what lies before it, and the search for leaks
# then ends with "Tracer caught signal 11" at the end of a program that passed. Without the
# interceptor of __tls_get_addr it does not look (fixed in GCC 14; google/sanitizers issue 1322).
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS="suppressions='$root/tests/lsan.supp':print_suppressions=0"
# Debian's gRPC, Abseil and protobuf are not instrumented: what their functions read and write would
# be reported without the locks that guard it. What our own code touches is watched all the same, and
# tests/support/tsan tells what gRPC orders. Sockets order nothing here: by default every write to
# one comes before every later read of any, which would hide races between calls.
TSAN_OPTIONS=ignore_noninstrumented_modules=1:io_sync=0:second_deadlock_stack=1
export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions="'$root/tests/tsan.supp'"

# The thread sanitizer of GCC 12 does not start where the kernel spreads addresses widely.
in_order=()
if setarch -R true 2>/dev/null; then in_order=(setarch -R); fi

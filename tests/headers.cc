// The library tests_headers compiles the headers of tests; it has nothing else to compile.

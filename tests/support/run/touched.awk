# Prints the tests that a change in `folder` touches: awk -v folder=... -v only=FILE FILE... Lines of the
# files, touches.txt and scripts.txt, are a test and the folders that it is made of
# (tests/touches.cmake); those of `only` are printed. A folder that is none of a test, say one of
# headers alone, belongs to the nearest one above it that is.
{
  for (i = 2; i <= NF; ++i) known[$i] = 1
}
FILENAME == only { line[++lines] = $0 }

function holds(above, path) { return path == above || index(path, above "/") == 1 }

END {
  wanted = folder
  while (1) {
    for (path in known) if (holds(wanted, path)) found = 1
    if (found || wanted !~ /\//) break
    sub(/\/[^\/]*$/, "", wanted)
  }
  for (n = 1; n <= lines; ++n) {
    count = split(line[n], word, " ")
    for (i = 2; i <= count; ++i) {
      if (holds(wanted, word[i])) {
        print word[1]
        break
      }
    }
  }
}

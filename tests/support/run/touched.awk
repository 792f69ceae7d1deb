# Prints the programs that a change in `folder` touches: awk -v folder=... touches.txt, whose lines
# are a program and the folders that it is made of (tests/touches.cmake). A folder that is none of a
# target, say one of headers alone, belongs to the nearest one above it that is.
{
  line[++lines] = $0
  for (i = 2; i <= NF; ++i) known[$i] = 1
}

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

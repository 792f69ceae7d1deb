# Prints the entries of ctest, PROGRAM.N each, that `run.sh --only FOLDER` runs:
#   awk -v folder=FOLDER -v seed=N list=made_of TOUCHES list=touched PROGRAMS list=slow SLOW list=all ALL
# TOUCHES is touches.txt, PROGRAMS what touched.awk prints, SLOW and ALL are lists as ctest prints them.
# Of a touched program all entries run; but of a slow one that has no tests of the folder itself only
# one, which the seed chooses.
BEGIN { tests = folder ~ /^tests(\/|$)/ ? folder "/" : "tests/" folder "/" }
list == "made_of" {
  for (i = 2; i <= NF; ++i) if (index($i "/", tests) == 1) own[$1] = 1
}
list == "touched" { touched[$1] = 1 }
match($0, /^ *Test +#[0-9]+: /) {
  entry = substr($0, RLENGTH + 1)
  program = entry
  if (!sub(/\.[0-9]+$/, "", program)) next
  if (list == "slow") slow[program] = slow[program] + 1
  else if (!(program in touched)) next
  else if (!(program in slow) || program in own || entry == program "." (seed % slow[program])) print entry
}

# Writes a source file that holds the page's files:
#   cmake -DFOLDER=DIR "-DFILES=page.html;page.css" -DOUT=FILE.cc -P embed.cmake
# Each is a raw string, so that compilers need no tool to read them.
set(rows)
foreach(file IN LISTS FILES)
  file(READ ${FOLDER}/${file} text)
  file(SHA256 ${FOLDER}/${file} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  string(FIND "${text}" ")embedded\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} has the text that ends a raw string here: )embedded\"")
  endif()
  string(APPEND rows "    {\"${file}\", \"\\\"${hash}\\\"\", R\"embedded(${text})embedded\"},\n")
endforeach()
set(source "// Made by embed.cmake.
#include \"server/http/page/page_files.h\"

namespace annulus::server {
namespace {

constexpr PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace annulus::server
")
file(WRITE ${OUT} "${source}")

#include "client/read/context.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace annulus::client {

std::vector<std::string> DescribeLeftOut(absl::string_view what, const LeftOut& left_out) {
  std::vector<std::string> sentences, parts, flags;
  if (left_out.hidden > 0) {
    const bool one = left_out.hidden == 1;
    sentences.push_back(
        absl::StrCat(what, ": left out ", left_out.hidden,
                     one ? " hidden passage, which is" : " hidden passages, which are",
                     " not visible in the document"));
  }
  const auto add = [&](int count, absl::string_view one, absl::string_view flag) {
    if (count == 0) return;
    parts.push_back(absl::StrCat(count, " ", one, count == 1 ? "" : "s"));
    flags.emplace_back(flag);
  };
  add(left_out.headers, "page header", "headers");
  add(left_out.comments, "comment", "comments");
  add(left_out.alts, "picture description", "alt");
  if (!parts.empty()) {
    sentences.push_back(absl::StrCat(what, ": left out ", absl::StrJoin(parts, " and "),
                                     "; --with ", absl::StrJoin(flags, ","), " reads them"));
  }
  return sentences;
}

}  // namespace annulus::client

#ifndef ANNULUS_CLIENT_READ_WEB_HTML_TREE_H_
#define ANNULUS_CLIENT_READ_WEB_HTML_TREE_H_

#include <gumbo.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

// A parsed page. Gumbo itself bounds neither memory nor time, and frees its tree by a recursion as
// deep as the page. So this class gives Gumbo all its memory, counts it, and frees it in whole
// blocks.
class HtmlTree {
 public:
  // `text` is UTF-8 and must outlive the tree, which points into it. RESOURCE_EXHAUSTED if the tree
  // needs more memory than the limits allow, DEADLINE_EXCEEDED if the time is up.
  static absl::StatusOr<std::unique_ptr<HtmlTree>> Parse(absl::string_view what,
                                                         absl::string_view text,
                                                         const ReadBudget& budget);
  ~HtmlTree();
  HtmlTree(const HtmlTree&) = delete;
  HtmlTree& operator=(const HtmlTree&) = delete;

  const GumboNode* root() const { return output_->root; }

 private:
  struct Arena;
  explicit HtmlTree(std::unique_ptr<Arena> arena);

  std::unique_ptr<Arena> arena_;
  const GumboOutput* output_ = nullptr;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_HTML_TREE_H_

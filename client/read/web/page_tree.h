#ifndef ANNULUS_CLIENT_READ_WEB_PAGE_TREE_H_
#define ANNULUS_CLIENT_READ_WEB_PAGE_TREE_H_

#include <memory>
#include <pugixml.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

// Parses a page, whose names then are in lower case. What is well-formed XHTML is read as XML:
// `xhtml` says that it is meant to be XHTML, as all pages of an e-book are, and pages that say so
// are taken at their word. Everything else is read as a browser reads HTML; in what is meant to be
// XHTML, elements that close themselves are closed then too. The tree may be deep: do not walk it
// recursively. RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit; `what` names the page in
// messages.
absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParsePage(absl::string_view what,
                                                              absl::string_view text, bool xhtml,
                                                              const ReadBudget& budget);

// Calls enter(node) and leave(node) for all nodes in page order, without recursion. If enter
// returns false, the node and its descendants are skipped, and leave is not called for it.
template <typename Enter, typename Leave>
void WalkPage(const pugi::xml_node& root, const Enter& enter, const Leave& leave) {
  if (!root || !enter(root)) return;
  pugi::xml_node node = root;
  bool entered = true;
  while (true) {
    if (entered && node.first_child()) {
      node = node.first_child();
      entered = enter(node);
      continue;
    }
    if (entered) leave(node);
    while (node != root && !node.next_sibling()) {
      node = node.parent();
      leave(node);
    }
    if (node == root) return;
    node = node.next_sibling();
    entered = enter(node);
  }
}

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_PAGE_TREE_H_

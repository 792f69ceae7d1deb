#include "engine/pages/page_marks.h"

#include "absl/strings/str_cat.h"

namespace annulus {

PageMark PageMarks::RootUnder(const ContentHash& identity, const TenantId& tenant,
                              const AttentionAssignment* policy, int64_t rope) const {
  PageMark mark;
  mark.identity = identity;
  mark.policy =
      HashOf(absl::StrCat(policy == nullptr ? "dense" : AssignmentText(*policy), "/rope", rope));
  mark.tenant = HashOf(tenant.name());
  mark.chain = RootOf(mark);
  mark.first_position = -page_tokens_;
  return mark;
}

void PageMarks::Advance(std::span<const int32_t> tokens, PageMark& mark) {
  mark.parent = mark.chain;
  mark.chain = ChainOf(mark.parent, tokens);
  mark.first_position += static_cast<int32_t>(tokens.size());
  mark.tokens.assign(tokens.begin(), tokens.end());
}

}  // namespace annulus

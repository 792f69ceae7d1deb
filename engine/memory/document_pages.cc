#include "engine/memory/document_pages.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {

DocumentTag TagOf(const TenantId& tenant, absl::string_view content) {
  const std::string name = absl::StrCat(tenant.name().size(), "/", tenant.name(), "/", content);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest.data());
  DocumentTag tag;
  std::memcpy(&tag, digest.data(), sizeof(tag));
  return tag;
}

void DocumentPages::Add(const TaggedDocuments& documents, NodeHandle node, int32_t end) {
  std::lock_guard lock(mutex_);
  for (const TaggedDocument& document : documents) {
    ends_[document.tag].push_back({node, end - document.begin});
    ++count_;
  }
}

void DocumentPages::Remove(const TaggedDocuments& documents, NodeHandle node, int32_t end) {
  std::lock_guard lock(mutex_);
  for (const TaggedDocument& document : documents) {
    const auto found = ends_.find(document.tag);
    if (found == ends_.end()) continue;  // it was not added, for want of memory
    std::vector<End>& ends = found->second;
    const auto at = std::find(ends.begin(), ends.end(), End{node, end - document.begin});
    if (at == ends.end()) continue;
    ends.erase(at);  // the others keep their order: FirstDifference compares the latest
    --count_;
    if (ends.empty()) ends_.erase(found);
  }
}

std::vector<DocumentPages::NodeHandle> DocumentPages::NodesOf(DocumentTag tag) const {
  std::lock_guard lock(mutex_);
  std::vector<NodeHandle> handles;
  const auto found = ends_.find(tag);
  if (found == ends_.end()) return handles;
  for (const End& end : found->second) handles.push_back(end.node);
  return handles;
}

int32_t DocumentPages::TokensOf(DocumentTag tag) const {
  std::lock_guard lock(mutex_);
  int32_t most = 0;
  const auto found = ends_.find(tag);
  if (found == ends_.end()) return most;
  for (const End& end : found->second) most = std::max(most, end.tokens);
  return most;
}

void DocumentPages::Forget(DocumentTag tag, SteadyTime now) {
  std::lock_guard lock(mutex_);
  forgotten_.push_back({tag, now});
  if (forgotten_.size() <= kMostForgotten) return;
  latest_given_up_ = forgotten_.front().at;
  forgotten_.pop_front();
}

bool DocumentPages::WasForgotten(const TaggedDocuments& documents, SteadyTime asked) const {
  if (documents.empty()) return false;
  std::lock_guard lock(mutex_);
  if (asked <= latest_given_up_) return true;
  return std::any_of(forgotten_.begin(), forgotten_.end(), [&](const Forgotten& each) {
    return asked <= each.at &&
           std::any_of(documents.begin(), documents.end(),
                       [&](const TaggedDocument& document) { return document.tag == each.tag; });
  });
}

int64_t DocumentPages::bytes() const {
  std::lock_guard lock(mutex_);
  return count_ * static_cast<int64_t>(2 * sizeof(End)) + std::ssize(ends_) * 80 +
         std::ssize(forgotten_) * static_cast<int64_t>(sizeof(Forgotten));
}

}  // namespace annulus

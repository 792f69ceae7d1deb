#include "engine/memory/evicted_pages.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace annulus {

uint64_t EvictedPages::Fingerprint(const ContentHash& hash) {
  uint64_t value;
  std::memcpy(&value, hash.data(), sizeof(value));
  return value;
}

void EvictedPages::Add(uint64_t scope, const ContentHash& page) {
  auto place = std::find_if(scopes_.begin(), scopes_.end(), [&](const Scope& each) {
    return each.pages != nullptr && each.name == scope;
  });
  if (place == scopes_.end()) {
    place = std::min_element(scopes_.begin(), scopes_.end(),
                             [](const Scope& a, const Scope& b) { return a.used < b.used; });
    if (place->pages == nullptr) place->pages.reset(new (std::nothrow) Table);
    if (place->pages == nullptr) return;
    place->pages->fill(0);
    place->name = scope;
  }
  place->used = ++clock_;
  const uint64_t fingerprint = Fingerprint(page);
  (*place->pages)[fingerprint % kPages] = fingerprint;
}

bool EvictedPages::Has(uint64_t scope, const ContentHash& page) const {
  const uint64_t fingerprint = Fingerprint(page);
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& each) {
    return each.pages != nullptr && each.name == scope &&
           (*each.pages)[fingerprint % kPages] == fingerprint;
  });
}

int64_t EvictedPages::bytes() const {
  return std::count_if(scopes_.begin(), scopes_.end(),
                       [](const Scope& each) { return each.pages != nullptr; }) *
         static_cast<int64_t>(sizeof(Table));
}

}  // namespace annulus

#ifndef ANNULUS_SERVER_DOCUMENTS_LOAD_DOCUMENTS_H_
#define ANNULUS_SERVER_DOCUMENTS_LOAD_DOCUMENTS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/api.h"
#include "server/documents/document_store.h"
#include "server/identity/quota_book.h"

namespace annulus::server {

struct LoadedDocuments {
  size_t documents = 0;
  size_t bytes = 0;  // of their texts
  size_t tokens = 0;
  size_t lost = 0;   // files that are damaged or do not fit
  size_t older = 0;  // files that were removed because a later upload has the same name
};

// Takes the documents in the store's folder into the store, with ids of the engine's tokenizer.
// Call it once, before clients may change the store. Calls `lost` with the path of each file that
// cannot be taken and the reason: its bytes are damaged, or the store has no room. Such files stay
// as they are. `quotas` counts the documents and refuses none. Ends early once `cancel` is set.
LoadedDocuments LoadDocuments(
    DocumentStore& store, const Engine& engine, const std::shared_ptr<QuotaBook>& quotas,
    const CancelFlag& cancel,
    const std::function<void(const std::string& path, const absl::Status& why)>& lost);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_LOAD_DOCUMENTS_H_

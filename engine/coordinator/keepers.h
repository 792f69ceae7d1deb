#ifndef ANNULUS_ENGINE_COORDINATOR_KEEPERS_H_
#define ANNULUS_ENGINE_COORDINATOR_KEEPERS_H_

#include "engine/coordinator/document_keeper.h"
#include "engine/coordinator/ledger.h"

namespace annulus {

// The keepers of an engine's pages: see PageKeeper. Must end before the ledger.
struct Keepers {
  explicit Keepers(const DocumentKeeper::Parts& parts) : documents(parts) {
    parts.ledger.AddKeeper(documents);
  }

  DocumentKeeper documents;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_KEEPERS_H_
